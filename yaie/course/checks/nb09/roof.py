"""The check of attainable and ridge_point."""

from __future__ import annotations

import random
from typing import Any

from yaie.course.core.expect import close, fail, given, short


def check_roof(learner: Any) -> None:
    attainable, ridge_point = learner.attainable, learner.ridge_point
    roof_by_hand(attainable)
    ridge_by_hand(ridge_point)
    rng = random.Random(0)
    for _ in range(50):
        peak, bandwidth = 10 ** rng.uniform(9, 15), 10 ** rng.uniform(9, 13)
        flops, num_bytes = rng.randint(1, 10**12), rng.randint(1, 10**12)
        by_times(attainable, flops, num_bytes, peak, bandwidth)
        at_the_ridge(attainable, ridge_point, peak, bandwidth)


def roof_by_hand(attainable: Any) -> None:
    peak, bandwidth = 100.0, 8.0
    low, high = 2.0, 50.0
    at_low = call_of(low, peak, bandwidth)
    close(
        number(at_low, lambda: attainable(low, peak, bandwidth)),
        16.0,
        at_low,
        because="8 bytes a second, with 2 operations for each, are 16 operations a second: fewer "
        "than the 100 that could be computed.",
        rtol=1e-9,
        mistakes=[
            (
                100.0,
                "Computing allows that, but at this intensity the bytes come too slowly. Both "
                "limits hold at once: take the minimum.",
            ),
            *wrong_units(low, peak, bandwidth),
        ],
    )
    at_high = call_of(high, peak, bandwidth)
    close(
        number(at_high, lambda: attainable(high, peak, bandwidth)),
        100.0,
        at_high,
        because="8 bytes a second, with 50 operations for each, would be 400 operations: more than "
        "can be computed.",
        rtol=1e-9,
        mistakes=[
            (
                400.0,
                "Moving allows that, but no device computes faster than its peak. Both limits hold "
                "at once: take the minimum.",
            ),
            *wrong_units(high, peak, bandwidth),
        ],
    )


def call_of(intensity: float, peak: float, bandwidth: float) -> str:
    return f"attainable({intensity:g}, peak={peak:g}, bandwidth={bandwidth:g})"


def wrong_units(intensity: float, peak: float, bandwidth: float) -> list[tuple[float, str]]:
    bits = "bandwidth is in bytes already, not bits."
    return [
        (
            min(peak, bandwidth),
            "bandwidth is in bytes a second. Times the operations a byte, it becomes operations a "
            "second.",
        ),
        (
            min(peak, bandwidth / intensity),
            "Bytes a second times operations a byte are operations a second: multiply.",
        ),
        (min(peak, 8 * intensity * bandwidth), bits),
        (min(peak, intensity * bandwidth / 8), bits),
        (
            1 / (1 / peak + 1 / (intensity * bandwidth)),
            "That adds the two times, as if moving and computing took turns. A good kernel does "
            "both at once, and takes as long as the slower.",
        ),
    ]


def ridge_by_hand(ridge_point: Any) -> None:
    call = "ridge_point(peak=100, bandwidth=16)"
    bits = "bandwidth is in bytes already, not bits."
    close(
        number(call, lambda: ridge_point(100.0, 16.0)),
        6.25,
        call,
        because="With 6.25 operations a byte, 16 bytes a second keep exactly 100 operations a "
        "second busy.",
        rtol=1e-9,
        mistakes=[
            (0.16, "That is bytes an operation: the other way round."),
            (
                1600.0,
                "Operations a second over bytes a second are operations a byte: divide.",
            ),
            (
                100.0,
                "bandwidth plays a part: with twice as many bytes a second, half as many "
                "operations a byte suffice.",
            ),
            (6.25 / 8, bits),
            (6.25 * 8, bits),
        ],
    )


def by_times(attainable: Any, flops: int, num_bytes: int, peak: float, bandwidth: float) -> None:
    """The rate of a kernel that takes as long as the slower of its two tasks."""
    seconds = max(flops / peak, num_bytes / bandwidth)
    intensity = flops / num_bytes
    call = f"attainable({intensity:.4g}, {peak:.4g}, {bandwidth:.4g})"
    close(
        number(call, lambda: attainable(intensity, peak, bandwidth)),
        flops / seconds,
        call,
        because="Computing and moving go on at once, and the slower decides.",
        rtol=1e-6,
        atol=0.0,
    )


def at_the_ridge(attainable: Any, ridge_point: Any, peak: float, bandwidth: float) -> None:
    call = f"ridge_point({peak:.4g}, {bandwidth:.4g})"
    ridge = number(call, lambda: ridge_point(peak, bandwidth))
    for share in (0.5, 1.0):
        close(
            attainable(share * ridge, peak, bandwidth),
            share * peak,
            f"attainable at {share:g} × {call}",
            because="At the ridge the peak is just reached, below it a part of it.",
            rtol=1e-6,
            atol=0.0,
        )


def number(call: str, function: Any) -> float:
    with given(call, errors={ZeroDivisionError: "Neither function divides by an intensity."}):
        got = function()
    if not isinstance(got, int | float) or isinstance(got, bool):
        fail(f"{call} returned {short(got)}, expected a number.")
    return float(got)


def draw_roof(learner: Any) -> Any:
    """The roof of an H200, and where the learner's functions put some intensities."""
    from yaie.course.lessons.data_nb09 import kept
    from yaie.course.viz.roofline import Point, draw_roofline

    roof = kept().roof
    peak, bandwidth = roof.peak, roof.bandwidth
    ridge = learner.ridge_point(peak, bandwidth)
    points = [
        Point(f"{i:,g}", float(i), learner.attainable(float(i), peak, bandwidth), "your attainable")
        for i in (1, 4, 16, 64, 256, 1024)
    ]
    points.append(Point("", ridge, learner.attainable(ridge, peak, bandwidth), "your ridge point"))
    return draw_roofline([roof], points)
