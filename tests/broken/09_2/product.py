"""Multiplies."""

EXPECT = "are operations a byte: divide"


def attainable(intensity, peak, bandwidth):
    return min(peak, intensity * bandwidth)


def ridge_point(peak, bandwidth):
    return peak * bandwidth
