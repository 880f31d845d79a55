"""Exercise 07.2: Merge two partial results.

Two attentions of the same queries over different keys arrive, each with its output, divided
already, and its log-sum-exp. Return the output and the log-sum-exp over all the keys, as if they
had been in one place. A part may have seen no key at all.

You have
- `a`, `b`: pairs of an output `[tokens, heads, head_dim]`, divided already, and its log-sum-exp
  `[tokens, heads]`; zeros and -inf where no key was seen
- `torch.logaddexp(x, y)`: log(exp x + exp y), element by element, without overflow; -inf of two
  -inf
- `finite(x)`: returns a copy with 0 in place of -inf
- `x.unsqueeze(-1)`: an axis of length 1 more, at the end

In a terminal: yaie check 07.2, yaie hint 07.2, yaie reset 07.2.
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
    raise NotImplementedError("Exercise 07.2: Merge two partial results")
