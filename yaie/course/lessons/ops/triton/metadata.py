"""Metadata of draft-extend: a length for every token, from one for every request."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from yaie.ops.triton.runtime import launches

AT_ONCE = 1024  # requests whose lengths a program adds up in one step


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

    A program cannot pick one element of a block that it holds, so nothing is searched: where a
    request's tokens begin, its program finds by adding up the lengths of all requests before it.
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
