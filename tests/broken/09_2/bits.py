"""Takes bandwidth for bits."""

EXPECT = "bandwidth is in bytes already, not bits"


def attainable(intensity, peak, bandwidth):
    return min(peak, intensity * bandwidth / 8)


def ridge_point(peak, bandwidth):
    return peak / bandwidth
