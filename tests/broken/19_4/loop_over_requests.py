"""Takes the lengths to the host and makes a range for each request."""

import torch

EXPECT = ".tolist()"


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
    parts = [torch.arange(0, device=seq_lens.device)]
    for q, kv in zip(extend_seq_lens.tolist(), seq_lens.tolist(), strict=True):
        parts.append(torch.arange(kv - q + 1, kv + 1, device=seq_lens.device))
    seen = torch.cat(parts).clamp(min=0)
    out_seqlens_expanded[:num_tokens] = seen
    out_nsa_cache_seqlens[:num_tokens] = seen.clamp(max=nsa_index_topk)
    return num_tokens
