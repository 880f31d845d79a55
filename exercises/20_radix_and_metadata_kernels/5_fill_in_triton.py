"""Exercise 20.5: The metadata in one Triton kernel.

Write the kernel in one launch. Each program loads the lengths of the whole batch, turns them into
ends by a prefix sum, finds the request of each of its TOKENS tokens, and stores both numbers.
`find_request` searches in two ways: BISECT=False compares all tokens with all ends in one block,
BISECT=True bisects.

You have
- `lengths_ptr`, `kv_ptr`: int32 `[batch]`: new tokens and keys of each request
- `expanded_ptr`, `cached_ptr`: int32, at least `num_tokens` elements: the outputs
- `topk`, `num_tokens`, `batch`: ints
- `BATCH`, `TOKENS`: constants, powers of two: at least `batch`; tokens of a program. The grid is
  enough for `num_tokens`
- `tl.cumsum(x, axis=0)`: the inclusive prefix sum of a block
- `tl.gather(x, index, axis=0)`: the block of x[index]; every index from 0 to `BATCH` - 1
- `tl.sum(x, axis=1)`, `tl.minimum`, `tl.maximum`, `tl.where`, `tl.zeros_like(x)`: as in notebook
  11; a block of zeros of the same shape

In a terminal: yaie check 20.5, yaie hint 20.5, yaie reset 20.5.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def find_request(ends, tokens, BATCH: tl.constexpr, BISECT: tl.constexpr):
    """The request of each token: how many requests end at or before it.

    Args:
        ends: `[BATCH]`, rising: where the tokens of each request end. BATCH is a power of two;
            the ends after the last request repeat the last one.
        tokens: block of token numbers, from 0.
        BISECT: False compares every token with every end. True reads log2(BATCH) ends per token,
            one after the other.

    Returns:
        int32, of the shape of `tokens`. For a token past the last end it may be any number.
    """
    pass  # Exercise 20.5: The metadata in one Triton kernel


@triton.jit(do_not_specialize=["topk", "num_tokens", "batch"])
def fill_tokens_kernel(
    lengths_ptr,  # [batch]
    kv_ptr,  # [batch]
    expanded_ptr,  # [at least num_tokens]
    cached_ptr,  # [at least num_tokens]
    topk,
    num_tokens,
    batch,
    BATCH: tl.constexpr,
    TOKENS: tl.constexpr,
    BISECT: tl.constexpr,
):
    """Write how many keys each token sees: a program writes TOKENS tokens, of any requests.

    The new tokens of all requests lie end to end. Token t, of a request that ends at `end` and has
    `kv` keys, sees max(kv + 1 + t - end, 0) keys; that goes to `expanded`, and at most topk to
    `cached`. Nothing is written from token `num_tokens` on, nor past the last request's end.

    BATCH is a power of two, at least `batch`; BISECT is how `find_request` searches.
    """
    pass  # Exercise 20.5: The metadata in one Triton kernel
