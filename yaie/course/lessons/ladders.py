"""`yaie bench kernels --ladder`: every rung of a kernel, its variants and the libraries in turns.

A step of a ladder is a case of `yaie bench kernels` with its rungs in place of back ends. Each way
to compute it is checked against float64 on fresh inputs, ours into memory that holds NaN, and then
timed per call and as a CUDA graph. The last rungs run in variants, too, with other constants or
with one of their ideas taken away: they tell whether the choices in the source are right on this
card. The record has the form that the notebooks read, and is saved after each step.
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from yaie.bench import cases, ceilings, kernels
from yaie.bench.cases import Case, own_cases
from yaie.bench.cases_attention import decode, prefill
from yaie.bench.files import output_path, save
from yaie.bench.machine import head
from yaie.bench.protocol import Clock, InARow, clock_for
from yaie.build import jit
from yaie.build.nvcc import CSRC, build_for
from yaie.course import viz
from yaie.course.lessons.ladders_attention import eight_bits, naive, selected
from yaie.course.lessons.ladders_hopper import flash_hopper, gemv, hopper
from yaie.course.lessons.ops.cases import bench_cases, matrices, row_wise, sums
from yaie.course.lessons.ops.cases_metadata import BATCHES, CHUNK, SEARCHED, _loop, draft_extend
from yaie.course.lessons.ops.cases_prefix import shared_prefix
from yaie.course.lessons.ops.cases_triton import block_sizes, groups, strides
from yaie.course.lessons.ops.cuda import attention_paged, matrix
from yaie.course.lessons.ops.cuda.shared_prefix import cascade, shared_prefix_attention
from yaie.course.lessons.steps import BF16, F32, Step, ragged, wrapped
from yaie.course.lessons.variants import VARIANTS, prepares
from yaie.engine.device import choose_device
from yaie.ops.cuda import flash, paged

# ------------------------------------------------------------------------------------- ladders


def elementwise(on_gpu: bool) -> Iterator[Step]:
    """add_relu and the norms: the back end, torch.compile, and the launchers' variants."""
    rows, columns = (16384, 4096) if on_gpu else (61, 136)
    chosen = (*sums(rows, columns, BF16), *cases.row_wise(rows, columns, BF16))
    for case in chosen:
        name = case.operator
        if name in ("add_relu", "rms_norm", "add_rms_norm"):
            kept = replace(case, rungs={"cuda": case.ours("cuda")}, variants=prepares(name))
            yield Step(kept, ("operators", name), rounds=8)


def product(on_gpu: bool) -> Iterator[Step]:
    """Every rung of the matrix product, beside cuBLAS."""
    size = 4096 if on_gpu else 24
    for dtype, rungs in ((BF16, [*matrix.RUNGS]), (F32, ["naive", "shared_tile", "register_tile"])):
        case = replace(
            matrices(size, size, dtype)[1], dtype=dtype,
            rungs={name: wrapped(matrix.RUNGS[name]) for name in rungs},
            variants=prepares("matmul") if dtype == BF16 else {},
            peers={"cuBLAS": wrapped(torch.mm)},
        )  # fmt: skip
        against = {"of_library": ("cuBLAS",)}
        name = str(dtype).removeprefix("torch.")
        yield Step(case, ("products", name), dtype, None, against, rounds=8)


def attention(on_gpu: bool) -> Iterator[Step]:
    """The rungs of flash attention and Triton's kernel, beside FlashAttention and cuDNN."""
    rungs = ragged(flash.RUNGS)
    for head_dim in (128, 64):
        for causal in (False, True):
            sizes = (4, 32, 4096) if on_gpu else (2, 2, 33)
            case = prefill(*sizes, head_dim, causal, BF16)
            triton = {"Triton": case.ours("triton")} if on_gpu else {}
            case = replace(case, rungs=rungs | triton, variants=prepares("flash"))
            against = {"of_library": ("SDPA, FlashAttention-2",)}
            about = {"head_dim": head_dim, "causal": causal}
            yield Step(case, ("problems", case.shape), BF16, about, against)


