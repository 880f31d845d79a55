"""How near each rung of flash attention comes to the libraries, and what the last one owes to what.

    python tests/gpu/ratios_flash.py --out notebooks/data/17_flash_h200.json

Every kernel is checked against float64, ours into memory that held NaN, and timed in one
set of alternating rounds (`yaie.bench.protocol`) with torch's FlashAttention-2, cuDNN and, where it
is installed, FlashInfer's FlashAttention-3. The last rung is timed in variants too: with other
tiles, and with one of its ideas taken away. The status is 1 if a kernel of ours is wrong, or has no
time.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import sys
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from report import Report, chosen, into_nan
from report import arguments as common

from yaie.bench.cases import Case, Draw, Prepare
from yaie.bench.cases_attention import prefill
from yaie.bench.protocol import (
    Call,
    clock_for,
    compare,
    relative_error,
    row_error,
    tensors,
    why_wrong,
)
from yaie.build import jit
from yaie.build.nvcc import CSRC, build_for
from yaie.ops.cuda.flash import RUNGS, Sequences
from yaie.ops.registry import resolve

LIBRARY = "SDPA, FlashAttention-2"
VARIANTS = {
    "all weights of a tile first": {
        "                weigh(j, weights[j / 2]);\n": "                weigh(j, weights[j / 2]);\n"
        "            }\n#pragma unroll\n            for (int j = 0; j < KEY_TILES; j += 2) {\n"
    },
    "rescaled whenever a maximum grows": {"LAZY = 8.0f;": "LAZY = 0.0f;"},
    "no swizzle": {"(piece ^ row % 8)": "piece"},
    "tiles of 8 KiB": {"return 8192 / DIM;": "return 4096 / DIM;"},
    "1 head after the other": {"HEADS_TOGETHER = 16;": "HEADS_TOGETHER = 1;"},
    "8 heads together": {"HEADS_TOGETHER = 16;": "HEADS_TOGETHER = 8;"},
    "32 heads together": {"HEADS_TOGETHER = 16;": "HEADS_TOGETHER = 32;"},
    "all of head_dim unrolled": {"#pragma unroll 4  // not 8": "#pragma unroll  // not 8"},
}


def variant(folder: Path, number: int, changes: dict[str, str]) -> jit.Module:
    """The last rung in bfloat16 alone, after replacements, each of which must apply."""
    text = (CSRC / "flash/mma.cu").read_text(encoding="utf-8")
    start, end = (text.index(f'extern "C" cudaError_t flash_mma_{t}') for t in ("f16", "bf16"))
    text = text[:start] + text[end:]
    for old, new in changes.items():
        if old not in text:
            raise ValueError(f"the kernel no longer has {old!r}")
        text = text.replace(old, new)
    home = folder / str(number)
    home.mkdir(parents=True, exist_ok=True)
    (home / "mma.cu").write_text(text, encoding="utf-8")
    return jit.load(home / "mma.cu")


def build(modules: Iterable[jit.Module], device: torch.device) -> None:
    """Compile side by side, each by a process of nvcc's own, what is not there yet."""
    missing = [module for module in modules if module.how(device).words == "compiled at first use"]
    if missing:
        capability = torch.cuda.get_device_capability(device)
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda x: build_for(x.source, x.path, capability, x.flags), missing))


def main() -> int:
    """Measure, and print what was measured; the exit status."""
    parser = common(__doc__)
    parser.add_argument("--tokens", type=int, default=4096, help="of each of four sequences")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--no-variants", action="store_true")
    parser.add_argument("--skip", nargs="*", default=(), help="names of rows to leave out")
    parser.add_argument("--folder", type=Path, help="for the variants; a temporary one if none")
    options = parser.parse_args()
    if options.folder is not None:
        return measure(options, options.folder)
    with tempfile.TemporaryDirectory() as folder:
        return measure(options, Path(folder))


