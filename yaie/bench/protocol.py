"""How kernels are timed, so that the figures of two of them may be compared.

- Before each timed call a buffer several times as large as the L2 cache is read, so that no input
  is found there. It is read, not written: dirty lines would be written back while the kernel runs.
- That read also gives the processor time to queue the call, so that the events around it measure
  the GPU and not the launch.
- Rounds alternate in order, A B, then B A, so that a clock that rises or falls favors no call. The
  median of a round counts, and the median of the rounds.
- Memory that outputs will be written to is filled with NaN first, and results are compared with
  float64: as a whole, and row by row, since one bad row of many hardly shows in the whole. A wrong
  result has no time.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol
from unittest import mock

import torch

Call = Callable[[], object]
MILLISECONDS_A_ROUND = 25.0
FEWEST_CALLS, MOST_CALLS = 3, 30
# Largest relative error, ‖out − wanted‖ / ‖wanted‖, of a result that is right in its dtype; for the
# whole and for each row. In bfloat16 a number rounded once is off by at most 3.9e-3 of itself, and
# by 1.7e-3 as a root mean square, and so is a row of them. The worst rows are those of attention,
# where weights and results are rounded: 3.4e-3 of 64 components, and 6.9e-3 if the queries are
# rounded after scaling. In float16 all are an eighth of that.
TOLERANCE = {
    torch.bfloat16: 1e-2,
    torch.float16: 2e-3,
    torch.float32: 1e-4,  # TF32, which rounds to 10 bits, is at 3e-4
    torch.float64: 1e-12,
}


class Clock(Protocol):
    """What times calls."""

    def times(self, call: Call, count: int) -> list[float]:
        """Milliseconds of each of `count` calls."""


class Event(Protocol):
    """A mark among the calls of a device, with the time at which the device came to it."""

    def record(self) -> None:
        """Put the mark after the calls so far."""

    def elapsed_time(self, end: Any) -> float:
        """Milliseconds from this mark to `end`; RuntimeError if the device has not reached it."""


class EventClock:
    """Times each call by the events around it, with the caches emptied before it."""

    def times(self, call: Call, count: int) -> list[float]:
        """Milliseconds of each of `count` calls."""
        events = [(self.event(), self.event()) for _ in range(count)]
        for start, end in events:
            self.empty_caches()
            start.record()
            call()
            end.record()
        self.synchronize()
        return [start.elapsed_time(end) for start, end in events]

    def empty_caches(self) -> None:
        """Have the device read other memory until its caches hold no input."""
        self._unrelated.sum()


class CudaClock(EventClock):
    """Of a GPU; `warm` leaves the L2 cache as it is."""

    def __init__(self, device: torch.device, warm: bool = False) -> None:
        l2 = torch.cuda.get_device_properties(device).L2_cache_size
        size = 1 if warm else max(8 * l2, 512 << 20) // 4
        self._unrelated = torch.ones(size, device=device)
        self.synchronize = partial(torch.cuda.synchronize, device)
        self.event: Callable[[], Event] = partial(torch.cuda.Event, enable_timing=True)


class CpuClock(EventClock):
    """Of a CPU, whose calls have ended when they return, by the clock on the wall or another;
    `warm` leaves the caches as they are."""

    def __init__(self, warm: bool = False, now: Callable[[], float] = time.perf_counter) -> None:
        self._unrelated = torch.ones(1 if warm else 16 << 20)
        self.synchronize = lambda: None
        self.event: Callable[[], Event] = partial(_Mark, now)


class _Mark:
    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now

    def record(self) -> None:
        self._seconds = self._now()

    def elapsed_time(self, end: _Mark) -> float:
        return 1e3 * (end._seconds - self._seconds)


class InARow:
    """The clock on the wall around calls that follow each other, as the steps of an engine do.

    It counts the processor's time or the GPU's, whichever is longer.

    Attributes:
        asking: milliseconds of a call until the processor had asked for it, of each round.

    Args:
        each: calls of a round, which is one time.
        before: called before each round.
    """

    def __init__(
        self, device: torch.device, each: int = 20, before: Callable[[], object] = lambda: None
    ) -> None:
        self._wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
        self._each, self._before = each, before
        self.asking: list[float] = []

    def times(self, call: Call, count: int) -> list[float]:
        return [self._round(call) for _ in range(count)]

    def _round(self, call: Call) -> float:
        self._before()
        self._wait()
        start = time.perf_counter()
        for _ in range(self._each):
            call()
        self.asking.append(1e3 * (time.perf_counter() - start) / self._each)
        self._wait()
        return 1e3 * (time.perf_counter() - start) / self._each


def captured(call: Call, device: torch.device, times: int = 1) -> Call | None:
    """This many calls as one CUDA graph; None if they cannot be captured. On a CPU as they are."""
    if device.type != "cuda":
        return lambda: [call() for _ in range(times)]
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            for _ in range(times):
                call()
    except RuntimeError:
        return None
    return graph.replay


def clock_for(device: torch.device) -> Clock:
    """The clock of a device."""
    return CudaClock(device) if device.type == "cuda" else CpuClock()


@dataclass(frozen=True)
class Timing:
    """Milliseconds of a call: the median over rounds, and the fastest and slowest round."""

    median: float
    fastest: float
    slowest: float


def compare(calls: dict[str, Call], clock: Clock, rounds: int = 4) -> dict[str, Timing]:
    """Time calls against each other, in rounds of alternating order.

    Args:
        calls: by name; each has been called before, so that nothing is compiled again.
        rounds: even, so that each call goes first as often as last.
    """
    if rounds < 2 or rounds % 2:
        raise ValueError(f"rounds must be even and at least 2, got {rounds}")
    counts = {name: _calls_a_round(clock.times(call, 3)) for name, call in calls.items()}
    medians: dict[str, list[float]] = {name: [] for name in calls}
    for name in running_order(list(calls), rounds):
        medians[name].append(statistics.median(clock.times(calls[name], counts[name])))
    return {
        name: Timing(statistics.median(times), min(times), max(times))
        for name, times in medians.items()
    }


def running_order(names: Sequence[str], rounds: int) -> list[str]:
    """The order in which calls are timed: forward and backward in turn."""
    return [name for i in range(rounds) for name in (names if i % 2 == 0 else reversed(names))]


def _calls_a_round(first: Sequence[float]) -> int:
    fit = int(MILLISECONDS_A_ROUND / max(statistics.median(first), 1e-3))
    return min(max(fit, FEWEST_CALLS), MOST_CALLS)


# ------------------------------------------------------------------------------------- correctness


def tensors(result: object) -> tuple[torch.Tensor, ...]:
    """The tensors that a call returned, one or several."""
    return (result,) if isinstance(result, torch.Tensor) else tuple(result)


def poison(like: Sequence[torch.Tensor], device: torch.device) -> list[range]:
    """Leave NaN, or the least integer, in memory that the allocator hands out next.

    Returns:
        The addresses that hold it.
    """
    if device.type == "cuda":
        torch.cuda.empty_cache()  # so that nothing else is there to be handed out
    filled = [
        torch.full(t.shape, _no_result(t.dtype), dtype=t.dtype, device=device)
        for t in like
        for _ in "ab"
    ]
    return [range(t.data_ptr(), t.data_ptr() + t.nbytes) for t in filled]


@contextmanager
def new_memory_is_nan() -> Iterator[list[range]]:
    """Fill the memory that the engine's own functions take for their results with NaN.

    Yields:
        The addresses that held it.
    """
    filled: list[range] = []

    def filling(take: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def fill(*given: Any, **how: Any) -> torch.Tensor:
            x = take(*given, **how)
            if x.is_floating_point() and x.numel():
                filled.append(range(x.data_ptr(), x.data_ptr() + x.nbytes))
                x.fill_(torch.nan)
            return x

        return fill

    with ExitStack() as patched:
        for owner, name in ((torch.Tensor, "new_empty"), (torch, "empty_like"), (torch, "empty")):
            take = filling(getattr(owner, name))
            patched.enter_context(mock.patch.object(owner, name, take))
        yield filled


def _no_result(dtype: torch.dtype) -> float:
    """What no kernel returns: NaN, or the least integer."""
    return torch.nan if dtype.is_floating_point else torch.iinfo(dtype).min


def was_poisoned(result: Sequence[torch.Tensor], addresses: Sequence[range]) -> bool:
    """Whether each of a call's outputs lies where the poison was."""
    return all(any(t.data_ptr() in poisoned for poisoned in addresses) for t in result)


