"""Writes as many tokens as there is room for."""

import torch

EXPECT = "has to be refused in words"


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
    num_tokens = min(num_tokens, len(out_seqlens_expanded), len(out_nsa_cache_seqlens))
    ends = extend_seq_lens.cumsum(0)
    tokens = torch.arange(num_tokens, device=extend_seq_lens.device)
    request = torch.searchsorted(ends, tokens, right=True)
    seen = ((seq_lens - ends + 1)[request] + tokens).clamp(min=0)
    out_seqlens_expanded[:num_tokens] = seen
    out_nsa_cache_seqlens[:num_tokens] = seen.clamp(max=nsa_index_topk)
    return num_tokens
