"""Solution of exercise 20.5: The metadata in one Triton kernel.

Write the kernel in one launch. Each program loads the lengths of the whole batch, turns them into
ends by a prefix sum, finds the request of each of its TOKENS tokens, and stores both numbers.
`find_request` searches in two ways: BISECT=False compares all tokens with all ends in one block,
BISECT=True bisects.

Generated from find_request, fill_tokens_kernel in yaie/course/lessons/ops/triton/metadata.py.
Edit it there, and run `python -m yaie.course build`.
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
    if BISECT:
        before = tl.zeros_like(tokens)
        half = BATCH // 2
        while half > 0:
            passed = tl.gather(ends, before + half - 1, axis=0) <= tokens
            before += tl.where(passed, half, 0)
            half //= 2
    else:
        before = tl.sum((ends[None, :] <= tokens[:, None]).to(tl.int32), axis=1)
    return before


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
    requests = tl.arange(0, BATCH)
    lengths = tl.load(lengths_ptr + requests, mask=requests < batch, other=0)
    kv = tl.load(kv_ptr + requests, mask=requests < batch, other=0)
    ends = tl.cumsum(lengths, axis=0)
    tokens = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    inside = tokens < tl.minimum(num_tokens, tl.sum(lengths, axis=0))
    request = tl.minimum(find_request(ends, tokens, BATCH, BISECT), BATCH - 1)
    seen = tl.maximum(tl.gather(kv + 1 - ends, request, axis=0) + tokens, 0)
    tl.store(expanded_ptr + tokens, seen, mask=inside)
    tl.store(cached_ptr + tokens, tl.minimum(seen, topk), mask=inside)
