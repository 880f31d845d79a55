"""Believes the data sheet."""

EXPECT = "at this intensity the bytes come too slowly"


def attainable(intensity, peak, bandwidth):
    return peak


def ridge_point(peak, bandwidth):
    return peak / bandwidth
