"""Compares operations with bytes."""

EXPECT = "bandwidth is in bytes a second"


def attainable(intensity, peak, bandwidth):
    return min(peak, bandwidth)


def ridge_point(peak, bandwidth):
    return peak / bandwidth
