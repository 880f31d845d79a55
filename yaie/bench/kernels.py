"""Every operator in every back end, against its peers and against what the device can do.

One run measures the ceilings, then case after case: each way to compute it is checked against
float64, then all that are right are timed against each other (see `yaie.bench.protocol`). The
results are saved after each case, so that a run that is cut short loses nothing.
"""

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import torch

from yaie.bench import cases, ceilings, files
from yaie.bench.cases import Case, Draw, Prepare
from yaie.bench.cases_attention import cache_write, decode, prefill
from yaie.bench.cases_sampling import sampling
from yaie.bench.machine import head, installed
from yaie.bench.measure import profile_kernel
from yaie.bench.protocol import (
    Clock,
    captured,
    clock_for,
    compare,
    new_memory_is_nan,
    poison,
    relative_error,
    row_error,
    tensors,
    was_poisoned,
    why_wrong,
)
from yaie.engine.device import choose_device, choose_dtype
from yaie.ops import registry

say_line = partial(print, flush=True)  # progress shows immediately, also in a pipe
COMPILED = "torch.compile"


@dataclass(frozen=True)
class Row:
    """One way to compute one operator at one shape.

    Attributes:
        who: the back end of this engine, or the peer, that computes it.
        ours: whether it is a back end.
        ms: the median, None if it failed; `fastest` and `slowest` are rounds.
        gb_s, tflop_s: the bytes and operations that it must at least move and do, over its time.
        fraction: of the ceiling: the least time that the device's ceilings allow, over its time.
        ceiling: what was measured for it: "a copy", "a read" or "a product".
        error: relative, against float64, of the whole output.
        row_error: that of the output's worst row, see `yaie.bench.protocol.row_error`.
        poisoned: whether its output is known to have been NaN before.
        failure: why it has no time.
        graph_ms: the median as a CUDA graph, where it was asked for and can be captured.
    """

    operator: str
    shape: str
    dtype: str
    num_bytes: int
    flops: int
    who: str = ""
    ours: bool = False
    ms: float | None = None
    fastest: float | None = None
    slowest: float | None = None
    gb_s: float | None = None
    tflop_s: float | None = None
    fraction: float | None = None
    ceiling: str | None = None
    error: float | None = None
    row_error: float | None = None
    poisoned: bool | None = None
    failure: str | None = None
    graph_ms: float | None = None


def all_cases(dtype: torch.dtype, on_gpu: bool, quick: bool = False) -> list[Case]:
    """What is measured, in the order of the table."""
    if not on_gpu:
        return _tiny_cases(dtype)
    rows = 4096 if quick else 16384
    kv = {"heads": 32, "kv_heads": 8, "head_dim": 128, "block_size": 16, "dtype": dtype}
    chosen = [
        cases.silu_and_mul(rows, 4096, dtype),
        cases.rotary(rows, 32, 128, 8192, dtype),
        *cases.row_wise(rows, 4096, dtype),
        cache_write(rows, 8, 128, 16, dtype),
        decode(64, 4096, **kv),
    ]
    if not quick:
        chosen += [decode(*shape, **kv) for shape in ((16, 8192), (128, 1024), (1, 32768))]
        chosen.append(prefill(4, 32, 4096, 128, False, dtype))
        chosen.append(cache_write(4 * rows, 8, 128, 16, dtype))
    chosen.append(prefill(4, 32, 4096, 128, True, dtype))
    if not quick:
        chosen += [prefill(4, 32, 4096, 64, causal, dtype) for causal in (False, True)]
    chosen += sampling(32 if quick else 256, 128256)
    return chosen


def _tiny_cases(dtype: torch.dtype) -> list[Case]:
    """The same operators at sizes that a CPU does in no time, some of them awkward."""
    return [
        cases.silu_and_mul(61, 130, dtype),
        cases.rotary(33, 4, 32, 100, dtype),
        *cases.row_wise(61, 130, dtype),
        cache_write(40, 2, 16, 4, dtype),
        decode(3, 37, 4, 2, 16, 4, dtype),
        prefill(2, 2, 33, 16, False, dtype),
        prefill(2, 2, 33, 16, True, dtype),
        *sampling(5, 130),
    ]


