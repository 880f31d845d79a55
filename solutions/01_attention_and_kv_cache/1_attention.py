"""Solution of exercise 01.1: Attention: causal, grouped, with its log-sum-exp.

Queries, keys and values of one sequence arrive. Score every key for every query, hide the keys
that a query must not see, turn the scores into weights, and average the values with them. Return
the output in the dtype of q, and for each row the logarithm of the sum of exp(score), which later
notebooks need to merge partial results: it is float32 whatever the dtype of q, also for float64
inputs. (The file also imports `safe_softmax`, with which the reference works; you do not need
it.)

Generated from attention in yaie/ops/reference/attention.py.
Edit it there, and run `python -m yaie.course build`.
"""

from __future__ import annotations

import torch

from yaie.ops.reference.attention import causal_mask
from yaie.ops.reference.online_softmax import State, safe_softmax


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool = True,
    scale: float | None = None,
) -> State:
    """Compute softmax(q kᵀ · scale) v, with all scores in memory together.

    Args:
        q: `[query tokens, heads, head_dim]`.
        k, v: `[key tokens, KV heads, head_dim]`. Query head `h` reads KV head
            `h // (heads // KV heads)`.
        causal: the queries are the last tokens of the sequence, so that the last query sees all
            keys, the one before it all but the last, and so on (aligned bottom-right). Without it
            every query sees every key.
        scale: factor of the scores, by default 1 / sqrt(head_dim).

    Returns:
        Output `[query tokens, heads, head_dim]`, in the dtype of q, and the natural log-sum-exp
        of each row of scaled scores, `[query tokens, heads]`, float32 whatever the dtype of q, also
        for float64. Half precision is computed in float32. The arguments are left as they are.
    """
    (num_q, num_heads, head_dim), (num_k, num_kv_heads, _) = q.shape, k.shape
    group = num_heads // num_kv_heads
    scale = head_dim**-0.5 if scale is None else scale
    precision = torch.promote_types(q.dtype, torch.float32)
    # The query heads that share a KV head become rows of one product: [KV heads, group × q, dim].
    grouped = (q.to(precision) * scale).reshape(num_q, num_kv_heads, group, head_dim)
    grouped = grouped.permute(1, 2, 0, 3).reshape(num_kv_heads, group * num_q, head_dim)
    scores = torch.bmm(grouped, k.to(precision).permute(1, 2, 0))
    if causal and num_q > 1:  # one query is the last token, and sees everything
        hidden = ~causal_mask(num_q, num_k, q.device)
        scores.view(num_heads, num_q, num_k).masked_fill_(hidden, float("-inf"))
    weights, lse = safe_softmax(scores)
    out = torch.bmm(weights, v.to(precision).transpose(0, 1)).view(num_heads, num_q, head_dim)
    return out.transpose(0, 1).to(q.dtype), lse.view(num_heads, num_q).T.float()
