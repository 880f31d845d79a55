"""Writes the first output before it looks at the second."""

import torch

EXPECT = "something had been written"


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
    if len(out_seqlens_expanded) < num_tokens:
        raise ValueError("out_seqlens_expanded is too short")
    ends = extend_seq_lens.cumsum(0)
    tokens = torch.arange(num_tokens, device=extend_seq_lens.device)
    request = torch.searchsorted(ends, tokens, right=True)
    seen = ((seq_lens - ends + 1)[request] + tokens).clamp(min=0)
    out_seqlens_expanded[:num_tokens] = seen
    if len(out_nsa_cache_seqlens) < num_tokens:
        raise ValueError("out_nsa_cache_seqlens is too short")
    out_nsa_cache_seqlens[:num_tokens] = seen.clamp(max=nsa_index_topk)
    return num_tokens
