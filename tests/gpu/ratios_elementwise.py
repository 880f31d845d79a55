"""How near the elementwise and norm kernels come to a copy, and to torch.compile.

    python tests/gpu/ratios_elementwise.py --out ratios.json

Prints JSON. Each kernel is checked against float64 on fresh inputs, into outputs that hold NaN,
and timed in one set of alternating rounds (`yaie.bench.protocol`) with a large copy, with
torch.compile of the reference, and with variants of itself: other numbers of pieces or threads,
and streaming loads and stores. They tell whether the choices in the source are right on this card.
"""

from __future__ import annotations

import argparse
import datetime
import json
from collections.abc import Callable
from pathlib import Path

import torch

from yaie.bench.cases import Draw
from yaie.bench.machine import describe, versions
from yaie.bench.protocol import Call, clock_for, compare, relative_error, row_error, why_wrong
from yaie.build import jit
from yaie.build.nvcc import CSRC
from yaie.course.lessons.ops import elementwise
from yaie.course.lessons.ops.reference import elementwise as plain_elementwise
from yaie.ops import norm
from yaie.ops.reference import norm as plain_norm

EPS = 1e-6
STREAMING = {
    "uint4 bits = *reinterpret_cast<const uint4*>(from);": (
        "uint4 bits = __ldcs(reinterpret_cast<const uint4*>(from));"
    ),
    "*reinterpret_cast<uint4*>(to) = reinterpret_cast<const uint4&>(vec);": (
        "__stcs(reinterpret_cast<uint4*>(to), reinterpret_cast<const uint4&>(vec));"
    ),
}
PIECES = "vecs <= 128 ? 1 : vecs <= 1024 ? 2 : 4"
LOOP = "    for (int v = 0, column = first; v < VECS && column < size; ++v, column += step)"
EARLY = {
    f"    float sum = 0.0f;\n{LOOP}": (
        f"    Vec<T> early[VECS];\n{LOOP}\n        early[v] = load16(weight + column);\n"
        f"    float sum = 0.0f;\n{LOOP}"
    ),
    "Vec<T> weights = load16(weight + column);": "const Vec<T>& weights = early[v];",
}
THREADS = "constexpr int THREADS = 256;"
VARIANTS = {
    "norm/rms_norm.cu": {
        **{f"{n} pieces a thread": {PIECES: str(n)} for n in (1, 2, 4)},
        "weights before the sum": EARLY,
        "streaming": STREAMING,
    },
    "elementwise/add_relu.cu": {
        **{f"{n} threads": {THREADS: f"constexpr int THREADS = {n};"} for n in (128, 512, 1024)},
        "streaming": STREAMING,
    },
}


def changed(file: str, changes: dict[str, str], name: str) -> jit.Module:
    """A file of `csrc/`, with its header in it, after replacements that must all apply."""
    header = (CSRC / "common.cuh").read_text().replace("#pragma once", "")
    source = (CSRC / file).read_text().replace('#include "common.cuh"', header)
    for old, new in changes.items():
        if old not in source:
            raise ValueError(f"{file} no longer has {old!r}")
        source = source.replace(old, new)
    return jit.load(source, name=f"{name.replace(' ', '_')}.cu")


def main() -> None:
    """Measure, and print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=16384)
    parser.add_argument("--columns", type=int, default=4096)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--no-variants", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    result = measure(options)
    text = json.dumps(result, indent=1)
    print(text)
    if options.out:
        options.out.write_text(text + "\n")


def measure(options: argparse.Namespace) -> dict[str, object]:
    """All operators; figures in GB/s, and as fractions of the copy in the same rounds."""
    device, dtype = torch.device(options.device), torch.bfloat16
    rows, columns = options.rows, options.columns
    draw = Draw.on(device, dtype, seed=datetime.datetime.now().microsecond)
    x, y = draw.normal(rows, columns), draw.normal(rows, columns)
    weight, count = draw.normal(columns), rows * columns
    shape = (rows, columns)
    wide = (x.double(), y.double(), weight.double())
    total = x + y
    cases: dict[str, tuple] = {
        "add_relu": (
            3 * count,
            plain_elementwise.add_relu(x, y).double(),
            lambda: elementwise.add_relu(x, y, backend="cuda"),
            (plain_elementwise.add_relu, x, y),
            ("elementwise/add_relu.cu", lambda m, out: m.add_relu_bf16(x, y, out, count)),
        ),
        "rms_norm": (
            2 * count + columns,
            plain_norm.rms_norm(wide[0], wide[2], EPS),
            lambda: norm.rms_norm(x, weight, EPS, backend="cuda"),
            (plain_norm.rms_norm, x, weight, EPS),
            ("norm/rms_norm.cu", lambda m, out: m.rms_norm_bf16(x, weight, out, *shape, EPS)),
        ),
        "add_rms_norm": (
            4 * count + columns,
            plain_norm.rms_norm(total.double(), wide[2], EPS),
            lambda: norm.add_rms_norm(x, y, weight, EPS, backend="cuda")[0],
            (plain_norm.add_rms_norm, x, y, weight, EPS),
            None,
        ),
    }
    clock, source = clock_for(device), x.repeat(8, 1)  # the ceiling is that of a large copy
    target = torch.empty_like(source)
    found: dict[str, object] = {}
    for name, (numbers, wanted, ours, (reference, *arguments), variants) in cases.items():
        compiled = torch.compile(reference, fullgraph=True)
        calls: dict[str, Call] = {
            "copy": lambda: target.copy_(source),
            "cuda": ours,
            "torch.compile": lambda f=compiled, a=arguments: f(*a),
        }
        if variants and not options.no_variants:
            calls |= variant_calls(*variants, x)
        errors = {who: error(call, wanted, name) for who, call in calls.items() if who != "copy"}
        timings = compare(calls, clock, options.rounds)
        moved = dict.fromkeys(calls, 2 * numbers) | {"copy": 2 * source.nbytes}
        gb_s = {who: moved[who] / timings[who].median / 1e6 for who in calls}
        found[name] = {
            "bytes": 2 * numbers,
            "rows": {
                who: {
                    "ms": timing.median,
                    "fastest": timing.fastest,
                    "slowest": timing.slowest,
                    "gb_s": gb_s[who],
                    "of_copy": gb_s[who] / gb_s["copy"],
                    "error": errors.get(who),
                }
                for who, timing in timings.items()
            },
        }
    return {
        "shape": list(shape),
        "dtype": "bfloat16",
        "date": datetime.date.today().isoformat(),
        "machine": describe(device),
        "versions": versions(),
        "operators": found,
    }


def variant_calls(
    file: str, launch: Callable[[jit.Module, torch.Tensor], None], x: torch.Tensor
) -> dict[str, Call]:
    """The kernel by its launcher alone, as it is and changed, each into an output of NaN."""

    def call(module: jit.Module, out: torch.Tensor) -> Call:
        def run() -> torch.Tensor:
            launch(module, out)
            return out

        return run

    changes = {"as it is": {}} | VARIANTS[file]
    return {
        f"launcher, {name}": call(changed(file, change, name), torch.full_like(x, torch.nan))
        for name, change in changes.items()
    }


def error(call: Call, wanted: torch.Tensor, name: str) -> float:
    """The relative error of a call's first result; raises ValueError if it is wrong."""
    got = call()
    got = got[0] if isinstance(got, tuple) else got
    found = relative_error(got, wanted)
    if reason := why_wrong(found, row_error(got, wanted), torch.bfloat16):
        raise ValueError(f"{name}: {reason}")
    return found


if __name__ == "__main__":
    main()
