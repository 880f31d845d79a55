"""How near paged attention comes to a copy, and to FlashInfer; all rungs, and the shared prefix.

    python tests/gpu/ratios_paged.py --out notebooks/data/18_paged_h200.json

Each call is checked against float64 on fresh inputs, ours into outputs that hold NaN, and timed in
one set of alternating rounds (`yaie.bench.protocol`) with the others of its shape: as it is, and as
a CUDA graph (graph_ms), where the GPU never waits for Python between two launches. The status is 1
if a call of ours is wrong, or has no time.
Variants of the last rung tell whether the choices in its source are right on this card.
"""

from __future__ import annotations

import argparse
import datetime
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from report import Report, chosen, into_nan
from report import arguments as common

from yaie.bench.cases import Draw
from yaie.bench.protocol import (
    Call,
    Clock,
    clock_for,
    compare,
    relative_error,
    row_error,
    why_wrong,
)
from yaie.build import jit
from yaie.build.nvcc import CSRC
from yaie.ops import registry
from yaie.ops.cuda import paged

WORKSPACE = 512 << 20  # bytes for FlashInfer's partial results
Variant = tuple[jit.Module, dict[str, int]]  # and its constants
FLASHINFER = {"FlashInfer": False, "FlashInfer, tensor cores": True}


@dataclass(frozen=True)
class Shape:
    """A decode step: the contexts, how many of their first tokens are shared, and the heads."""

    contexts: Sequence[int]
    shared: int = 0
    heads: int = 32
    kv_heads: int = 8
    head_dim: int = 128
    block_size: int = 16


DECODE = {
    "B64 ctx4096": Shape([4096] * 64),
    "B16 ctx8192": Shape([8192] * 16),
    "B128 ctx1024": Shape([1024] * 128),
    "B1 ctx32768": Shape([32768]),
    "B32 skewed": Shape([65536] + [512] * 31),
    "B256 ctx512, 32 KV heads": Shape([512] * 256, kv_heads=32),
}
PREFIXES = {
    "B64 shared 8192 own 256": Shape([8448] * 64, 8192),
    "B64 shared 0 own 4096": Shape([4096] * 64, 0),
    "B16 shared 2048 own 256": Shape([2304] * 16, 2048),
    "B8 shared 256 own 256": Shape([512] * 8, 256),
    "B256 shared 1024 own 128": Shape([1152] * 256, 1024),
}
VARIED = ("B64 ctx4096", "B1 ctx32768")
CONSTANTS = {"TILE": 32, "STAGES": 3}
VARIANTS = {
    "2 stages": {"STAGES": 2},
    "tiles of 16 keys": {"TILE": 16},
    "merge launched when the shares are done": {
        "    let_next_begin();\n    int count": "    int count"
    },
}


OURS = {*paged.RUNGS, "paged_attention", "shared_prefix_attention", "cascade"}
FAILURES = (ImportError, OSError, RuntimeError, NotImplementedError, ValueError)


