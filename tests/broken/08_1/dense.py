"""Calls the dense attention."""

from yaie.ops.reference.attention import attention

EXPECT = "a tensor of shape"


def flash_forward(q, k, v, causal, scale, tile_q, tile_k):
    return attention(q, k, v, causal, scale)
