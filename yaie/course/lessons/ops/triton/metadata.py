"""Metadata of draft-extend: a length for every token, from one for every request."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from yaie.ops.registry import Unsupported
from yaie.ops.triton.runtime import launches

AT_ONCE = 1024  # requests whose lengths a program adds up in one step
TOKENS = 128  # tokens of a program that searches
MOST_REQUESTS = {False: 128, True: 4096}  # that it can compare with each token; that it can bisect


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
    """The request of each token: how many of the `[BATCH]` rising ends are at or before it.

    Linear search compares every token with every end. Bisection, for a BATCH that is a power of
    two, reads log2(BATCH) of them, one after the other, and returns at most BATCH - 1.
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
    """A program writes TOKENS tokens, of any requests, and sums up all lengths to find theirs.

    BATCH is a power of two, at least `batch`. Nothing is written from token `num_tokens` on, nor
    past the last request's end.
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
    """The same, one program per TOKENS tokens, each token compared with every request."""
    _search(False, lengths, *rest)


@launches(computes=False)
def fill_binary(lengths: torch.Tensor, *rest: torch.Tensor | int) -> None:
    """The same, one program per TOKENS tokens, each token's request found by bisection."""
    _search(True, lengths, *rest)


def _search(
    bisect: bool,
    lengths: torch.Tensor,
    *rest: torch.Tensor | int,
    kernel: triton.JITFunction = fill_tokens_kernel,
) -> None:
    kv, topk, expanded, cached, num_tokens = rest
    batch = len(lengths)
    if batch > MOST_REQUESTS[bisect]:
        raise Unsupported(f"a program takes up to {MOST_REQUESTS[bisect]} requests, got {batch}")
    if batch and num_tokens:
        kernel[(triton.cdiv(num_tokens, TOKENS),)](
            *(lengths, kv, expanded, cached, topk, num_tokens, batch),
            BATCH=triton.next_power_of_2(batch), TOKENS=TOKENS, BISECT=bisect,
        )  # fmt: skip
