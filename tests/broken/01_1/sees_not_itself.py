"""Hides a token from itself."""

import torch

EXPECT = "does not see itself"


def attention(q, k, v, causal=True, scale=None):
    (num_q, heads, dim), (num_k, kv_heads, _) = q.shape, k.shape
    group = heads // kv_heads
    scale = dim**-0.5 if scale is None else scale
    keys, values = (x.float().repeat_interleave(group, dim=1) for x in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q.float(), keys) * scale
    if causal:
        mask = torch.ones(num_q, num_k).tril(num_k - num_q - 1) == 1
        scores = scores.masked_fill(~mask, float("-inf"))
    weights = scores.softmax(dim=2)
    out = torch.einsum("hqk,khd->qhd", weights, values)
    return out.to(q.dtype), scores.logsumexp(dim=2).T
