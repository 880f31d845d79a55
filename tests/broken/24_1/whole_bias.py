"""Adds the whole bias to a part of the columns."""

from torch.nn.functional import linear

from yaie.model.shards import part

EXPECT = "The shapes do not fit"


def column_parallel(x, weight, bias, rank, size):
    return linear(x, weight[part(len(weight), rank, size)], bias)


def row_parallel(x, weight, bias, rank, size, all_reduce):
    own = part(weight.shape[1], rank, size)
    out = all_reduce(linear(x, weight[:, own]))
    return out if bias is None else out + bias
