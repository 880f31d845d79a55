"""A row that saw nothing is divided by its total of 0."""

import triton
import triton.language as tl

from yaie.ops.triton.online import LN_2

EXPECT = "0 / 0 is NaN"


@triton.jit
def online_step(scores, scale, maximum, total, out):
    higher = tl.maximum(maximum, tl.max(scores, 1) * scale)
    weights = tl.exp2(scores * scale - higher[:, None])
    rescale = tl.exp2(maximum - higher)
    total = total * rescale + tl.sum(weights, 1)
    return weights, higher, total, out * rescale[:, None]


@triton.jit
def finish(maximum, total, out):
    out = out / total[:, None]
    return out, (maximum + tl.log2(total)) * LN_2
