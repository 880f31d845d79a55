"""Computes the prompt without a causal mask."""

import torch

EXPECT = "No key is masked"


def attention(q, k, v, causal=True, scale=None):
    (_, heads, dim), (_, kv_heads, _) = q.shape, k.shape
    group = heads // kv_heads
    scale = dim**-0.5 if scale is None else scale
    keys, values = (x.float().repeat_interleave(group, dim=1) for x in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q.float(), keys) * scale
    weights = scores.softmax(dim=2)
    out = torch.einsum("hqk,khd->qhd", weights, values)
    return out.to(q.dtype), scores.logsumexp(dim=2).T
