"""Takes all_reduce for a function that works in place."""

from torch.nn.functional import linear

from yaie.model.shards import part

EXPECT = "all_reduce returns the sum"


def column_parallel(x, weight, bias, rank, size):
    own = part(len(weight), rank, size)
    return linear(x, weight[own], None if bias is None else bias[own])


def row_parallel(x, weight, bias, rank, size, all_reduce):
    own = part(weight.shape[1], rank, size)
    out = linear(x, weight[:, own])
    all_reduce(out)
    return out