def run(
    only: str | None = None,
    dtype: str = "auto",
    device: str = "auto",
    output: str | Path | None = None,
    quick: bool = False,
    say: Callable[[str], None] = say_line,
    clock: Clock | None = None,
    more: Callable[[torch.dtype, bool, bool], list[Case]] | None = None,
    own: Callable[[torch.dtype, bool, bool], list[Case]] | None = None,
) -> dict:
    """Measure, print a table, and return what is saved.

    Args:
        only: words, separated by commas; an operator is measured if its name has one of them.
        dtype, device: as for `LLM`.
        output: a JSON file, written again after each case.
        quick: fewer and smaller shapes.
        say: prints a line.
        clock: times calls; by default that of the device.
        more: makes further cases, from the same arguments as `all_cases`.
        own: makes cases that are measured in place of all others.

    Raises:
        ValueError: no operator has such a name, there is no such dtype or device, or `output` is
            no JSON file.
    """
    kept = None if output is None else files.output_path(output)
    where = choose_device(device)
    numbers = choose_dtype(dtype, where)
    how = (numbers, where.type == "cuda", quick)
    every = own(*how) if own else [*all_cases(*how), *(more(*how) if more is not None else ())]
    chosen = [case for case in every if _wanted(case, only)]
    if not chosen:
        raise ValueError(f"only must be part of the name of an operator, got {only!r}")
    record = head(where)
    for part in ("machine", "versions"):
        say(" · ".join(f"{key} {value}" for key, value in record[part].items()))
    if where.type == "cpu" and own is None:
        say("No GPU: tiny shapes of the reference back end, which check this tool and no kernel.")
    clock = clock or clock_for(where)
    best = ceilings.measure(where, numbers, clock, quick)
    record |= {"ceilings": asdict(best), "results": []}
    say(best.line(numbers))

    start = time.monotonic()
    for number, case in enumerate(chosen, 1):
        what = f"{number}/{len(chosen)} {case.operator} {case.shape}"
        say(f"[{time.monotonic() - start:4.0f} s] {what}")
        rows = measure_case(case, numbers, where, best, clock)
        record["results"] += [asdict(row) for row in rows]
        if kept is not None:
            files.save(record, kept)
    for line in (*table(record["results"]), *summary(record["results"])):
        say(line)
    return record


# ------------------------------------------------------------------------------------- one case


PEERS = {"FlashInfer": "flashinfer", "FlashAttention-3": "fa3_fwd"}  # name -> package


def measure_case(
    case: Case, dtype: torch.dtype, device: torch.device, best: ceilings.Ceilings, clock: Clock,
    rounds: int = 4, graphs: int = 0, seed: int = 0,
) -> list[Row]:  # fmt: skip
    """Check every way to compute a case, time those that are right, and make rows of it.

    Args:
        graphs: also time this many calls as a CUDA graph.
    """
    inputs = str(case.dtype or dtype).removeprefix("torch.")
    blank = Row(
        case.operator, case.shape, inputs, case.num_bytes, case.flops,
        ceiling=best.binding(case.num_bytes, case.flops, case.writes),
    )  # fmt: skip
    try:
        arguments = case.arguments(Draw.on(device, dtype, seed))
        wanted = tensors(case.oracle(*arguments))
    except torch.OutOfMemoryError as failure:
        return [replace(blank, who="the inputs", failure=str(failure))]
    calls, rows = {}, {}
    for who, ours, prepare in ways(case, device):
        base = rows[who] = replace(blank, who=who, ours=ours)
        try:
            own = ours or who in case.variants
            call, error, worst, poisoned = _check(case, prepare, arguments, wanted, own)
        except Exception as failure:  # a way that fails is a line of the table, not the end of it
            rows[who] = replace(base, failure=f"{type(failure).__name__}: {failure}")
            continue
        rows[who] = replace(base, error=error, row_error=worst, poisoned=poisoned)
        if reason := why_wrong(error, 0.0 if who in case.rough else worst, dtype):
            rows[who] = replace(rows[who], failure=f"wrong: {reason}")
            continue
        calls[who] = call
    del wanted
    floor = best.floor_ms(case.num_bytes, case.flops, case.writes)
    for who, timing in compare(calls, clock, rounds).items():
        rows[who] = replace(
            rows[who],
            ms=timing.median,
            fastest=timing.fastest,
            slowest=timing.slowest,
            gb_s=case.num_bytes / timing.median / 1e6,
            tflop_s=case.flops / timing.median / 1e9 if case.flops else None,
            fraction=floor / timing.median,
        )
    if graphs:
        held = {who: call for who, call in calls.items() if who not in case.waits}
        replays = {who: captured(call, device, graphs) for who, call in held.items()}
        replays = {who: replay for who, replay in replays.items() if replay}
        held.clear()
        for who, timing in compare(replays, clock, rounds).items():
            rows[who] = replace(rows[who], graph_ms=timing.median / graphs)
        replays.clear()
    for who, word in case.kernels.items():
        if device.type == "cuda" and who in calls:
            names = [row.name for row in profile_kernel(calls[who]) if row.on_gpu]
            if not any(word in name.lower() for name in names):
                rows[who] = replace(rows[who], ms=None, failure=f"ran {names}, not {word}")
    calls.clear()
    if device.type == "cuda":
        torch._dynamo.reset()
        gc.collect()
        torch.cuda.empty_cache()
    return list(rows.values())


