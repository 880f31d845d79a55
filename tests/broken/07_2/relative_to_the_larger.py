"""Weights relative to the larger log-sum-exp, and does not divide."""

import torch

from yaie.ops.reference.online_softmax import finite

EXPECT = "The shares do not add up to 1"


def merge_states(a, b):
    (out_a, lse_a), (out_b, lse_b) = a, b
    top = finite(torch.maximum(lse_a, lse_b))
    weight_a, weight_b = ((lse - top).exp().unsqueeze(-1) for lse in (lse_a, lse_b))
    out = out_a * weight_a + out_b * weight_b
    return out.to(out_a.dtype), torch.logaddexp(lse_a, lse_b)
