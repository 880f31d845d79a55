"""Takes rows in steps of the number of ranks."""

from torch.nn.functional import linear

from yaie.model.shards import part

EXPECT = "column. Parts are contiguous"


def column_parallel(x, weight, bias, rank, size):
    bias = None if bias is None else bias[rank::size]
    return linear(x, weight[rank::size], bias)


def row_parallel(x, weight, bias, rank, size, all_reduce):
    own = part(weight.shape[1], rank, size)
    out = all_reduce(linear(x, weight[:, own]))
    return out if bias is None else out + bias
