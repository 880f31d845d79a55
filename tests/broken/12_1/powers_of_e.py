"""Exponentials of e, although the scale has log2(e) in it."""

import triton
import triton.language as tl

from yaie.ops.triton.online import LN_2

EXPECT = "powers of e"


@triton.jit
def online_step(scores, scale, maximum, total, out):
    higher = tl.maximum(maximum, tl.max(scores, 1) * scale)
    weights = tl.exp(scores * scale - higher[:, None])
    rescale = tl.exp(maximum - higher)
    total = total * rescale + tl.sum(weights, 1)
    return weights, higher, total, out * rescale[:, None]


@triton.jit
def finish(maximum, total, out):
    out = out / tl.where(total == 0.0, 1.0, total)[:, None]
    return out, (maximum + tl.log2(total)) * LN_2
