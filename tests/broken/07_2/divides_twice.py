"""Divides shares by their sum relative to the maximum, once more."""

import torch

from yaie.ops.reference.online_softmax import finite

EXPECT = "This was divided twice"


def merge_states(a, b):
    (out_a, lse_a), (out_b, lse_b) = a, b
    lse = torch.logaddexp(lse_a, lse_b)
    weight_a = (lse_a - finite(lse)).exp()
    weight_b = (lse_b - finite(lse)).exp()
    top = finite(torch.maximum(lse_a, lse_b))
    total = ((lse_a - top).exp() + (lse_b - top).exp()).clamp(min=1.0).unsqueeze(-1)
    out = out_a * weight_a.unsqueeze(-1) + out_b * weight_b.unsqueeze(-1)
    return (out / total).to(out_a.dtype), lse
