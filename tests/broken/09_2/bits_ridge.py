"""Takes bandwidth for bits."""

EXPECT = "bandwidth is in bytes already, not bits"


def attainable(intensity, peak, bandwidth):
    return min(peak, intensity * bandwidth)


def ridge_point(peak, bandwidth):
    return 8 * peak / bandwidth
