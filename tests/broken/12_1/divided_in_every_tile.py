"""The output is divided after each tile."""

import triton
import triton.language as tl

from yaie.ops.triton.online import LN_2

EXPECT = "Nothing is divided before the end"


@triton.jit
def online_step(scores, scale, maximum, total, out):
    higher = tl.maximum(maximum, tl.max(scores, 1) * scale)
    weights = tl.exp2(scores * scale - higher[:, None])
    rescale = tl.exp2(maximum - higher)
    total = total * rescale + tl.sum(weights, 1)
    return weights, higher, total, out / total[:, None]


@triton.jit
def finish(maximum, total, out):
    out = out / tl.where(total == 0.0, 1.0, total)[:, None]
    return out, (maximum + tl.log2(total)) * LN_2
