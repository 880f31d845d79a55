"""Every rank computes the whole layer."""

from torch.nn.functional import linear

from yaie.model.shards import part

EXPECT = "A rank multiplies with its part of the weight only"


def column_parallel(x, weight, bias, rank, size):
    return linear(x, weight, bias)


def row_parallel(x, weight, bias, rank, size, all_reduce):
    own = part(weight.shape[1], rank, size)
    out = all_reduce(linear(x, weight[:, own]))
    return out if bias is None else out + bias
