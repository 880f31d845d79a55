"""How near each rung of the matrix product comes to cuBLAS, and what the last one owes to what.

    python tests/gpu/ratios_matmul.py --out notebooks/data/15_matmul_h200.json

Prints JSON. Every kernel is checked against float64, into memory that held NaN, and timed in one
set of alternating rounds (`yaie.bench.protocol`) with torch.mm. The last rung is timed in variants
too: with other tiles, and with one of its ideas taken away.
"""

from __future__ import annotations

import argparse
import datetime
import json
import tempfile
import time
from pathlib import Path

import torch

from yaie.bench.cases import Draw
from yaie.bench.machine import describe, versions
from yaie.bench.protocol import (
    Call,
    clock_for,
    compare,
    poison,
    relative_error,
    row_error,
    was_poisoned,
    why_wrong,
)
from yaie.build import jit
from yaie.build.nvcc import CSRC
from yaie.course.lessons.ops.cuda.matrix import RUNGS

LIBRARY = "cuBLAS"
RUNGS_OF = {torch.bfloat16: list(RUNGS), torch.float32: ["naive", "shared_tile", "register_tile"]}

TILES = "TILE_M = 256, TILE_N = 128, TILE_K = 32;"
STAGES = "STAGES = 3;"
MIN_BLOCKS = "MIN_BLOCKS = 1;"


def tiles(m: int, n: int, k: int, stages: int, blocks: int = 1) -> dict[str, str]:
    """Replacements that give the last rung other tiles."""
    return {
        TILES: f"TILE_M = {m}, TILE_N = {n}, TILE_K = {k};",
        STAGES: f"STAGES = {stages};",
        MIN_BLOCKS: f"MIN_BLOCKS = {blocks};",
    }


VARIANTS = {
    "128 × 256 × 32, 3 stages": tiles(128, 256, 32, 3),
    "256 × 128 × 64, 3 stages": tiles(256, 128, 64, 3),
    "256 × 128 × 64, 4 stages": tiles(256, 128, 64, 4),
    "128 × 128 × 32, 3 stages, 2 thread blocks": tiles(128, 128, 32, 3, 2),
    "128 × 128 × 64, 3 stages, 2 thread blocks": tiles(128, 128, 64, 3, 2),
    "4 stages": {STAGES: "STAGES = 4;"},
    "2 stages": {STAGES: "STAGES = 2;"},
    "no swizzle": {"(piece ^ (row / ROWS & MASK))": "piece"},
    "groups of 8 rows of tiles": {"GROUP = 16;": "GROUP = 8;"},
    "tiles in the order of rows": {"GROUP = 16;": "GROUP = 1;"},
}


def variant(folder: Path, number: int, changes: dict[str, str]) -> jit.Module:
    """The last rung in bfloat16 alone, after replacements, each of which must apply somewhere."""
    kernel = (CSRC / "matmul/mma.cu").read_text(encoding="utf-8")
    start, end = (kernel.index(f'extern "C" cudaError_t matmul_mma_{t}') for t in ("f16", "bf16"))
    header = (CSRC / "mma.cuh").read_text(encoding="utf-8")
    texts = {"mma.cu": kernel[:start] + kernel[end:], "mma.cuh": header}
    for old, new in changes.items():
        if not any(old in text for text in texts.values()):
            raise ValueError(f"the kernel no longer has {old!r}")
        texts = {name: text.replace(old, new) for name, text in texts.items()}
    home = folder / str(number)
    home.mkdir()
    for name, text in texts.items():
        (home / name).write_text(text, encoding="utf-8")
    return jit.load(home / "mma.cu")


def main() -> None:
    """Measure, and print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--size", type=int, default=4096, help="of the square matrices")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--no-variants", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    started = time.perf_counter()
    result = measure(options)
    result["seconds"] = round(time.perf_counter() - started, 1)
    text = json.dumps(result, indent=1, ensure_ascii=False)
    print(text)
    if options.out:
        options.out.write_text(text + "\n", encoding="utf-8")


def measure(options: argparse.Namespace) -> dict[str, object]:
    """All rungs in both dtypes; TFLOP/s, and fractions of the library in the same rounds."""
    device, size = torch.device(options.device), options.size
    products = {}
    for dtype, rungs in RUNGS_OF.items():
        draw = Draw.on(device, dtype, seed=datetime.datetime.now().microsecond)
        a, b = draw.normal(size, size), draw.normal(size, size)
        calls: dict[str, Call] = {LIBRARY: lambda a=a, b=b: torch.mm(a, b)}
        calls |= {name: lambda f=RUNGS[name], a=a, b=b: f(a, b) for name in rungs}
        with tempfile.TemporaryDirectory() as folder:
            if dtype == torch.bfloat16 and not options.no_variants:
                calls |= variants(Path(folder), a, b)
            products[str(dtype).removeprefix("torch.")] = timed(calls, a, b, options.rounds)
    return {
        "size": size,
        "flops": 2 * size**3,
        "date": datetime.date.today().isoformat(),
        "machine": describe(device),
        "versions": versions(),
        "products": products,
    }


def variants(folder: Path, a: torch.Tensor, b: torch.Tensor) -> dict[str, Call]:
    """A call for each variant of the last rung."""

    def call(module: jit.Module) -> Call:
        def run() -> torch.Tensor:
            c = a.new_empty(a.shape[0], b.shape[1])
            module.matmul_mma_bf16(a, b, c, *c.shape, a.shape[1])
            return c

        return run

    return {
        f"mma, {name}": call(variant(folder, number, changes))
        for number, (name, changes) in enumerate(VARIANTS.items())
    }


def timed(
    calls: dict[str, Call], a: torch.Tensor, b: torch.Tensor, rounds: int
) -> dict[str, dict[str, float | str]]:
    """A row for each call. One that cannot run here, or is wrong, has words in place of figures."""
    wanted = a.double() @ b.double()
    rows: dict[str, dict[str, float | str]] = {}
    errors = {}
    for name, call in calls.items():
        try:
            errors[name] = error(call, wanted.to(a.dtype), wanted)
        except (jit.CompileError, jit.KernelError, NotImplementedError, ValueError) as reason:
            rows[name] = {"not_timed": str(reason)}
    timings = compare({name: calls[name] for name in errors}, clock_for(a.device), rounds)
    flops = 2 * a.shape[0] * a.shape[1] * b.shape[1]
    for name, timing in timings.items():
        rows[name] = {
            "ms": timing.median,
            "fastest": timing.fastest,
            "slowest": timing.slowest,
            "tflop_s": flops / timing.median / 1e9,
            "of_library": timings[LIBRARY].median / timing.median,
            "error": errors[name],
        }
    return {name: rows[name] for name in calls}


def error(call: Call, like: torch.Tensor, wanted: torch.Tensor) -> float:
    """The relative error of a call into memory of NaN; raises ValueError if it is wrong."""
    call()  # compiles, and takes what memory it needs beside the result
    addresses = poison([like], like.device)
    got = call()
    if not was_poisoned([got], addresses) and like.is_cuda:
        raise ValueError("the result did not come to where NaN was")
    found = relative_error(got, wanted)
    if reason := why_wrong(found, row_error(got, wanted), like.dtype):
        raise ValueError(reason)
    return found


if __name__ == "__main__":
    main()
