"""Splits the weight's rows."""

from torch.nn.functional import linear

from yaie.model.shards import part

EXPECT = "The shapes do not fit"


def column_parallel(x, weight, bias, rank, size):
    own = part(len(weight), rank, size)
    return linear(x, weight[own], None if bias is None else bias[own])


def row_parallel(x, weight, bias, rank, size, all_reduce):
    own = part(len(weight), rank, size)
    out = all_reduce(linear(x, weight[own]))
    return out if bias is None else out + bias
