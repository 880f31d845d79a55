"""Solution of exercise 13.1: The online softmax in registers.

Two functions that every attention kernel of the engine calls: the step for one tile of scores,
and the end, which divides and takes the logarithm. They take and return blocks in registers;
nothing is loaded or stored. Exponentials are `tl.exp2`, powers of 2: `scale` has log2(e) in it.

Generated from online_step, finish in yaie/ops/triton/online.py.
Edit it there, and run `python -m yaie.course build`.
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
    higher = tl.maximum(maximum, tl.max(scores, 1) * scale)
    weights = tl.exp2(scores * scale - higher[:, None])
    rescale = tl.exp2(maximum - higher)
    total = total * rescale + tl.sum(weights, 1)
    return weights, higher, total, out * rescale[:, None]


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
    out = out / tl.where(total == 0.0, 1.0, total)[:, None]
    return out, (maximum + tl.log2(total)) * LN_2
