"""Groups the values, and repeats the keys in another order."""

import torch

from yaie.ops.reference.attention import causal_mask

EXPECT = "the keys are not"


def attention(q, k, v, causal=True, scale=None):
    (num_q, heads, dim), (num_k, kv_heads, _) = q.shape, k.shape
    group = heads // kv_heads
    scale = dim**-0.5 if scale is None else scale
    values = v.float().repeat_interleave(group, dim=1)
    keys = k.float().repeat(1, group, 1)
    scores = torch.einsum("qhd,khd->hqk", q.float(), keys) * scale
    if causal:
        scores = scores.masked_fill(~causal_mask(num_q, num_k), float("-inf"))
    weights = scores.softmax(dim=2)
    out = torch.einsum("hqk,khd->qhd", weights, values)
    return out.to(q.dtype), scores.logsumexp(dim=2).T