def ways(case: Case, device: torch.device) -> Iterator[tuple[str, bool, Prepare]]:
    """All that compute a case on a device: name, whether it is a back end, and how."""
    on_gpu = device.type == "cuda"
    for names, ours in ((case.rungs, True), (case.variants, False)):
        for name, prepare in names.items():
            yield name, ours, prepare
    for backend in () if case.rungs else registry.backends(case.operator):
        # On a CPU kernels would be emulated; the C++ back end computes there alone.
        if backend == "reference" or (on_gpu and backend != "cpp"):
            library = on_gpu and backend == "reference"
            named = case.calls_reference if library else backend
            yield named, backend != "reference", case.ours(backend)
    if not on_gpu and case.operator in ("ragged_attention", "paged_attention"):
        return  # those peers have no CPU
    if case.compiled and on_gpu and case.operator in registry.operators():
        reference = registry.resolve(case.operator, "reference")
        yield COMPILED, False, case.wrap(torch.compile(reference, dynamic=False))
    for name, prepare in case.peers.items():
        package = PEERS.get(name.partition(",")[0])
        if package is None or installed(package):
            yield name, False, prepare


def _check(
    case: Case, prepare: Prepare, arguments: tuple, wanted: tuple, ours: bool
) -> tuple[Callable[[], object], float, float, bool]:
    """Prepare a call, run it on poisoned outputs, and return it with its two errors."""
    first = tensors(prepare(*arguments)())  # compiles, too
    likeness = [torch.empty_like(t, device="meta") for t in first]
    del first
    call = prepare(*arguments)  # again, since some work in place
    if case.spoil is None:
        addresses = poison(likeness, arguments[0].device)
        with new_memory_is_nan() if ours else nullcontext([]) as filled:
            got = tensors(call())
        poisoned = was_poisoned(got, addresses + filled)
    else:
        case.spoil(*arguments)
        got, poisoned = tensors(call()), True
    if case.judge is not None:
        got = tensors(case.judge(*got, *arguments))
    if not ours:  # peers return no log-sum-exp, and may have an axis for the batch
        wanted = wanted[: len(got)]
        got = tuple(
            x.reshape(y.shape) if x.numel() == y.numel() else x
            for x, y in zip(got, wanted, strict=True)
        )
    return call, relative_error(got, wanted), row_error(got, wanted), poisoned


# ------------------------------------------------------------------------------------- report


def table(results: list[dict]) -> list[str]:
    """The results as lines of text, one section per case."""
    lines, before = [], None
    for row in results:
        case = f"{row['operator']} {row['shape']}"
        if case != before:
            of = f"of {row.get('ceiling') or 'ceiling'}"
            head = _cells(("who", "ms", "GB/s", "TFLOP/s", of, "error", "worst row", ""))
            lines += ["", f"{case}, {row['dtype']}", head]
            before = case
        if row["ms"] is None:
            lines.append(f"  {row['who']:36}{row['failure']}"[:160])
            continue
        tflop_s = "" if row["tflop_s"] is None else f"{row['tflop_s']:.1f}"
        worst = row.get("row_error")  # which results of before it was measured do not have
        worst = "" if worst is None else f"{worst:.0e}"
        poisoned = "" if row["poisoned"] else "output not poisoned"
        lines.append(_cells((
            row["who"], f"{row['ms']:.4f}", f"{row['gb_s']:.0f}", tflop_s,
            f"{row['fraction']:.0%}", f"{row['error']:.0e}", worst, poisoned,
        )))  # fmt: skip
    return lines


def summary(results: list[dict]) -> list[str]:
    """Our back ends in a line each: their fraction of the ceiling, and against the best peer."""
    lines = ["", "Our back ends: of the ceiling, and how many times as fast as the fastest peer"]
    for row in results:
        if not row["ours"]:
            continue
        what = f"  {row['operator']} {row['shape']}: {row['who']}"
        if row["ms"] is None:
            lines.append(f"{what} {row['failure']}"[:160])
            continue
        same = [
            other for other in results
            if other["operator"] == row["operator"] and other["shape"] == row["shape"]
            and other["ms"] is not None and not other["ours"]
        ]  # fmt: skip
        peer = min(same, key=lambda other: other["ms"], default=None)
        against = "" if peer is None else f", {peer['ms'] / row['ms']:.2f}× {peer['who']}"
        of = f" of {row['ceiling']}" if row.get("ceiling") else ""
        lines.append(f"{what} {row['fraction']:.0%}{of}{against}")
    return lines if len(lines) > 2 else []


def _cells(cells: tuple[str, ...]) -> str:
    who, *numbers, note = cells
    return (f"  {who:36}" + "".join(f"{number:>12}" for number in numbers) + f"  {note}").rstrip()


def _wanted(case: Case, only: str | None) -> bool:
    return only is None or any(word.strip() in case.operator for word in only.split(","))
