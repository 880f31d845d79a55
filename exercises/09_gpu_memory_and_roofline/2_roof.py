"""Exercise 09.2: The roofline and its ridge.

A device computes at most `peak` operations per second, and at the same time moves at most
`bandwidth` bytes per second. Say how many operations per second it can reach at a given
arithmetic intensity, and at which intensity the two limits meet.

You have
- `intensity`: operations per byte, a float
- `peak`, `bandwidth`: operations per second and bytes per second, floats

In a terminal: yaie check 09.2, yaie hint 09.2, yaie reset 09.2.
"""

from __future__ import annotations


def attainable(intensity: float, peak: float, bandwidth: float) -> float:
    """The most operations per second that a device can do at an arithmetic intensity.

    Args:
        intensity: operations per byte.
        peak: operations per second, if no byte had to move.
        bandwidth: bytes per second.

    Returns:
        Operations per second: what computing allows, or what moving allows, whichever is less.
    """
    raise NotImplementedError("Exercise 09.2: The roofline and its ridge")


def ridge_point(peak: float, bandwidth: float) -> float:
    """The intensity at which computing takes as long as moving, in operations per byte.

    Below it an operation is memory-bound, above it compute-bound.

    Args:
        peak: operations per second.
        bandwidth: bytes per second.
    """
    raise NotImplementedError("Exercise 09.2: The roofline and its ridge")