def main() -> int:
    """Measure, and print what was measured; the exit status."""
    parser = common(__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--no-variants", action="store_true")
    parser.add_argument("--no-triton", action="store_true")
    parser.add_argument("--folder", type=Path, help="for the variants; a temporary one if none")
    options = parser.parse_args()
    report = Report(options.out, torch.device(options.device), options.seconds, dtype="bfloat16")
    measure(options, report)
    return report.end()


def measure(options: argparse.Namespace, report: Report) -> None:
    """Decode steps and shared prefixes; GB/s, and fractions of a copy and of FlashInfer. What is
    known is written after each shape."""
    device = torch.device(options.device)
    clock = clock_for(device)
    copy_gb_s = copy_rate(device, clock, options.rounds)
    report.content["copy_gb_s"] = copy_gb_s
    report.say(f"a copy: {copy_gb_s:.0f} GB/s")
    with tempfile.TemporaryDirectory() as folder:
        modules = {} if options.no_variants else variants(options.folder or Path(folder))
        for kind, shapes in (("decode", DECODE), ("prefixes", PREFIXES)):
            found = report.content.setdefault(kind, {})
            for name, shape in shapes.items():
                if not chosen(name, options.only) or not report.has_time(name):
                    continue
                operands = draw(shape, device)
                if kind == "prefixes":
                    calls = prefix_calls(shape, operands)
                else:
                    varied = modules if name in VARIED else {}
                    calls = decode_calls(shape, operands, varied, not options.no_triton)
                rows = timed(shape, operands, calls, copy_gb_s, clock, options.rounds)
                found[name] = {"bytes": num_bytes(shape), "rows": rows}
                report.save()
                tell(report, name, rows)


def tell(report: Report, name: str, rows: dict[str, dict]) -> None:
    """Print the rows of a shape; one of ours that is wrong, or has no time, is a fault."""
    report.say(name)
    for who, row in rows.items():
        if "ms" in row:
            times = f"{row['ms'] * 1e3:.1f} us, as a graph {row.get('graph_ms', 0) * 1e3:.1f}"
            ratio = f", {row['of_flashinfer']:.3f} of FlashInfer" if "of_flashinfer" in row else ""
            print(f"  {who}: {times}, {row['of_copy']:.3f} of a copy{ratio}", flush=True)
        else:
            print(f"  {who}: {row['not_timed'][:200]}", flush=True)
        if who in OURS and not row.get("was_nan"):
            report.fault(f"{name}: {who} {row.get('not_timed', 'did not write it all')}")


def copy_rate(device: torch.device, clock: Clock, rounds: int) -> float:
    """GB/s of a large copy, read and written."""
    source = torch.ones(1 << (29 if device.type == "cuda" else 10), device=device)
    target = torch.empty_like(source)
    timing = compare({"copy": lambda: target.copy_(source)}, clock, rounds)["copy"]
    return 2 * source.nbytes / timing.median / 1e6


# ------------------------------------------------------------------------------------- problems


def draw(shape: Shape, device: torch.device) -> tuple:
    """The operands of paged attention, blocks in any order, and shared ones in every table."""
    new = Draw.on(device, torch.bfloat16, seed=datetime.datetime.now().microsecond)
    shared = shape.shared // shape.block_size
    counts = [-(-context // shape.block_size) - shared for context in shape.contexts]
    total = shared + sum(counts)
    order = new.permutation(total).int()
    tables = torch.zeros(len(counts), shared + max(counts), dtype=torch.int32, device=device)
    tables[:, :shared] = order[:shared]
    for table, own in zip(tables, order[shared:].split(counts), strict=True):
        table[shared : shared + len(own)] = own
    size = total, shape.block_size, shape.kv_heads, shape.head_dim
    return (
        new.normal(len(counts), shape.heads, shape.head_dim),
        *(new.normal(*size) for _ in "kv"),
        tables,
        torch.tensor(shape.contexts, dtype=torch.int32, device=device),
        torch.arange(len(counts) + 1, dtype=torch.int32, device=device),
        None,
    )


def oracle(shape: Shape, operands: tuple) -> torch.Tensor:
    """The output in float64."""
    q, key_pool, value_pool, tables = operands[:4]
    group, out = shape.heads // shape.kv_heads, []
    for row, table, context in zip(q.double(), tables.long(), shape.contexts, strict=True):
        blocks = table[: -(-context // shape.block_size)]
        keys, values = (
            pool[blocks].flatten(0, 1)[:context].transpose(0, 1).double()
            for pool in (key_pool, value_pool)
        )
        scores = row.unflatten(0, (-1, group)) @ keys.transpose(1, 2) / shape.head_dim**0.5
        out.append((scores.softmax(-1) @ values).flatten(0, 1))
    return torch.stack(out)


def num_bytes(shape: Shape) -> int:
    """Keys and values, each once: what has to be read."""
    tokens = shape.shared + sum(context - shape.shared for context in shape.contexts)
    return 2 * tokens * shape.kv_heads * shape.head_dim * 2


# ---------------------------------------------------------------------------------------- calls


def decode_calls(
    shape: Shape, operands: tuple, modules: dict[str, Variant], triton: bool
) -> dict[str, Call | str]:
    """Every rung, the Triton kernel, FlashInfer, and variants of the last rung."""
    calls: dict[str, Call | str] = {
        name: lambda f=rung: f(*operands) for name, rung in paged.RUNGS.items()
    }
    if triton:
        kernel = registry.resolve("paged_attention", "triton")
        calls["triton"] = lambda: kernel(*operands)
    calls |= flashinfer(shape, operands)
    return calls | {f"mma, {name}": call(module, operands) for name, module in modules.items()}


def prefix_calls(shape: Shape, operands: tuple) -> dict[str, Call | str]:
    """Reading the prefix for every sequence, once for all, and what the operator chooses."""
    prefix = *operands[:5], shape.shared, None
    return {
        "paged_attention": lambda: paged.paged_attention(*operands),
        "shared_prefix_attention": lambda: paged.shared_prefix_attention(*prefix),
        "cascade": lambda: paged.cascade(*prefix),
        "FlashInfer, cascade": flashinfer_cascade(shape, operands),
    }


def variants(folder: Path) -> dict[str, Variant]:
    """The last rung in bfloat16 with other constants, and these."""
    kernel = (CSRC / "paged/mma.cu").read_text(encoding="utf-8")
    start, end = (kernel.index(f'extern "C" cudaError_t paged_mma_{t}') for t in ("f16", "bf16"))
    kernel = kernel[:start] + kernel[end:]
    found = {}
    for number, (name, changes) in enumerate(VARIANTS.items()):
        text, constants = kernel, dict(CONSTANTS)
        for what, new in changes.items():
            old = what
            if what in CONSTANTS:
                old, constants[what] = f"{what} = {CONSTANTS[what]};", new
                new = f"{what} = {new};"
            if old not in text:
                raise ValueError(f"mma.cu no longer has {old!r}")
            text = text.replace(old, str(new))
        home = folder / str(number)
        home.mkdir(parents=True, exist_ok=True)
        (home / "mma.cu").write_text(text, encoding="utf-8")
        found[name] = jit.load(home / "mma.cu"), constants
    return found


def call(variant: Variant, operands: tuple) -> Call:
    """A variant with as many thread blocks as run together."""
    module, constants = variant
    q, key_pool = operands[:2]
    group, head_dim = q.shape[1] // key_pool.shape[2], q.shape[2]
    workers = 4
    if q.is_cuda:
        properties = torch.cuda.get_device_properties(q.device)
        each = constants["STAGES"] * constants["TILE"] * 4 * head_dim + 1024
        together = properties.shared_memory_per_multiprocessor // each
        workers = together * properties.multi_processor_count
    size = workers * (4 + 2 * group * (head_dim + 1))

    def run() -> tuple:
        state, given = paged.arguments(*operands)
        workspace = q.new_empty(size, dtype=torch.float32)
        module.paged_mma_bf16(*given, workspace, 0, workers)
        return state

    return run


def flashinfer(shape: Shape, operands: tuple) -> dict[str, Call | str]:
    """Its two kernels; why not, where they cannot be had."""
    try:
        from flashinfer import BatchDecodeWithPagedKVCacheWrapper
    except FAILURES as error:
        return dict.fromkeys(FLASHINFER, str(error))
    q, key_pool, value_pool = operands[:3]
    starts, indices, last = pages(shape, operands, 0)
    calls = {}
    for name, tensor_cores in FLASHINFER.items():
        workspace = torch.zeros(WORKSPACE, dtype=torch.uint8, device=q.device)
        wrapper = BatchDecodeWithPagedKVCacheWrapper(
            workspace, "NHD", use_tensor_cores=tensor_cores
        )
        try:  # compiles, unless it has been
            wrapper.plan(
                starts, indices, last, shape.heads, shape.kv_heads, shape.head_dim,
                shape.block_size, q_data_type=q.dtype, kv_data_type=q.dtype,
            )  # fmt: skip
        except FAILURES as error:
            calls[name] = str(error) or type(error).__name__
            continue
        calls[name] = lambda w=wrapper: w.run(q, (key_pool, value_pool))
    return calls


def flashinfer_cascade(shape: Shape, operands: tuple) -> Call | str:
    """Its attention in two levels; why not, where that cannot be had."""
    if not shape.shared:
        return "nothing is shared"
    try:
        from flashinfer import MultiLevelCascadeAttentionWrapper
    except FAILURES as error:
        return str(error)
    q, key_pool, value_pool, tables = operands[:4]
    blocks = shape.shared // shape.block_size
    own = pages(shape, operands, blocks)
    ints = {"dtype": torch.int32, "device": q.device}
    levels = zip(
        (torch.tensor([0, len(q)], **ints), torch.tensor([0, blocks], **ints), tables[0, :blocks],
         torch.tensor([shape.block_size], **ints)),
        (torch.arange(len(q) + 1, **ints), *own),
        strict=True,
    )  # fmt: skip
    workspace = torch.zeros(WORKSPACE, dtype=torch.uint8, device=q.device)
    wrapper = MultiLevelCascadeAttentionWrapper(2, workspace, "NHD")
    try:  # compiles, unless it has been
        wrapper.plan(
            *(list(level) for level in levels), shape.heads, shape.kv_heads, shape.head_dim,
            shape.block_size, q_data_type=q.dtype,
        )  # fmt: skip
    except FAILURES as error:
        return str(error) or type(error).__name__
    cache = torch.stack((key_pool, value_pool), dim=1)
    return lambda: wrapper.run(q, cache)


def pages(shape: Shape, operands: tuple, skip: int) -> tuple[torch.Tensor, ...]:
    """Blocks behind the first `skip` as FlashInfer takes them: starts, all, lengths of the last."""
    tables, lengths = operands[3:5]
    counts = [-(-context // shape.block_size) for context in shape.contexts]
    starts = torch.tensor([0, *(count - skip for count in counts)]).cumsum(0)
    rows = [table[skip:count] for table, count in zip(tables, counts, strict=True)]
    last = (lengths - 1) % shape.block_size + 1
    return starts.int().to(tables.device), torch.cat(rows), last


# --------------------------------------------------------------------------------------- timing


def timed(
    shape: Shape,
    operands: tuple,
    calls: dict[str, Call | str],
    copy_gb_s: float,
    clock: Clock,
    rounds: int,
) -> dict[str, dict[str, float | str]]:
    """A row for each call; one that cannot run, or is wrong, has words in place of figures."""
    wanted = oracle(shape, operands)
    rows: dict[str, dict[str, float | str]] = {}
    checked: dict[str, dict[str, float | bool]] = {}
    for name, each in calls.items():
        try:
            checked[name] = check(each, wanted, operands[0].dtype)
        except FAILURES as reason:
            rows[name] = {"not_timed": str(reason)}
    timings = compare({name: calls[name] for name in checked}, clock, rounds)
    replays = {name: graphed(calls[name], operands[0]) for name in checked}
    graphs = compare({name: replay for name, replay in replays.items() if replay}, clock, rounds)
    best = min((t.median for name, t in timings.items() if name in FLASHINFER), default=None)
    for name, timing in timings.items():
        gb_s = num_bytes(shape) / timing.median / 1e6
        rows[name] = {
            "ms": timing.median,
            "fastest": timing.fastest,
            "slowest": timing.slowest,
            **({"graph_ms": graphs[name].median} if name in graphs else {}),
            "gb_s": gb_s,
            "of_copy": gb_s / copy_gb_s,
            **({"of_flashinfer": best / timing.median} if best else {}),
            **checked[name],
        }
    return {name: rows[name] for name in calls}


def graphed(each: Call, like: torch.Tensor) -> Call | None:
    """The call as a CUDA graph; None if it cannot be captured. On a CPU as it is."""
    if not like.is_cuda:
        return each
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            each()
    except RuntimeError:
        return None
    return graph.replay


def check(each: Call | str, wanted: torch.Tensor, dtype: torch.dtype) -> dict[str, float | bool]:
    """The relative error of a call, and whether its results are known to have been NaN before.

    Raises:
        ValueError: it is wrong.
    """
    if isinstance(each, str):
        raise ValueError(each)
    each()  # compiles
    got, was_nan = into_nan(each)
    found = relative_error(got[:1], wanted)
    if reason := why_wrong(found, row_error(got[:1], wanted), dtype):
        raise ValueError(reason)
    return {"error": found, "was_nan": was_nan}


if __name__ == "__main__":
    sys.exit(main())
