"""Bytes an operation."""

EXPECT = "the other way round"


def attainable(intensity, peak, bandwidth):
    return min(peak, intensity * bandwidth)


def ridge_point(peak, bandwidth):
    return bandwidth / peak
