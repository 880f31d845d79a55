"""Divides by the sum of the shares, which is 0 where neither part saw a key."""

import torch

from yaie.ops.reference.online_softmax import finite

EXPECT = "-inf - -inf is NaN"


def merge_states(a, b):
    (out_a, lse_a), (out_b, lse_b) = a, b
    top = finite(torch.maximum(lse_a, lse_b))
    sum_a, sum_b = ((lse - top).exp().unsqueeze(-1) for lse in (lse_a, lse_b))
    out = (out_a * sum_a + out_b * sum_b) / (sum_a + sum_b)
    return out.to(out_a.dtype), torch.logaddexp(lse_a, lse_b)
