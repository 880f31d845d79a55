"""09.2: `attainable` and `ridge_point`, beside the time of the slower of two tasks."""

import random
from collections.abc import Iterator
from typing import Any

from yaie.course import viz
from yaie.course.core.observe import Case, Observer
from yaie.course.lessons.data_nb09 import kept


def cases() -> Iterator[Case]:
    """By hand (flops and bytes are chosen so that the intensity is round), then at random."""
    yield device(100.0, 8.0, flops=2, num_bytes=1)
    yield device(100.0, 8.0, flops=50, num_bytes=1)
    yield device(100.0, 16.0, ridge=6.25)
    generator = random.Random(0)
    for _ in range(50):
        peak, bandwidth = 10 ** generator.uniform(9, 15), 10 ** generator.uniform(9, 13)
        flops, num_bytes = generator.randint(1, 10**12), generator.randint(1, 10**12)
        yield device(peak, bandwidth, flops, num_bytes)


def device(
    peak: float, bandwidth: float, flops: int = 0, num_bytes: int = 1, ridge: float = 0.0
) -> Case:
    name = f"a device with a peak of {peak:.4g} operations and {bandwidth:.4g} bytes per second"
    return Case(name, peak=peak, bandwidth=bandwidth, flops=flops, num_bytes=num_bytes, ridge=ridge)


def observe(learner: Any, case: Case, see: Observer) -> None:
    peak, bandwidth = case.peak, case.bandwidth
    if case.flops:
        intensity = case.flops / case.num_bytes
        computing, moving = case.flops / peak, case.num_bytes / bandwidth
        call = f"attainable at {intensity:.4g} operations per byte"
        with see.call(call):
            rate = learner.attainable(intensity, peak, bandwidth)
        why = (
            f"For {case.flops:,} operations and {case.num_bytes:,} bytes, computing takes "
            f"{computing:.4g} s and moving {moving:.4g} s, at the same time: the slower decides."
        )
        see.close(call, rate, case.flops / max(computing, moving), why, rtol=1e-9, atol=0.0)
        if peak == 100.0:
            return
    with see.call("ridge_point"):
        ridge = learner.ridge_point(peak, bandwidth)
    if case.ridge:
        why = f"At {case.ridge} operations per byte, {bandwidth:g} bytes per second bring work for "
        see.close("ridge_point", ridge, case.ridge, f"{why}{peak:g} operations.", rtol=1e-9)
        return
    see.kind("ridge_point", ridge, (int, float), "a number")
    for share in (0.5, 1.0):
        what = f"attainable at {share:g} × ridge_point"
        with see.call(what):
            rate = learner.attainable(share * ridge, peak, bandwidth)
        why = "At the ridge the peak is just reached; below it, a proportional part of it."
        see.close(what, rate, share * peak, why, rtol=1e-6, atol=0.0)


def draw(learner: Any) -> Any:
    """The roof of an H200, and where the learner's functions put some intensities."""
    roof = kept().roof
    peak, bandwidth = roof.peak, roof.bandwidth
    ridge = learner.ridge_point(peak, bandwidth)
    marks = [(f"{x:,g}", float(x), "your attainable") for x in (1, 4, 16, 64, 256, 1024)]
    points = [
        viz.Point(label, x, learner.attainable(x, peak, bandwidth), group)
        for label, x, group in [*marks, ("", ridge, "your ridge point")]
    ]
    return viz.draw_roofline([roof], points)
