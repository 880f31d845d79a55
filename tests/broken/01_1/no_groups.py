"""Knows nothing of grouped-query attention."""

import torch

from yaie.ops.reference.attention import causal_mask

EXPECT = "for keys and for values"


def attention(q, k, v, causal=True, scale=None):
    num_q, num_k, dim = len(q), len(k), q.shape[2]
    scale = dim**-0.5 if scale is None else scale
    keys, values = k.float(), v.float()
    scores = torch.einsum("qhd,khd->hqk", q.float(), keys) * scale
    if causal:
        scores = scores.masked_fill(~causal_mask(num_q, num_k), float("-inf"))
    weights = scores.softmax(dim=2)
    out = torch.einsum("hqk,khd->qhd", weights, values)
    return out.to(q.dtype), scores.logsumexp(dim=2).T
