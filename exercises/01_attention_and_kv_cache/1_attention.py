"""Exercise 01.1: Attention: causal, grouped, with its log-sum-exp.

Queries, keys and values of one sequence arrive. Score every key for every query, hide the keys
that a query must not see, turn the scores into weights, and average the values with them. Return
the output in the dtype of q, and for each row the logarithm of the sum of exp(score), which later
notebooks need to merge partial results: it is float32 whatever the dtype of q, also for float64
inputs. (The file also imports `safe_softmax`, with which the reference works; you do not need
it.)

You have
- `q`, `k`, `v`: `[query tokens, heads, head_dim]`, and twice `[key tokens, KV heads, head_dim]`;
  float16, bfloat16, float32 or float64
- `causal_mask(num_q, num_k)`: returns bool `[num_q, num_k]`, True where a query sees a key; the
  queries are the last tokens
- `torch.einsum(formula, a, b)`: a product of tensors; `"qhd,khd->hqk"` gives a score for each
  head, query and key
- `x.repeat_interleave(n, dim=1)`: each head n times, one after the other
- `scores.softmax(dim=-1)`, `scores.logsumexp(dim=-1)`: along the keys: the weights, and the
  logarithm of the sum of exp(score)
- `scores.masked_fill(mask, value)`: a copy with `value` where the mask is True
- `torch.promote_types(q.dtype, torch.float32)`: float32, or float64 if q is

In a terminal: yaie check 01.1, yaie hint 01.1, yaie reset 01.1.
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
    raise NotImplementedError("Exercise 01.1: Attention: causal, grouped, with its log-sum-exp")
