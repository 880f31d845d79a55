"""Multiplies outputs by shares that have no axis for head_dim."""

import torch

from yaie.ops.reference.online_softmax import finite

EXPECT = "a share needs an axis for head_dim"


def merge_states(a, b):
    (out_a, lse_a), (out_b, lse_b) = a, b
    lse = torch.logaddexp(lse_a, lse_b)
    weight_a = (lse_a - finite(lse)).exp()
    weight_b = (lse_b - finite(lse)).exp()
    return (out_a * weight_a + out_b * weight_b).to(out_a.dtype), lse
