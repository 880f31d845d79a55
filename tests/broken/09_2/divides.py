"""Divides by the intensity."""

EXPECT = "operations a second: multiply"


def attainable(intensity, peak, bandwidth):
    return min(peak, bandwidth / intensity)


def ridge_point(peak, bandwidth):
    return peak / bandwidth
