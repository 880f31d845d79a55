"""`yaie bench engine`: what each idea of the engine is worth, and transformers beside it.

Requests go through the engine in this process; what a client sees of a server measures `yaie bench
serve`. All answers are greedy and of a fixed number of tokens, and of every run up to 64,
spread over it, are compared with what transformers thinks of their tokens before its time is
believed. Every run begins with an empty prefix cache; of several rounds, the median counts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import torch
from rich import box
from rich.console import Console
from rich.table import Table

from yaie.bench.attention import OURS, TORCH
from yaie.bench.bench import (
    COURSE_CPU,
    COURSE_GPU,
    COURSE_SECTIONS,
    CPU,
    GPU,
    QUICK,
    Bench,
    heading,
    words,
)
from yaie.bench.drawn import DrawnBench, shape_of
from yaie.bench.drive import WALL, Clock, ProcessTime
from yaie.bench.machine import code_of
from yaie.bench.record import Record, Row, whose
from yaie.bench.sections import SECTIONS
from yaie.engine.checks import check_count
from yaie.engine.device import choose_device, choose_dtype
from yaie.model.llama import STEP_OPERATORS
from yaie.model.pull import model_name
from yaie.ops.registry import choose, in_words

GPU_MEMORY = 0.5  # transformers needs some, too
MILLISECONDS = (
    *("ttft_p50", "ttft_p99", "itl_p50", "itl_p99", "tpot_p50", "e2e_p50", "e2e_p99", "wait_mean"),
)
COLUMNS = {
    "transformers": ("yaie", "transformers", "ratio", "cached_fraction"),
    "matrix": (*("tokens_per_second", "ttft_p50", "tpot_p50", "e2e_p50", "e2e_p99", "kv_bytes"),),
    "first_token": ("ttft_p50",),
    "memory": (
        *("tokens_per_second", "ttft_p99", "itl_p99"),
        *("most_running", "kv_bytes", "preemptions"),
    ),
    "arrivals": (
        *("offered", "finished", "ttft_p50", "ttft_p99", "itl_p50", "itl_p99", "in_system"),
    ),
    "workloads": ("tokens_per_second", "ttft_p50", "cached_fraction", "most_blocks"),
    "prefix_cache": ("ttft_p50", "cached_fraction"),
    "chunked_prefill": ("tokens_per_second", "itl_p50", "itl_p99"),
    "attention": (OURS, *TORCH),
    "block_size": ("tokens_per_second", "itl_p50", "most_blocks"),
    "cuda_graphs": ("tokens_per_second", "itl_p50", "itl_p99"),
    "back_ends": ("tokens_per_second", "ttft_p50", "itl_p50"),
    "at_once": ("finished", "tokens_per_second", "ttft_p50", "ttft_p99", "itl_p50", "itl_p99"),
}
WORDS = (
    "ttft: time to first token; itl: inter-token latency, each gap between tokens; tpot: time per "
    "output token, a request's mean gap; e2e: from request to last token; p50: median; p99: 99th "
    "percentile"
)
UNSTEADY = 2  # a row is disturbed if one of its rounds took this many times as long as another
ENDS = ("requests", "seconds")  # where the measurements of a row begin
HEADINGS = {
    "yaie": "yaie tokens/s",
    "transformers": "transformers tokens/s",
    "tokens_per_second": "tokens/s",
    "most_running": "running",
    "most_blocks": "blocks",
    "kv_bytes": "KV MiB",
    "cached_fraction": "cached",
    "in_system": "in system",
}


def run(
    model: str | Path,
    *,
    shape: str | None = None,
    device: str = "auto",
    dtype: str = "auto",
    only: str | None = None,
    quick: bool = False,
    rounds: int | None = None,
    backend: str | Mapping[str, str] = "auto",
    cpu_time: bool = False,
    course: bool = False,
    output: str | Path | None = None,
) -> Row:
    """Measure, print a table per section, and return the record.

    Args:
        model, device, dtype, backend: as for `LLM`.
        shape: measure a model of this shape with drawn weights; `model` lends its tokenizer.
        only: names of sections, separated by commas; all by default.
        quick: small sizes, for a look.
        rounds: of each case, in place of what the sizes say.
        cpu_time: on a CPU, count the seconds that one thread computes, not those that pass: for a
            machine that others use.
        course: what notebook 28 draws, if `only` names nothing else; on a CPU with smaller sizes.
        output: where the record is kept row by row. If the file is there, what it lacks is
            measured; the model, the sizes, the options, the code and the machine must be the same.

    Raises:
        ValueError: a section is not known, or `output` has the results of something else.
        WrongAnswer: an answer is not the model's.
    """
    names = sections(",".join(COURSE_SECTIONS) if course and only is None else only, SECTIONS)
    where = choose_device(device)
    whole = (COURSE_GPU, COURSE_CPU) if course else (GPU, CPU)
    sizes = QUICK if quick else whole[where.type == "cpu"]
    if rounds is not None:
        check_count("rounds", rounds)
        sizes = replace(sizes, rounds=rounds)
    chosen = str(choose_dtype(dtype, where)).removeprefix("torch.")
    options = {"gpu_memory_utilization": GPU_MEMORY} if where.type == "cuda" else {}
    if backend != "auto":
        options["backend"] = backend
    name = model_name(model) if shape is None else f"{shape}, weights drawn"
    subject = {"benchmark": "engine", "model": name, "dtype": chosen, "quick": quick}
    subject |= whose(where) | {"sizes": asdict(sizes)}
    if shape is not None:
        subject["exercises"] = False  # a drawn model is the engine's own
    # `sample` draws the tokens where a mapping names it; on a CPU it is the sampler otherwise.
    step = subject["operators"] if isinstance(backend, str) else STEP_OPERATORS
    chosen_back_ends = choose(step, backend).items()
    subject["operators"] |= {name: by for name, by in chosen_back_ends if by != "auto"}
    if places := [by for by in subject["operators"].values() if ":" in by]:
        subject["code of operators"] = code_of(places)
    clock: Clock = WALL
    if cpu_time:
        if where.type != "cpu":
            raise ValueError("cpu_time is for a CPU: a GPU computes while this process waits")
        torch.set_num_threads(1)
        clock, subject["clock"] = ProcessTime(), "seconds of one thread"
    record = Record(output, subject | options, where, model if shape is None else None)
    if shape is None:
        bench = Bench(model, chosen, where, sizes, record, options, clock)
    else:
        bench = DrawnBench(shape_of(shape), model, chosen, where, sizes, record, options, clock)
    bench.say(f"operators: {in_words(subject['operators'], where.type)}")
    if subject["exercises"]:
        bench.say("your solved exercises take the place of what they are named for:")
    for name in names:
        SECTIONS[name](bench)
        show(name, record.rows(name))
    explain(names)
    return record.content


def sections(only: str | None, known: Sequence[str]) -> list[str]:
    """The names of the sections to run."""
    if only is None:
        return list(known)
    names = [name.strip() for name in only.split(",")]
    for name in names:
        if name not in known:
            raise ValueError(f"only must name some of {', '.join(known)}, got {name!r}")
    return names


def explain(sections: Sequence[str]) -> None:
    """Print what the words for latencies mean, if the table of one of these sections has them."""
    if any({*MILLISECONDS}.intersection(COLUMNS[section]) for section in sections):
        Console().print(WORDS, highlight=False, soft_wrap=True)


def show(section: str, rows: Sequence[Row]) -> None:
    """Print a section as a table: what the cases are, and what was measured."""
    if not rows:
        return
    cases: dict[str, None] = {}
    for row in rows:  # what comes before the measurements
        until = next(i for i, name in enumerate(row) if name in ENDS)
        cases |= dict.fromkeys(list(row)[:until])
    same: Row = {}
    if len(rows) > 1:  # what all have in common is said once
        same = {name: rows[0].get(name) for name in cases if len({r.get(name) for r in rows}) == 1}
    names = [name for name in cases if name not in same]
    title = ", ".join([heading(section), *([words(same)] if same else [])])
    if set(COLUMNS[section]) & {*MILLISECONDS, OURS}:
        title += " (times in ms)"
    apart = [spread(row) for row in rows]
    unsteady = max(apart) >= UNSTEADY
    table = Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for name in names:
        table.add_column(HEADINGS.get(name, name.replace("_", " ")))
    for name in COLUMNS[section]:
        table.add_column(HEADINGS.get(name, name.replace("_", " ")), justify="right")
    if unsteady:
        table.add_column("rounds differ", justify="right")
    for row, factor in zip(rows, apart, strict=True):
        shown = [str(row.get(name, "")) for name in names]
        shown += [_cell(name, row.get(name)) for name in COLUMNS[section]]
        if unsteady:
            shown.append(f"{factor:.1f} times" if factor >= UNSTEADY else "")
        table.add_row(*shown)
    console = Console()
    console.print(table)
    if unsteady:
        console.print(
            f"Rounds that differ {UNSTEADY} times or more were disturbed: do not trust those rows.",
            highlight=False,
        )
    if section == "attention":
        console.print("all results are those of float64, within rounding\n", highlight=False)
        return
    equal = sum(row["same_answers"] for row in rows)
    checked = sum(row["checked_answers"] for row in rows)
    console.print(
        f"{checked} answers checked: {equal} are transformers' own token for token, "
        f"the others within rounding\n" if equal < checked else
        f"{checked} answers checked: all are transformers' own, token for token\n",
        highlight=False,
    )  # fmt: skip


def spread(row: Row) -> float:
    """How many times as long as the shortest round of a row the longest took; 1 if it had one."""
    rounds = row.get("seconds") or [row.get("rates") or [1.0]]  # of each who was measured
    return max(max(values) / min(values) for values in rounds)


def _cell(name: str, value: float | None) -> str:
    if value is None:
        return ""
    if name in MILLISECONDS:
        value *= 1e3
    if name == "kv_bytes":
        value /= 2**20
    if name == "cached_fraction":
        return f"{value:.0%}"
    if isinstance(value, int):
        return str(value)
    return f"{value:.0f}" if value >= 1000 else f"{value:.1f}" if value >= 10 else f"{value:.3g}"