DECODE = {
    "B64 ctx4096": [4096] * 64,
    "B16 ctx8192": [8192] * 16,
    "B128 ctx1024": [1024] * 128,
    "B1 ctx32768": [32768],
    "B32 skewed": [65536] + [512] * 31,
    "B256 ctx512, 32 KV heads": [512] * 256,
}
PREFIXES = {  # sequences, shared tokens, own tokens
    "B64 shared 8192 own 256": (64, 8192, 256),
    "B64 shared 0 own 4096": (64, 0, 4096),
    "B16 shared 2048 own 256": (16, 2048, 256),
    "B8 shared 256 own 256": (8, 256, 256),
    "B256 shared 1024 own 128": (256, 1024, 128),
}


def paged_decode(on_gpu: bool) -> Iterator[Step]:
    """The rungs of paged attention, and a shared prefix, beside FlashInfer."""
    against = {"of_flashinfer": ("FlashInfer", "FlashInfer, tensor cores")}
    heads = (32, 8, 128, 16, BF16) if on_gpu else (4, 2, 64, 16, BF16)
    for name, contexts in (DECODE if on_gpu else {"B2 skewed": [40, 7]}).items():
        kv_heads = 32 if "32 KV heads" in name else heads[1]
        case = decode(len(contexts), max(contexts), heads[0], kv_heads, *heads[2:], contexts)
        rungs = {rung: wrapped(function) for rung, function in attention_paged.RUNGS.items()}
        rungs |= {"triton": case.ours("triton")} if on_gpu else {}
        varied = prepares("paged") if name in ("B64 ctx4096", "B1 ctx32768", "B2 skewed") else {}
        yield Step(replace(case, rungs=rungs, variants=varied), ("decode", name), against=against)
    for name, sizes in (PREFIXES if on_gpu else {"B3 shared 32 own 16": (3, 32, 16)}).items():
        case = shared_prefix(*sizes, *heads)
        rungs = {"paged_attention": _read_for_every_sequence, "cascade": wrapped(cascade)}
        rungs["shared_prefix_attention"] = wrapped(shared_prefix_attention)
        peers = {who: call for who, call in case.peers.items() if who != "paged_attention"}
        yield Step(replace(case, rungs=rungs, peers=peers), ("prefixes", name))


def _read_for_every_sequence(q, key_pool, value_pool, tables, lengths, shared_len, scale):
    starts = torch.arange(len(q) + 1, dtype=torch.int32, device=q.device)
    return lambda: paged.paged_attention(q, key_pool, value_pool, tables, lengths, starts, scale)


def metadata(on_gpu: bool) -> Iterator[Step]:
    """What a caller waits for the metadata of draft-extend: calls from Python in a row, and a
    launch among 50 in a graph."""
    for batch in BATCHES if on_gpu else (5,):
        case = draft_extend(batch)
        back_ends = ("reference", "triton", "cuda") if on_gpu else ("reference", "cuda")
        rungs = {name: case.ours(name) for name in back_ends}
        loop = {"Python, a loop over requests": _loop}
        case = replace(case, rungs=loop | rungs, peers={}, waits=tuple(loop))
        place = ("microseconds", str(batch))
        yield Step(case, place, about=None, rounds=12, graphs=50, in_a_row=True)