def relative_error(got: object, wanted: object) -> float:
    """The largest ‖got − wanted‖ / ‖wanted‖ of all outputs; infinite where one is not finite.

    Raises:
        ValueError: the outputs are not as many, or not of the shapes, that are wanted.
    """
    pairs = [(x.double().reshape(1, -1), y.reshape(1, -1)) for x, y in _pairs(got, wanted)]
    return max(_row_error(one, other) for one, other in pairs)  # as one row


def row_error(got: object, wanted: object) -> float:
    """The largest relative error of any row of any output; infinite where one is not finite.

    A row is what lies along the last axis: a token's features, or what one head returns for it. Of
    an output with one axis each number is a row. The error is ‖got − wanted‖ of the row over its
    ‖wanted‖, or over the mean ‖wanted‖ of all rows if that is larger: sums near 0, and rows that
    are small because others cancel in them, need not be more exact than the rest. Integers are
    right if they are equal, and else infinitely wrong.

    Raises:
        ValueError: as `relative_error`.
    """
    return max(_row_error(one, other) for one, other in _pairs(got, wanted))


def why_wrong(error: float, worst_row: float, dtype: torch.dtype) -> str | None:
    """Which error is too large for a result that is right in this dtype; None if it is right."""
    if not error <= TOLERANCE[dtype]:
        return f"relative error {error:.1e}"
    if not worst_row <= TOLERANCE[dtype]:
        return f"relative error {worst_row:.1e} of a row, {error:.1e} of the whole"
    return None


def _pairs(got: object, wanted: object) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Outputs beside what is wanted of them, if they are as many and of the same shapes."""
    got, wanted = tensors(got), tensors(wanted)
    if len(got) != len(wanted):
        raise ValueError(f"{len(got)} output came, {len(wanted)} are wanted")
    pairs = list(zip(got, wanted, strict=True))
    for number, (one, other) in enumerate(pairs):
        if one.shape != other.shape:
            raise ValueError(
                f"output {number} must have shape {list(other.shape)}, got {list(one.shape)}"
            )
    return pairs


def _row_error(got: torch.Tensor, wanted: torch.Tensor) -> float:
    difference, wanted = got.double() - wanted.double(), wanted.double()
    if not difference.isfinite().all():
        return float("inf")
    if not got.is_floating_point():
        return float("inf") if difference.any() else 0.0
    if not got.numel():
        return 0.0
    if got.dim() < 2:
        difference, wanted = difference.reshape(-1, 1), wanted.reshape(-1, 1)
    lengths = torch.linalg.vector_norm(wanted, dim=-1)
    floor = lengths.mean().clamp(min=1e-300)
    return (torch.linalg.vector_norm(difference, dim=-1) / lengths.maximum(floor)).max().item()
