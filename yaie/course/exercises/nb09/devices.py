"""A simulated GPU that only keeps time: calls and events queue up while the processor goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

EMPTYING = 0.3  # ms that the device takes to empty its caches


class FakeGpu:
    """Stands in for a clock of `yaie.bench.protocol`; all times in milliseconds.

    Attributes:
        now: the processor's clock. Launching takes some of its time; waiting takes the rest.
        free: when the device will be done with what was launched.
        is_cold: whether its caches hold none of a kernel's inputs.
    """

    def __init__(self, launch: float) -> None:
        self.launch, self.now, self.free, self.is_cold = launch, 0.0, 0.0, True

    def run(self, ms: float) -> None:
        """Launch what takes this long on the device."""
        self.now += self.launch
        self.free = max(self.free, self.now) + ms

    def event(self) -> FakeEvent:
        return FakeEvent(self)

    def synchronize(self) -> None:
        self.now = max(self.now, self.free) + 0.004  # to notice it

    def empty_caches(self) -> None:
        self.run(EMPTYING)
        self.is_cold = True

    @contextmanager
    def keeps_time(self) -> Iterator[None]:
        """Have Python's clocks show the time of this processor."""
        seconds = {name: lambda: self.now / 1e3 for name in ("perf_counter", "time", "monotonic")}
        with mock.patch.multiple("time", **seconds):
            yield


class FakeEvent:
    """Like CUDA's event: it has no time until the device has passed it."""

    def __init__(self, gpu: FakeGpu) -> None:
        self._gpu, self._at = gpu, None

    def record(self) -> None:
        self._gpu.now += 0.001
        self._at = max(self._gpu.free, self._gpu.now)

    def elapsed_time(self, end: FakeEvent) -> float:
        if self._at is None or end._at is None:
            raise RuntimeError("both events must be recorded before elapsed_time")
        if self._gpu.now < end._at:
            raise RuntimeError("device not ready: it has not passed the end event yet")
        return end._at - self._at


class FakeKernel:
    """A kernel that only takes time, and remembers the arguments of its calls.

    Args:
        durations: ms that a call takes from cold caches, by its number.
        warm: the fraction of that time that a call takes whose inputs are in the caches.
        compiling: ms that the processor needs at the first call.
    """

    def __init__(
        self, gpu: FakeGpu, durations: Callable[[int], float], warm: float, compiling: float
    ) -> None:
        self._gpu, self._durations, self._warm = gpu, durations, warm
        self._compiling, self.calls = compiling, []

    def __call__(self, *args: Any) -> None:
        number = len(self.calls)
        self._gpu.now += 0 if number else self._compiling
        self._gpu.run(self._durations(number) * (1.0 if self._gpu.is_cold else self._warm))
        self._gpu.is_cold = False
        self.calls.append(args)


def odd_ones(ms: float, factors: Sequence[tuple[range, float]]) -> Callable[[int], float]:
    """Durations of about `ms`, times a factor for some ranges of calls."""

    def duration(number: int) -> float:
        jitter = 1.0 + 0.001 * ((7 * number) % 5 - 2)
        return ms * jitter * next((f for calls, f in factors if number in calls), 1.0)

    return duration
