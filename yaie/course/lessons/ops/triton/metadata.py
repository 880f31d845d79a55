"""Metadata of draft-extend: a length for every token, from one for every request."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from yaie.ops.registry import Unsupported
from yaie.ops.triton.runtime import launches

AT_ONCE = 1024  # requests whose lengths a program adds up in one step
TOKENS = 128  # per program that searches
MOST_REQUESTS = 4096  # requests whose lengths a program can hold
MOST_COMPARED = 1 << 14  # tokens × requests that linear search compares in one block


@triton.jit(do_not_specialize=["topk", "num_tokens"])
def fill_draft_extend_kernel(
    lengths_ptr,  # [batch]
    kv_ptr,  # [batch]
    expanded_ptr,  # [at least num_tokens]
    cached_ptr,  # [at least num_tokens]
    topk,
    num_tokens,
    BATCH: tl.constexpr,
    TOKENS: tl.constexpr,
):
    """A program writes the tokens of one request, TOKENS at a time.

    Nothing is searched: a program finds where its request's tokens begin by adding up the lengths
    of all requests before it.
    """
    b = tl.program_id(0)
    start = 0
    for first in range(0, b, BATCH):
        before = first + tl.arange(0, BATCH)
        start += tl.sum(tl.load(lengths_ptr + before, mask=before < b, other=0))
    length = tl.load(lengths_ptr + b)
    first_seen = tl.load(kv_ptr + b) - length + 1
    for first in range(0, length, TOKENS):
        i = first + tl.arange(0, TOKENS)
        inside = (i < length) & (start + i < num_tokens)
        seen = tl.maximum(first_seen + i, 0)
        tl.store(expanded_ptr + start + i, seen, mask=inside)
        tl.store(cached_ptr + start + i, tl.minimum(seen, topk), mask=inside)


@launches(computes=False)
def fill_draft_extend_metadata(
    extend_seq_lens: torch.Tensor,
    seq_lens: torch.Tensor,
    nsa_index_topk: int,
    out_seqlens_expanded: torch.Tensor,
    out_nsa_cache_seqlens: torch.Tensor,
    num_tokens: int,
) -> None:
    """Write how many keys each token sees, one program per request."""
    batch = len(extend_seq_lens)
    if batch == 0 or num_tokens == 0:
        return
    fill_draft_extend_kernel[(batch,)](
        extend_seq_lens,
        seq_lens,
        out_seqlens_expanded,
        out_nsa_cache_seqlens,
        nsa_index_topk,
        num_tokens,
        BATCH=min(triton.next_power_of_2(batch), AT_ONCE),
        TOKENS=32,
        num_warps=1,
    )


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


@launches(computes=False)
def fill_linear(lengths: torch.Tensor, *rest: torch.Tensor | int) -> None:
    """The same by programs that own tokens and compare them with every request."""
    _search(False, lengths, *rest)


@launches(computes=False)
def fill_binary(lengths: torch.Tensor, *rest: torch.Tensor | int) -> None:
    """The same by programs that own tokens and find their requests by bisection."""
    _search(True, lengths, *rest)


def _search(bisect: bool, lengths: torch.Tensor, *rest: torch.Tensor | int) -> None:
    kv, topk, expanded, cached, num_tokens = rest
    batch = len(lengths)
    if batch > MOST_REQUESTS:
        raise Unsupported(f"a program takes up to {MOST_REQUESTS} requests, got {batch}")
    if batch and num_tokens:
        size = triton.next_power_of_2(batch)
        tokens = TOKENS if bisect else min(TOKENS, MOST_COMPARED // size)
        fill_tokens_kernel[(triton.cdiv(num_tokens, tokens),)](
            *(lengths, kv, expanded, cached, topk, num_tokens, batch),
            BATCH=size, TOKENS=tokens, BISECT=bisect,
        )  # fmt: skip
