"""Solution of exercise 13.5: The loop of the flash kernel.

Take the keys from `begin` to `end` of one sequence into the state of the online softmax, a tile
of BLOCK_N at a time, and return the new state: maximum, total, out. Keys and values lie end to
end with those of other sequences, and are loaded through descriptors. With MASKED a query sees
the keys up to its `last_key`; with BEYOND the last tile reaches past the sequence, and what lies
there may be NaN. Both are known when the kernel is compiled, so an `if` costs nothing where they
are False.

Generated from attend in yaie/ops/triton/flash.py.
Edit it there, and run `python -m yaie.course build`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from yaie.ops.triton.online import online_step


@triton.jit
def attend(
    q,  # [BLOCK_M, DIM]
    k_desc,
    v_desc,  # [KV heads, tokens, DIM], tiles of [1, BLOCK_N, DIM]
    kv_head,
    first_key,  # where the sequence begins
    begin,
    end,  # keys of the sequence to attend to
    num_keys,
    last_key,  # [BLOCK_M], the last key that each query sees
    scale,  # of scores, times log2(e): exp2 is the hardware's exponential
    maximum,
    total,
    out,  # the state of the online softmax
    MASKED: tl.constexpr,  # whether some query may not see some key
    BEYOND: tl.constexpr,  # whether the last tile reaches beyond the sequence
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    DIM: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Take the keys from `begin` to `end` into the state, a tile at a time."""
    for start in tl.range(begin, end, BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N)
        k = k_desc.load([kv_head, first_key + start, 0]).reshape(BLOCK_N, DIM)
        scores = tl.dot(q, k.T, input_precision=PRECISION)
        if MASKED:
            scores = tl.where(keys[None, :] <= last_key[:, None], scores, float("-inf"))
        weights, maximum, total, out = online_step(scores, scale, maximum, total, out)
        v = v_desc.load([kv_head, first_key + start, 0]).reshape(BLOCK_N, DIM)
        if BEYOND:  # there lie another sequence's values, and a weight of 0 times NaN is NaN
            v = tl.where(keys[:, None] < num_keys, v, 0.0)
        out = tl.dot(weights.to(v.dtype), v, out, input_precision=PRECISION)
    return maximum, total, out
