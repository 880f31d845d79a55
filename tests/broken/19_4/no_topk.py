"""Writes the same into both outputs."""

import torch

EXPECT = "keys at most"


def fill_draft_extend_metadata(
    extend_seq_lens,
    seq_lens,
    nsa_index_topk,
    out_seqlens_expanded,
    out_nsa_cache_seqlens,
    num_tokens=None,
):
    if num_tokens is None:
        num_tokens = int(extend_seq_lens.sum())
    for out in (out_seqlens_expanded, out_nsa_cache_seqlens):
        if len(out) < num_tokens:
            raise ValueError(f"an output has {len(out)} of {num_tokens} elements")
    ends = extend_seq_lens.cumsum(0)
    tokens = torch.arange(num_tokens, device=extend_seq_lens.device)
    request = torch.searchsorted(ends, tokens, right=True)
    seen = ((seq_lens - ends + 1)[request] + tokens).clamp(min=0)
    out_seqlens_expanded[:num_tokens] = seen
    out_nsa_cache_seqlens[:num_tokens] = seen
    return num_tokens
