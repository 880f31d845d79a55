"""Takes the weight's columns in steps."""

from torch.nn.functional import linear

from yaie.model.shards import part

EXPECT = "columns were taken in steps of"


def column_parallel(x, weight, bias, rank, size):
    own = part(len(weight), rank, size)
    return linear(x, weight[own], None if bias is None else bias[own])


def row_parallel(x, weight, bias, rank, size, all_reduce):
    out = all_reduce(linear(x, weight[:, rank::size]))
    return out if bias is None else out + bias
