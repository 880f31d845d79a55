"""Subtracts -inf from -inf where neither part saw a key."""

import torch

EXPECT = "-inf - -inf is NaN"


def merge_states(a, b):
    (out_a, lse_a), (out_b, lse_b) = a, b
    lse = torch.logaddexp(lse_a, lse_b)
    weight_a = (lse_a - lse).exp().unsqueeze(-1)
    weight_b = (lse_b - lse).exp().unsqueeze(-1)
    return (out_a * weight_a + out_b * weight_b).to(out_a.dtype), lse