def search(on_gpu: bool) -> Iterator[Step]:
    """Counting against bisection in the metadata of draft-extend: of a few tokens per request, and
    of chunks of prompts. Bisection is timed twice: the difference is the noise."""
    for times in (1, CHUNK):
        for batch in SEARCHED if on_gpu else (5,):
            case = draft_extend(batch, times)
            names = [f"cuda_{how}" for how in ("linear", "binary")]
            names += ["triton", "triton_linear", "triton_binary"] if on_gpu else []
            rungs = {name: case.ours(name) for name in names}
            rungs["cuda_binary, again"] = rungs["cuda_binary"]
            about = {"requests": batch, "tokens": case.num_bytes // 8 - batch}
            name = f"{about['tokens']} tokens of {batch} requests"
            case = replace(case, rungs=rungs, peers={})
            yield Step(case, ("search", name), about=about, rounds=12, graphs=50)


def blocks(on_gpu: bool) -> Iterator[Step]:
    """One Triton kernel with blocks of any size, and one that loads elements further apart."""
    for case in (*block_sizes(on_gpu), *strides(on_gpu)):
        place = "strides" if case.operator == "strided_sum" else "blocks"
        yield Step(case, (place, case.shape), case.dtype, graphs=20)


def orders(on_gpu: bool) -> Iterator[Step]:
    """Triton's product with its tiles in groups of 1 to 64 rows."""
    for case in groups(on_gpu):
        yield Step(case, ("groups", case.shape), case.dtype, about=None, rounds=8)


def configurations(on_gpu: bool) -> Iterator[Step]:
    """Triton's large kernels; each configuration is printed as it is timed."""
    if not on_gpu:
        return
    kv = (32, 8, 128, 16, BF16)
    norms = ("softmax", "rms_norm", "add_rms_norm")
    rows = (*row_wise(16384, 4096, BF16), *cases.row_wise(16384, 4096, BF16))
    chosen = [case for case in rows if case.operator in norms]
    chosen.append(replace(matrices(4096, 4096, BF16)[1], peers={"cuBLAS": wrapped(torch.mm)}))
    shapes = ((64, 4096), (32, 4096), (16, 8192), (128, 1024), (1, 32768))
    chosen += [decode(*shape, *kv) for shape in shapes]
    chosen += [prefill(4, 32, 4096, dim, c, BF16) for dim in (128, 64) for c in (False, True)]
    for case in chosen:
        case = replace(case, rungs={"triton": case.ours("triton")}, compiled=False)
        yield Step(case, ("problems", f"{case.operator} {case.shape}"))


LADDERS: dict[str, Callable[[bool], Iterator[Step]]] = {
    "elementwise": elementwise,
    "matmul": product,
    "flash": attention,
    "paged": paged_decode,
    "naive": naive,
    "selected": selected,
    "fp8": eight_bits,
    "metadata": metadata,
    "search": search,
    "blocks": blocks,
    "groups": orders,
    "triton": configurations,
    "hopper": hopper,
    "flash_hopper": flash_hopper,
    "gemv": gemv,
}


# --------------------------------------------------------------------------------------- a run


def command(
    ladder: str | None, only: str | None, dtype: str, device: str,
    output: str | Path | None, quick: bool, skip: str | None, case: str | None = None,
) -> list:  # fmt: skip
    """`yaie bench kernels`, with a ladder or without; without one, a plot is saved beside `output`.
    Returns what is wrong with ours."""
    if ladder is not None and case is not None:
        raise ValueError(f"a ladder has cases of its own: no --case {case}")
    if ladder is not None:
        return run(ladder, only, device, output, skip)["faults"]
    own = None if case is None else own_cases(case)
    record = kernels.run(only, dtype, device, output, quick, more=bench_cases, own=own)
    results = record["results"]
    if output is not None and any(row["ms"] is not None for row in results):
        viz.draw_bench(record).savefig(Path(output).with_suffix(".png"))
    return [row for row in results if row["ours"] and row["failure"]]


def run(
    name: str,
    only: str | None = None,
    device: str = "auto",
    output: str | Path | None = None,
    skip: str | None = None,
    rounds: int | None = None,
    say: Callable[[str], None] = kernels.say_line,
    clock: Clock | None = None,
) -> dict:
    """Climb a ladder, and return what is saved; `faults` in it are ours that are wrong.

    Args:
        name: of the ladder.
        only, skip: words, separated by commas; a step is measured if its name has one of `only`,
            and a way is left out if its name has one of `skip`.
        device, output, say, clock: as for `yaie bench kernels`.
        rounds: in place of the ladder's own.

    Raises:
        ValueError: there is no such ladder, step or device, or `output` is no JSON file.
    """
    if name not in LADDERS:
        raise ValueError(f"ladder must be one of {', '.join(LADDERS)}, got {name!r}")
    kept, on = None if output is None else output_path(output), choose_device(device)
    steps = [step for step in LADDERS[name](on.type == "cuda") if named(step.place[1], only)]
    if not steps:
        raise ValueError(f"no step of the ladder {name} here has one of the words {only!r}")
    record, begun = head(on), time.monotonic()
    best = ceilings.measure(on, BF16 if on.type == "cuda" else F32, clock or clock_for(on), False)
    record |= {"dtype": "bfloat16", "ladder": name, "copy_gb_s": best.copy, "faults": []}
    say(f"a copy: {best.copy:.0f} GB/s")
    build(on, name, skip)
    say(f"[{time.monotonic() - begun:4.0f} s] kernels compiled")
    with telling(say) if name == "triton" else nullcontext():
        for step in steps:
            case = left(step.case, skip)
            timer = clock or (InARow(on) if step.in_a_row else clock_for(on))
            rows = kernels.measure_case(
                case, step.dtype, on, best, timer, rounds or step.rounds, step.graphs,
                seed=time.time_ns() % 2**31,
            )  # fmt: skip
            formed = {row.who: form(row, rows, step, best) for row in rows}
            about = step.about
            place = record.setdefault(step.place[0], {})
            place[step.place[1]] = (
                formed if about is None else {"bytes": case.num_bytes} | about | {"rows": formed}
            )
            record["faults"] += [
                f"{step.place[1]}: {row.who} {row.failure or 'did not write all of its output'}"
                for row in rows
                if row.ours and (row.failure or not row.poisoned)
            ]
            record["seconds"] = round(time.monotonic() - begun, 1)
            if kept is not None:
                save(record, kept)
            say(f"[{record['seconds']:4.0f} s] {step.place[1]}")
            for line in kernels.table([asdict(row) for row in rows])[2:]:
                say(line)
    for fault in record["faults"]:
        say(f"FAULT: {fault}")
    return record


def form(row: kernels.Row, rows: list[kernels.Row], step: Step, best: ceilings.Ceilings) -> dict:
    """A row as the notebooks read it."""
    if row.ms is None:
        return {"not_timed": row.failure}
    if step.in_a_row:
        graph = {} if row.graph_ms is None else {"kernel": 1e3 * row.graph_ms}
        return {"call": 1e3 * row.ms} | graph
    formed: dict[str, Any] = {"ms": row.ms, "fastest": row.fastest, "slowest": row.slowest}
    formed |= {"graph_ms": row.graph_ms, "gb_s": row.gb_s, "tflop_s": row.tflop_s}
    formed["of_copy"] = row.gb_s / best.copy
    for ratio, names in step.against.items():
        times = [other.ms for other in rows if other.who in names and other.ms is not None]
        formed[ratio] = min(times) / row.ms if times else None
    formed |= {"error": row.error, "row_error": row.row_error, "was_nan": row.poisoned}
    return {key: value for key, value in formed.items() if value is not None}


def build(device: torch.device, name: str, skip: str | None) -> None:
    """Compile the variants and rungs of a ladder side by side, each by a process of nvcc's own."""
    if device.type != "cuda":
        return
    found = modules(name, skip)
    missing = [module for module in found if module.how(device).words == "compiled at first use"]
    capability = torch.cuda.get_device_capability(device)
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda x: _attempt(x, capability), missing))


