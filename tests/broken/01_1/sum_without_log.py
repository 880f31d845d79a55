"""Returns the sum of exponentials without its logarithm."""

import torch

from yaie.ops.reference.attention import causal_mask

EXPECT = "take its logarithm"


def attention(q, k, v, causal=True, scale=None):
    (num_q, heads, dim), (num_k, kv_heads, _) = q.shape, k.shape
    group = heads // kv_heads
    scale = dim**-0.5 if scale is None else scale
    keys, values = (x.float().repeat_interleave(group, dim=1) for x in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q.float(), keys) * scale
    if causal:
        scores = scores.masked_fill(~causal_mask(num_q, num_k), float("-inf"))
    weights = scores.softmax(dim=2)
    out = torch.einsum("hqk,khd->qhd", weights, values)
    return out.to(q.dtype), scores.exp().sum(dim=2).T
