"""Exercise 13.1: The online softmax in registers.

Two functions that every attention kernel of the engine calls: the step for one tile of scores,
and the end, which divides and takes the logarithm. They take and return blocks in registers;
nothing is loaded or stored. Exponentials are `tl.exp2`, powers of 2: `scale` has log2(e) in it.

You have
- `scores`: a block `[rows, keys]`, not yet scaled; -inf where a key is hidden
- `scale`: a float, with log2(e) in it
- `maximum`, `total`, `out`: the state: `[rows]`, `[rows]` and `[rows, head_dim]`; the maximum is
  of scaled scores, finite from the beginning
- `tl.maximum(a, b)`: the larger of each pair of two blocks
- `tl.max(x, 1)`, `tl.sum(x, 1)`: of each row of a block
- `tl.exp2(x)`, `tl.log2(x)`, `tl.where(condition, a, b)`: powers and logarithms to base 2; a
  where the condition holds, otherwise b
- `x[:, None]`: a block as a column
- `LN_2`: log(2), which turns a logarithm to base 2 into a natural one

In a terminal: yaie check 13.1, yaie hint 13.1, yaie reset 13.1.
"""

from __future__ import annotations

import triton
import triton.language as tl

from yaie.ops.triton.online import LN_2


@triton.jit
def online_step(scores, scale, maximum, total, out):
    """Take a tile of scores into the state of the online softmax.

    Let s be a score times `scale`, which is positive and has log2(e) in it. For each row, over all
    scores so far, `maximum` is the largest s, `total` the sum of 2^(s - maximum), and `out` the
    sum of 2^(s - maximum) × value. Before the first tile they are LOWEST, 0 and 0. LOWEST is
    finite: a row of scores may hold nothing but -inf, and keeps LOWEST then.

    Args:
        scores: [rows, keys], not scaled; -inf where a query must not see a key.
        scale: one number.
        maximum, total: [rows].
        out: [rows, head_dim].

    Returns:
        Four blocks: the weights 2^(s - new maximum) of this tile, [rows, keys]; the new maximum;
        the new total, with this tile in it; `out` moved to the new maximum, to which the caller
        adds weights × values.
    """
    pass  # Exercise 13.1: The online softmax in registers


@triton.jit
def finish(maximum, total, out):
    """Turn the state of the online softmax into the result.

    Args:
        maximum, total: [rows], as `online_step` left them, with powers of 2.
        out: [rows, head_dim].

    Returns:
        The output, [rows, head_dim], and the natural log-sum-exp of the scaled scores, [rows]. A
        row that saw nothing has zeros and -inf; `tl.log2` of 0 is -inf.
    """
    pass  # Exercise 13.1: The online softmax in registers
