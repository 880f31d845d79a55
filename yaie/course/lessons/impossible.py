"""Figures of benchmarks that cannot be true, and what gives them away."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

ROUNDED = 0.01  # the relative difference that rounding explains
REASONS = {
    "units": "a rate or a ratio does not follow from the times beside it",
    "not waited for": "the processor's clock was read before the GPU was done",
    "launch": "no kernel is that short: it was not launched, or did nothing",
    "cache": "faster than memory: the bytes fit in the L2 cache, and came from there",
    "bytes": "faster than memory: bytes were counted that did not move",
    "operations": "faster than arithmetic: operations were counted that were not done",
}


@dataclass(frozen=True)
class Gpu:
    """What a GPU cannot exceed.

    Attributes:
        gb_s: 10⁹ bytes per second of its memory.
        tflop_s: 10¹² operations per second, by the dtype that is multiplied.
        l2_bytes: size of its L2 cache.
        shortest_ms: of a kernel, from one event to the next.
    """

    gb_s: float
    tflop_s: Mapping[str, float]
    l2_bytes: int
    shortest_ms: float = 1e-3


# By NVIDIA's data sheet, for matrices without zeros to skip; the cache as the GPU reports it. The
# shortest kernels of this course take 1.6 µs each, in a CUDA graph.
H200 = Gpu(4800.0, {"bfloat16": 989.0, "float16": 989.0, "float32": 67.0}, 60 << 20)


@dataclass(frozen=True)
class Claim:
    """A row of a benchmark, as it was published.

    Attributes:
        num_bytes, flops: what one call is said to move and to compute.
        ms: milliseconds of a call.
        gb_s, tflop_s: the rates, in 10⁹ bytes and 10¹² operations per second.
        peer_ms, times_as_fast: another kernel's time, and how many times as fast this one is;
            None if there is no other.
        timer: "events", or "host": the processor's clock.
        synchronized: whether the program waited for the GPU before it read the clock.
    """

    num_bytes: int
    ms: float
    gb_s: float
    flops: int = 0
    tflop_s: float = 0.0
    dtype: str = "bfloat16"
    peer_ms: float | None = None
    times_as_fast: float | None = None
    timer: str = "events"
    synchronized: bool = True

    def __post_init__(self) -> None:
        if not self.ms > 0:
            raise ValueError(f"ms must be above 0, got {self.ms}")
        if (self.peer_ms is None) != (self.times_as_fast is None):
            raise ValueError("peer_ms and times_as_fast must both be given, or neither")


def why_impossible(claim: Claim, gpu: Gpu = H200) -> str | None:
    """Why a claim about a GPU cannot be true, a key of `REASONS`; None if it can.

    The first of these that holds, since each makes those after it meaningless:

    - "units": `gb_s`, `tflop_s` or, if there is a peer, `times_as_fast` differs by more than
      `ROUNDED`, relative, from what follows from bytes, operations and times;
    - "not waited for": the timer is the host's, and the program did not wait;
    - "launch": the time is below the GPU's shortest;
    - "cache", if the bytes are no more than fit in L2, else "bytes": they would have to move faster
      than the GPU's memory does;
    - "operations": they would have to be done faster than the GPU does those of this dtype.

    A rate that reaches a limit exactly is possible.
    """
    seconds = claim.ms / 1e3
    gb_s, tflop_s = claim.num_bytes / seconds / 1e9, claim.flops / seconds / 1e12
    stated = [(claim.gb_s, gb_s), (claim.tflop_s, tflop_s)]
    if claim.peer_ms is not None:
        stated.append((claim.times_as_fast, claim.peer_ms / claim.ms))
    if any(abs(said - follows) > ROUNDED * follows for said, follows in stated):
        return "units"
    if claim.timer == "host" and not claim.synchronized:
        return "not waited for"
    if claim.ms < gpu.shortest_ms:
        return "launch"
    if gb_s > gpu.gb_s:
        return "cache" if claim.num_bytes <= gpu.l2_bytes else "bytes"
    if tflop_s > gpu.tflop_s[claim.dtype]:
        return "operations"
    return None
