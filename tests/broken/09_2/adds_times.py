"""Adds the times of moving and computing."""

EXPECT = "as if moving and computing took turns"


def attainable(intensity, peak, bandwidth):
    return 1 / (1 / peak + 1 / (intensity * bandwidth))


def ridge_point(peak, bandwidth):
    return peak / bandwidth
