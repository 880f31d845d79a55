"""Exercise 20.4: Metadata in torch, without a hidden copy.

The same metadata in torch's operators, for all tokens together, and what has to precede any
kernel: how many tokens there are, and whether the outputs have room for them. If the caller gives
num_tokens, nothing may be copied from the device to the host: no .item(), .tolist() or .cpu(), no
loop over a tensor, no operator whose result has a size that only the device knows.

You have
- `extend_seq_lens`, `seq_lens`: int32 `[batch]`: new tokens of each request, and its keys, the
  new tokens' included
- `nsa_index_topk`: int, the most keys that a token's second number may say
- `out_seqlens_expanded`, `out_nsa_cache_seqlens`: int32, the outputs; they may be longer than
  needed
- `num_tokens`: None, or how many new tokens there are
- `lengths.cumsum(0)`: running sums
- `torch.searchsorted(ends, tokens, right=True)`: for each token the first index whose end is
  greater than it
- `x.clamp(min=, max=)`: a copy within bounds

In a terminal: yaie check 20.4, yaie hint 20.4, yaie reset 20.4.
"""

from __future__ import annotations

import torch


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
    raise NotImplementedError("Exercise 20.4: Metadata in torch, without a hidden copy")
