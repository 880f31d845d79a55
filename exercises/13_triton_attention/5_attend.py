"""Exercise 13.5: The loop of the flash kernel.

Take the keys from `begin` to `end` of one sequence into the state of the online softmax, a tile
of BLOCK_N at a time, and return the new state: maximum, total, out. Keys and values lie end to
end with those of other sequences, and are loaded through descriptors. With MASKED a query sees
the keys up to its `last_key`; with BEYOND the last tile reaches past the sequence, and what lies
there may be NaN. Both are known when the kernel is compiled, so an `if` costs nothing where they
are False.

You have
- `q`: [BLOCK_M, DIM], the tile of queries
- `k_desc.load([head, token, 0])`: a tile [1, BLOCK_N, DIM] from that token on, of the tensor [KV
  heads, tokens, DIM]; zeros past the tensor's end. `v_desc` likewise
- `tile.reshape(BLOCK_N, DIM)`: without the first axis; `k.T` is transposed
- `kv_head`, `first_key`: the head to read, and the token at which the sequence begins
- `begin`, `end`, `num_keys`: keys of the sequence, counted from its first; begin is a multiple of
  BLOCK_N
- `last_key`: [BLOCK_M], the last key that each query sees; it means something only with MASKED
- `tl.range(begin, end, BLOCK_N)`: the loop that the compiler may run ahead in
- `tl.dot(a, b, input_precision=PRECISION)`, `tl.dot(a, b, c, input_precision=PRECISION)`: a × b,
  and a × b + c; a and b of the same dtype
- `online_step(scores, scale, maximum, total, out)`: that of 13.1: the weights in float32, the new
  maximum, the new total, `out` moved to the new maximum
- `tl.where(condition, x, y)`: x where the condition holds; shapes are broadcast
- `v.dtype`, `x.to(dtype)`: the dtype of a block, and a block in another dtype

In a terminal: yaie check 13.5, yaie hint 13.5, yaie reset 13.5.
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
    pass  # Exercise 13.5: The loop of the flash kernel