def measure(options: argparse.Namespace, folder: Path) -> int:
    """Head_dim 128 and 64, full and causal, in bfloat16; what is known is written after each."""
    device = torch.device(options.device)
    report = Report(options.out, device, options.seconds, dtype="bfloat16", problems={})
    modules = variants(folder) if not options.no_variants else {}
    build([*modules.values(), *(jit.load(f"flash/{name}.cu") for name in RUNGS)], device)
    report.say(f"{len(modules)} variants are built")
    for head_dim, causal in itertools.product((128, 64), (False, True)):
        case = prefill(4, 32, options.tokens, head_dim, causal, torch.bfloat16)
        if not chosen(case.shape, options.only) or not report.has_time(case.shape):
            continue
        draw = Draw.on(device, torch.bfloat16, seed=datetime.datetime.now().microsecond)
        prepares = case.peers | ours() | {name: changed(x) for name, x in modules.items()}
        prepares = {name: x for name, x in prepares.items() if name not in options.skip}
        rows = timed(prepares, case, case.arguments(draw), options.rounds)
        problems = report.content["problems"]
        problems[case.shape] = {"head_dim": head_dim, "causal": causal, "rows": rows}
        report.save()
        report.say(case.shape)
        for name, row in rows.items():
            print(f"  {name}: {row.get('not_timed') or round(row['tflop_s'], 1)}", flush=True)
            if name in RUNGS and not row.get("was_nan"):
                report.fault(f"{case.shape}: {name} {row.get('not_timed', 'did not write it all')}")
    return report.end()


def variants(folder: Path) -> dict[str, jit.Module]:
    """All of them, by the names of their rows."""
    return {
        f"mma, {name}": variant(folder, number, changes)
        for number, (name, changes) in enumerate(VARIANTS.items())
    }


def ours() -> dict[str, Prepare]:
    """Triton's kernel, and the rungs."""

    def rung(name: str) -> Prepare:
        def prepare(q, k, v, starts_q, starts_k, causal, scale) -> Call:
            return lambda: RUNGS[name](q, k, v, causal, scale, Sequences(starts_q, starts_k))

        return prepare

    triton = resolve("ragged_attention", "triton")
    return {name: rung(name) for name in RUNGS} | {"Triton": lambda *a: lambda: triton(*a)}


def changed(module: jit.Module) -> Prepare:
    """A variant of the last rung, without the back end's checks."""

    def prepare(q, k, v, starts_q, starts_k, causal, scale) -> Call:
        (tokens, heads, head_dim), (keys, kv_heads, _) = q.shape, k.shape

        def call() -> tuple[torch.Tensor, torch.Tensor]:
            out, lse = q.new_empty(q.shape), q.new_empty(tokens, heads, dtype=torch.float32)
            module.flash_mma_bf16(
                *(q, k, v, out, lse, starts_q, starts_k, None, None, len(starts_q) - 1, tokens),
                *(keys, heads, kv_heads, head_dim, q.stride(0), k.stride(0), v.stride(0), 0, 0),
                *(head_dim**-0.5, int(causal)),
            )
            return out, lse

        return call

    return prepare


def timed(
    prepares: dict[str, Prepare], case: Case, arguments: tuple, rounds: int
) -> dict[str, dict[str, float | str]]:
    """A row for each. One that cannot run here, or is wrong, has words in place of figures."""
    wanted = tensors(case.oracle(*arguments))
    rows: dict[str, dict[str, float | str]] = {}
    calls, checked = {}, {}
    for name, prepare in prepares.items():
        try:
            calls[name] = prepare(*arguments)
            checked[name] = check(calls[name], wanted, arguments[0].dtype)
        except (ImportError, OSError, RuntimeError, NotImplementedError, ValueError) as reason:
            rows[name] = {"not_timed": str(reason)}
    timings = compare(
        {name: calls[name] for name in checked}, clock_for(arguments[0].device), rounds
    )
    library = timings.get(LIBRARY)
    for name, timing in timings.items():
        rows[name] = {
            "ms": timing.median,
            "fastest": timing.fastest,
            "slowest": timing.slowest,
            "tflop_s": case.flops / timing.median / 1e9,
            **({"of_library": library.median / timing.median} if library else {}),
            **checked[name],
        }
    return {name: rows[name] for name in prepares}


def check(
    call: Call, wanted: tuple[torch.Tensor, ...], dtype: torch.dtype
) -> dict[str, float | bool]:
    """The relative error of a call, and whether its results are known to have been NaN before.

    Raises:
        ValueError: it is wrong.
    """
    call()  # compiles
    got, was_nan = into_nan(call)
    wanted = wanted[: len(got)]  # libraries return no log-sum-exp
    got = tuple(one.reshape(other.shape) for one, other in zip(got, wanted, strict=True))
    found = relative_error(got, wanted)
    if reason := why_wrong(found, row_error(got, wanted), dtype):
        raise ValueError(reason)
    return {"error": found, "was_nan": was_nan}


if __name__ == "__main__":
    sys.exit(main())
