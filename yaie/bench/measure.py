"""One kernel, timed and profiled: the protocol in short, for a kernel that has no case yet."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.profiler import ProfilerActivity

from yaie.bench.protocol import EventClock


@dataclass(frozen=True)
class Measurement:
    """What one call takes, and the rates that follow.

    Attributes:
        ms: milliseconds of a call.
        gb_s: 10⁹ bytes per second.
        tflop_s: 10¹² floating-point operations per second.
    """

    ms: float
    gb_s: float
    tflop_s: float


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


@dataclass(frozen=True)
class Profiled:
    """What torch's profiler saw under one name.

    Attributes:
        name: an operator of torch, a function of CUDA, or a kernel.
        calls: how often.
        us: microseconds of all calls, without those of what they called.
        on_gpu: whether the GPU spent them: then it is a kernel, a copy or a fill.
    """

    name: str
    calls: int
    us: float
    on_gpu: bool


def profile_kernel(fn: Callable[..., object], *args: Any) -> list[Profiled]:
    """What one call of `fn(*args)` does: kernels on the GPU and operators on the CPU, the longest
    first. Call it once before, or its compilation is in the profile."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # or it prints when it starts and stops
    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities) as profile:
        fn(*args)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
    rows = []
    for event in profile.key_averages():
        on_gpu = event.device_type == torch.autograd.DeviceType.CUDA
        us = event.self_device_time_total if on_gpu else event.self_cpu_time_total
        rows.append(Profiled(event.key, event.count, us, on_gpu))
    return sorted(rows, key=lambda row: (not row.on_gpu, -row.us))
