"""What a call of an operator costs the host, beside torch's own operators in the same run.

On a GPU the calls are launched and not waited for. Elsewhere nothing is launched (`--no-launch`,
which a CPU implies), so what is left is Python's part: checks, dispatch, packing of arguments.

    python -m yaie.bench.host --output host.json
"""

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F

from yaie.bench.files import output_path, save
from yaie.bench.machine import describe
from yaie.build.jit import Module
from yaie.ops.attention import paged_attention_forward
from yaie.ops.elementwise import silu_and_mul
from yaie.ops.norm import add_rms_norm, rms_norm

CALLS = 300
BATCH, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, BLOCK_SIZE = 8, 576, 9, 3, 64, 16
Call = Callable[[], Any]


def calls(device: str, backend: str) -> dict[str, tuple[Call, Call]]:
    """By operator: a call of it, and of torch's operator of the same kind."""
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    options = {"device": device, "dtype": dtype}
    (x, residual), weight = torch.randn(2, BATCH, HIDDEN, **options), torch.randn(HIDDEN, **options)
    norm = partial(F.rms_norm, x, (HIDDEN,), weight, 1e-6)
    return {
        "rms_norm": (lambda: rms_norm(x, weight, backend=backend), norm),
        "add_rms_norm": (lambda: add_rms_norm(x, residual, weight, backend=backend), norm),
        "silu_and_mul": (lambda: silu_and_mul(x, backend=backend), lambda: F.silu(x)),
        "paged_attention, 128 keys": attention(128, backend, **options),
        "paged_attention, 2,048 keys": attention(2048, backend, **options),
    }


def attention(context: int, backend: str, **options: Any) -> tuple[Call, Call]:
    """A call of paged attention, one query per sequence, and torch's over as many contiguous keys.
    Long contexts are cut, and a second kernel merges the parts."""
    blocks, ints = context // BLOCK_SIZE, {"device": options["device"], "dtype": torch.int32}
    q = torch.randn(BATCH, HEADS, HEAD_DIM, **options)
    pools = torch.randn(2, BATCH * blocks, BLOCK_SIZE, KV_HEADS, HEAD_DIM, **options)
    tables = torch.arange(BATCH * blocks, **ints).view(BATCH, blocks)
    lengths, starts = torch.full((BATCH,), context, **ints), torch.arange(BATCH + 1, **ints)
    paged = (q, *pools, tables, lengths, starts)
    one, dense = q.unsqueeze(2), torch.randn(BATCH, HEADS, context, HEAD_DIM, **options)
    return (
        lambda: paged_attention_forward(*paged, backend=backend),
        lambda: F.scaled_dot_product_attention(one, dense, dense),
    )


def run(device: str, backend: str = "cuda", launch: bool = True, rounds: int = 9) -> list[dict]:
    """The figures of every operator: CPU µs per call, Python's calls in one, the ratio to torch.

    The time is the median of the rounds; beside it stands that of the fastest one, which other
    programs on the host's cores disturbed least.
    """
    results = []
    with nullcontext() if launch else no_launches():
        for name, pair in calls(device, backend).items():
            for call in pair:
                call()  # compiled and loaded before it counts
            us = [[microseconds(call, device) for call in pair] for _ in range(rounds)]
            columns = list(zip(*us, strict=True))
            (own, peer), (least, peer_least) = map(statistics.median, columns), map(min, columns)
            row = {"operator": name, "us": own, "torch_us": peer, "ratio": own / peer}
            row |= {"fastest_us": least, "fastest_torch_us": peer_least}
            results.append(row | {"python_calls": python_calls(pair[0])})
            print(f"{name:27} {own:6.1f} µs, torch {peer:6.1f} µs, {own / peer:5.2f} times; "
                  f"fastest round {least:6.1f} and {peer_least:6.1f} µs; "
                  f"{results[-1]['python_calls']} Python calls")  # fmt: skip
    return results


@contextmanager
def no_launches() -> Iterator[None]:
    """In this block neither a first call of a kernel nor a recorded one launches it."""

    def nothing(*_: object) -> None:
        return

    again = dict.fromkeys(("start", "pack", "first", "fail"), nothing)
    with mock.patch.multiple(Module, _launch=nothing, repeat=lambda *_: again):
        yield


def microseconds(call: Call, device: str) -> float:
    """CPU time of this thread per call; a GPU is waited for before and after, not between."""
    if device == "cuda":
        torch.cuda.synchronize()
    begin = time.thread_time()
    for _ in range(CALLS):
        call()
    seconds = time.thread_time() - begin
    if device == "cuda":
        torch.cuda.synchronize()
    return 1e6 * seconds / CALLS


def python_calls(call: Call) -> int:
    """How many functions, Python's and C's, a call enters."""
    entered = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal entered
        entered += event in ("call", "c_call")

    gc.disable()  # what is told of a collection would be counted
    sys.setprofile(count)
    try:
        call()
    finally:
        sys.setprofile(None)
        gc.enable()
    return entered - 2  # the lambda, and the end of the count


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--backend", default="cuda")
    parser.add_argument("--no-launch", action="store_true", help="leave the launches out")
    parser.add_argument("--output", type=output_path, help="keep the figures as JSON")
    options = parser.parse_args()
    where = "cuda" if torch.cuda.is_available() else "cpu"
    rows = run(where, options.backend, launch=where == "cuda" and not options.no_launch)
    if options.output:
        save({"machine": describe(torch.device(where)), "results": rows}, options.output)
