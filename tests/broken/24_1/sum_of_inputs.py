"""Adds up the inputs before the product."""

from torch.nn.functional import linear

from yaie.model.shards import part

EXPECT = "What is added up are the ranks' results"


def column_parallel(x, weight, bias, rank, size):
    own = part(len(weight), rank, size)
    return linear(x, weight[own], None if bias is None else bias[own])


def row_parallel(x, weight, bias, rank, size, all_reduce):
    own = part(weight.shape[1], rank, size)
    out = linear(all_reduce(x), weight[:, own])
    return out if bias is None else out + bias
