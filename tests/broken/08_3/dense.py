"""Computes all weights at once."""

from yaie.ops.reference.flash import heads_first, hidden_keys, tokens_first
from yaie.ops.reference.online_softmax import finite

EXPECT = "a tensor of shape"


def flash_backward(grad_out, q, k, v, lse, delta, causal, scale, tile_q, tile_k):
    num_q, num_k, heads, kv_heads = len(q), len(k), q.shape[1], k.shape[1]
    queries, grads, keys, values = (heads_first(x, heads) for x in (q, grad_out, k, v))
    scores = queries @ keys.mT * scale
    if causal:
        hidden = hidden_keys(range(num_k - num_q, num_k), range(num_k))
        scores.masked_fill_(hidden, float("-inf"))
    weights = (scores - finite(lse.T.unsqueeze(-1))).exp()
    grad_scores = weights * (grads @ values.mT - delta.T.unsqueeze(-1)) * scale
    grad_q = tokens_first(grad_scores @ keys, heads)
    grad_k = tokens_first(grad_scores.mT @ queries, kv_heads)
    return grad_q, grad_k, tokens_first(weights.mT @ grads, kv_heads)
