"""Metadata of draft-extend: how many keys each token of a ragged batch of drafts may see.

In speculative decoding a small model drafts a few tokens, the large one accepts some of them, and
the small one is then run over what was accepted, another number of tokens for each request: the
draft-extend step. Its attention wants a length for every token, and the engine has one for every
request. These functions in plain PyTorch are what the kernels are compared with.
"""

from __future__ import annotations

import torch


def prefix_sum(x: torch.Tensor) -> torch.Tensor:
    """The sums of all prefixes of `[n]`, int32: `[n + 1]`, the first 0 and the last of all of x.

    >>> prefix_sum(torch.tensor([1, 2, 3, 4], dtype=torch.int32)).tolist()
    [0, 1, 3, 6, 10]
    """
    out = x.new_zeros(len(x) + 1)
    torch.cumsum(x, 0, dtype=x.dtype, out=out[1:])
    return out


def fill_draft_extend_metadata(
    extend_seq_lens: torch.Tensor,
    seq_lens: torch.Tensor,
    nsa_index_topk: int,
    out_seqlens_expanded: torch.Tensor,
    out_nsa_cache_seqlens: torch.Tensor,
    num_tokens: int | None = None,
) -> int:
    """Write how many keys each of the batch's new tokens sees: all, and at most topk.

    The new tokens of all requests lie end to end. Token i of a request that has q new tokens and kv
    keys, these q included, sees v = kv - q + 1 + i of them: the last token sees all. Where that is
    below 0 it counts as 0. Requests with q = 0 have no tokens and take no place.

    Args:
        extend_seq_lens: int32 `[batch]`, the q of each request.
        seq_lens: int32 `[batch]`, the kv of each request.
        nsa_index_topk: how many keys the sparse attention keeps at most; not negative.
        out_seqlens_expanded: int32, at least one element per token; takes max(v, 0). What lies
            beyond the last token is left as it is.
        out_nsa_cache_seqlens: the same; takes min(max(v, 0), topk).
        num_tokens: the sum of extend_seq_lens, if the caller knows it. Nothing is then read back
            from the device; without it, one number is.

    Returns:
        The number of tokens.

    Raises:
        ValueError: an output is shorter than the number of tokens; nothing is written then.
    """
    if num_tokens is None:
        num_tokens = int(extend_seq_lens.sum())
    for name, out in (
        ("out_seqlens_expanded", out_seqlens_expanded),
        ("out_nsa_cache_seqlens", out_nsa_cache_seqlens),
    ):
        if len(out) < num_tokens:
            raise ValueError(f"{name} must have room for {num_tokens} tokens, got {len(out)}")
    ends = extend_seq_lens.cumsum(0)
    tokens = torch.arange(num_tokens, device=extend_seq_lens.device)
    request = torch.searchsorted(ends, tokens, right=True)  # the first that ends beyond the token
    seen = ((seq_lens - ends + 1)[request] + tokens).clamp(min=0)
    out_seqlens_expanded[:num_tokens] = seen
    out_nsa_cache_seqlens[:num_tokens] = seen.clamp(max=nsa_index_topk)
    return num_tokens


def fill(*arguments: torch.Tensor | int) -> None:
    """The same as an operator of torch.library: `num_tokens` is given, nothing is returned."""
    fill_draft_extend_metadata(*arguments)
