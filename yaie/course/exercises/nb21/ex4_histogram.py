"""21.4: bins in shared memory, then atomics to global memory, beside counts made one by one."""

import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from yaie.course.core import cuda
from yaie.course.core.cuda import KernelCase
from yaie.course.core.observe import Observer

BINS, THREADS = 256, 128
# elements, thread blocks
SIZES = ((1000, 2), (1, 1), (128, 1), (40, 3), (700, 1), (4096, 5), (0, 2), (257, 2))
FAR = 2**32  # where the elements of the last of many thread blocks begin
EXPLAIN: cuda.Explain = {
    "race": (
        "Two barriers: after the zeros, and after counting. Between them several threads add to a "
        "bin, and so do thread blocks to `counts`: with atomicAdd."
    ),
    "uninitialized": "There are 256 bins and 128 threads: each thread has two bins to clear.",
    "divergent_barrier": "Every thread has to reach both barriers, with an element or without.",
    "out_of_bounds": "x has `n` elements, and there are BINS bins.",
}

WIDE = (
    "x has more than 2³² elements here. The index and the step have to be size_t, and "
    "`blockIdx.x * THREADS` and `gridDim.x * THREADS` are 32 bits wide unless one factor is "
    "converted first."
)


def cases() -> Iterator[KernelCase]:
    yield from cuda.in_every_order(*(case(*size) for size in SIZES))
    yield case(1000, 3, words=", all in one bin", make=lambda n: torch.full((n,), 1.5))
    for suffix in ("f16", "bf16"):
        yield case(700, 3, suffix=suffix)
    yield case(4096, 2, words=", and its costs", costs=True)
    how = {"checked": False, "most_blocks": 1, "order": "reverse"}
    words = ", of which the last thread block runs here"
    yield case(FAR + 2 * THREADS, FAR // THREADS + 1, "f16", words, how=how, make=far)


def case(n: int, blocks: int, suffix: str = "f32", words: str = "", **data: Any) -> KernelCase:
    name = f"{n:,} element{'s' * (n != 1)}, {blocks:,} thread block{'s' * (blocks > 1)}"
    name += f", {suffix}" * (suffix != "f32") + words
    return KernelCase(name, n=n, blocks=blocks, suffix=suffix, **{"make": drawn, **data})


def drawn(n: int) -> torch.Tensor:
    """Numbers on both sides of zero, some of them 0 and −0."""
    x = torch.randn(n, generator=torch.Generator().manual_seed(n)) * 4
    x[::7], x[3::7] = 0.0, -0.0
    return x


def far(n: int) -> torch.Tensor:
    """Zeros that take no memory, and ones in the last thread block's elements and after them."""
    x = cuda.reserved(n, torch.float16)
    x[FAR:] = 1.0
    return x


def bin_of(value: float) -> int:
    """The first 8 bits of a key that is smaller for larger floats."""
    bits = int.from_bytes(struct.pack(">f", value + 0.0), "big")
    return (bits if bits >> 31 else ~bits & 0x7FFFFFFF) >> 24


def observe(path: Path, case: KernelCase, see: Observer) -> None:
    x, is_far = case.make(case.n).to(cuda.dtype_of(case.suffix)), case.n > FAR
    values = x[FAR : FAR + THREADS] if is_far else x
    found = Counter(map(bin_of, values.float().tolist()))
    counts = cuda.poisoned(BINS, dtype=torch.int32)
    report = cuda.run(
        see, path, f"histogram_{case.suffix}", x, counts, case.n, case.blocks,
        explain={**EXPLAIN, "time_limit": WIDE} if is_far else EXPLAIN, **case.how,
    )  # fmt: skip
    want = torch.tensor([found[number] for number in range(BINS)], dtype=torch.int32)
    once = "Each element counts once, in the bin that bin_of() names."
    see.equal("counts", counts, want, WIDE if is_far else once)
    if case.costs:
        atomics = cuda.accesses(report, memory="global", kind="atomic")
        lanes = sum(number * times for a in atomics for number, times in a.by_lanes.items())
        see.at_most(
            "additions to global memory", lanes, BINS * case.blocks,
            "A thread block adds each of its bins once; its elements it counts in shared memory.",
        )  # fmt: skip
        cuda.cheap(see, report, {"global load": "Neighboring threads should read neighbors of x."})


def draw(path: Path) -> Any:
    """What each line costs, for the numbers that a model's logits resemble."""
    counts = cuda.poisoned(BINS, dtype=torch.int32)
    return cuda.draw_lines(path, "histogram_f32", drawn(4096), counts, 4096, 2)
