"""Solution of exercise 07.2: Merge two partial results.

Two attentions of the same queries over different keys arrive, each with its output, divided
already, and its log-sum-exp. Return the output and the log-sum-exp over all the keys, as if they
had been in one place. A part may have seen no key at all.

Generated from merge_states in yaie/course/lessons/online_softmax.py.
Edit it there, and run `python -m yaie.course build`.
"""

from __future__ import annotations

import torch

from yaie.course.lessons.online_softmax import finite
from yaie.ops.reference.online_softmax import State


def merge_states(a: State, b: State) -> State:
    """Merge attention over two disjoint sets of keys into attention over their union.

    The operation is associative and commutative, so partial results may be merged in any order.

    Args:
        a, b: outputs `[tokens, heads, head_dim]` and their log-sum-exps, float32
            `[tokens, heads]`. A row that saw no key has zeros and -inf.

    Returns:
        The output, in the dtype of a's, and its log-sum-exp, in the dtype of theirs. A row that
        saw no key in either has zeros and -inf. The arguments are left as they are.
    """
    (out_a, lse_a), (out_b, lse_b) = a, b
    lse = torch.logaddexp(lse_a, lse_b)
    weight_a = (lse_a - finite(lse)).exp().unsqueeze(-1)
    weight_b = (lse_b - finite(lse)).exp().unsqueeze(-1)
    return (out_a * weight_a + out_b * weight_b).to(out_a.dtype), lse
