"""Exercise 09.4: Write a benchmark.

Time a kernel on a GPU: call it `warmup` times without measuring, then `iters` times from cold
caches with an event before and after each call, and return the median as a `Measurement(ms, gb_s,
tflop_s)`, with the rates that follow from `num_bytes` and `flops`. Refuse `iters` below 1 and
`warmup` below 0 with a ValueError that names the argument. The check runs it on simulated GPUs
that only keep time: launches return before the GPU has begun, the first call compiles, the L2
cache makes a second call faster, and a few calls are disturbed.

You have
- `fn(*args)`: the call to time; it returns before the GPU is done
- `clock.event()`: returns an event; `start.record()` puts it into the queue
- `start.elapsed_time(end)`: milliseconds from one event to another; RuntimeError if the GPU has
  not reached `end`
- `clock.synchronize()`: waits until the GPU has finished all that was launched; returns nothing
- `clock.empty_caches()`: launches a read of so much other memory that no input stays in the L2
  cache; returns nothing
- `statistics.median(values)`: the median of numbers
- `Measurement(ms, gb_s, tflop_s)`: what you return: milliseconds, 10⁹ bytes and 10¹² operations
  per second

In a terminal: yaie check 09.4, yaie hint 09.4, yaie reset 09.4.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from yaie.bench.measure import Measurement
from yaie.bench.protocol import EventClock


def benchmark_kernel(
    fn: Callable[..., object],
    *args: Any,
    clock: EventClock,
    num_bytes: int,
    flops: int = 0,
    warmup: int = 3,
    iters: int = 20,
) -> Measurement:
    """Time `fn(*args)` on a device that computes while the processor goes on.

    `fn` is called `warmup` times, so that it is compiled and the GPU's clock has risen, then
    `iters` times, each from cold caches, and the median of these counts.

    Args:
        clock: of the device. `clock.event()` makes an event: `start.record()` puts it among the
            calls, and `start.elapsed_time(end)` is the milliseconds from one event to another, once
            the device has passed both. `clock.synchronize()` waits until the device is done.
            `clock.empty_caches()` has the device read other memory until no input is left in its
            caches; the time that this takes is not the kernel's.
        num_bytes, flops: what a call must move and compute at least.

    Raises:
        ValueError: `iters` is below 1, or `warmup` below 0.
    """
    raise NotImplementedError("Exercise 09.4: Write a benchmark")