def modules(name: str, skip: str | None) -> list[jit.Module]:
    """Of the variants and rungs of a ladder, but for those that are skipped: see `run`."""
    operators = ("add_relu", "rms_norm") if name == "elementwise" else (name, f"{name}_64")
    found = {
        who: module
        for operator in operators
        if operator in VARIANTS
        for who, module in VARIANTS[operator].modules().items()
    }
    folders = {"naive": "flash", "selected": "paged", "fp8": "paged", "hopper": "matmul/hopper",
               "flash_hopper": "flash/hopper"}  # fmt: skip
    folder = folders.get(name, name)
    if folder in ("matmul", "matmul/hopper", "flash", "flash/hopper", "paged"):
        found |= {path.stem: jit.load(path) for path in sorted((CSRC / folder).glob("*.cu"))}
    return [module for who, module in found.items() if skip is None or not named(who, skip)]


def _attempt(module: jit.Module, capability: tuple[int, int]) -> None:
    with suppress(jit.CompileError):  # its row will say so
        build_for(module.source, module.path, capability)


def left(case: Case, skip: str | None) -> Case:
    """A case without the ways that have one of these words in their names."""
    if skip is None:
        return case
    parts = {
        part: {name: x for name, x in getattr(case, part).items() if not named(name, skip)}
        for part in ("rungs", "variants", "peers")
    }
    return replace(case, **parts)


def named(name: str, words: str | None) -> bool:
    """Whether a name has one of these words, separated by commas; None: it has."""
    return words is None or any(word.strip() in name for word in words.split(","))


@contextmanager
def telling(say: Callable[[str], None]) -> Iterator[None]:
    """Tell the time of each configuration that Triton's kernels are tried with."""
    from yaie.ops.triton import runtime

    time_one = runtime._time

    def told(launch: Callable, config: dict) -> float:
        ms = time_one(launch, config)
        say(f"    {ms:9.4f} ms  {config}")
        return ms

    with mock.patch.object(runtime, "_time", told):
        yield
