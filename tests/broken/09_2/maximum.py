"""Takes the higher limit."""

EXPECT = "Both limits hold at once: take the minimum"


def attainable(intensity, peak, bandwidth):
    return max(peak, intensity * bandwidth)


def ridge_point(peak, bandwidth):
    return peak / bandwidth
