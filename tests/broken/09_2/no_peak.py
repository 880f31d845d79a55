"""Forgets the peak."""

EXPECT = "no device computes faster than its peak"


def attainable(intensity, peak, bandwidth):
    return intensity * bandwidth


def ridge_point(peak, bandwidth):
    return peak / bandwidth
