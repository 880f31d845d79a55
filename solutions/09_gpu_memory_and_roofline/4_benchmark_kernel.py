"""Solution of exercise 09.4: Write a benchmark.

Time a kernel on a GPU: call it `warmup` times without measuring, then `iters` times from cold
caches with an event before and after each call, and return the median as a `Measurement(ms, gb_s,
tflop_s)`, with the rates that follow from `num_bytes` and `flops`. Refuse `iters` below 1 and
`warmup` below 0 with a ValueError that names the argument. The check runs it on simulated GPUs
that only keep time: launches return before the GPU has begun, the first call compiles, the L2
cache makes a second call faster, and a few calls are disturbed.

Generated from benchmark_kernel in yaie/bench/measure.py.
Edit it there, and run `python -m yaie.course build`.
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
    if iters < 1 or warmup < 0:
        raise ValueError(f"iters must be at least 1 and warmup at least 0, got {iters}, {warmup}")
    for _ in range(warmup):
        fn(*args)
    events = [(clock.event(), clock.event()) for _ in range(iters)]
    for start, end in events:
        clock.empty_caches()
        start.record()
        fn(*args)
        end.record()
    clock.synchronize()
    ms = statistics.median(start.elapsed_time(end) for start, end in events)
    return Measurement(ms, num_bytes / ms / 1e6, flops / ms / 1e9)
