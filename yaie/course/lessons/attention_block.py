"""The attention layer of a Llama with a cache that grows, before there are pages (notebook 01)."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import nn

from yaie.ops.reference.attention import attention
from yaie.ops.reference.rotary import apply_rotary, rotary_tables


class RadixAttentionBlock(nn.Module):
    """The attention layer of a Llama: projections, rotary embedding, cache, attention.

    Args:
        hidden_size: width of the model.
        num_heads, head_dim: query heads and the size of each.
        max_position_embeddings: how many positions the rotary tables cover; 2048 by default.
        num_kv_heads: key and value heads; `num_heads` by default.
        rope_base: base of the rotary frequencies.
    """

    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        head_dim: int,
        max_position_embeddings: int = 2048,
        num_kv_heads: int | None = None,
        rope_base: float = 10000.0,
    ) -> None:
        super().__init__()
        self.num_heads, self.head_dim = num_heads, head_dim
        self.num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        if num_heads % self.num_kv_heads:
            raise ValueError(
                f"num_heads must be a multiple of num_kv_heads, got {num_heads} and {num_kv_heads}"
            )
        self.q_proj = nn.Linear(hidden_size, num_heads * head_dim, bias=False)
        self.k_proj = nn.Linear(hidden_size, self.num_kv_heads * head_dim, bias=False)
        self.v_proj = nn.Linear(hidden_size, self.num_kv_heads * head_dim, bias=False)
        self.o_proj = nn.Linear(num_heads * head_dim, hidden_size, bias=False)
        self.register_forward_pre_hook(_check, with_kwargs=True)
        # No buffers: `.half()` would round those.
        self.cos, self.sin = rotary_tables(head_dim, max_position_embeddings, rope_base)

    def forward(
        self,
        hidden_states: torch.Tensor,
        past_key_value: tuple[torch.Tensor, torch.Tensor] | None = None,
        use_cache: bool = False,
        position_ids: torch.Tensor | None = None,
    ) -> torch.Tensor | tuple[torch.Tensor, None, tuple[torch.Tensor, torch.Tensor]]:
        """Attend from new tokens to themselves and to the past.

        Args:
            hidden_states: the new tokens, `[batch, tokens, hidden_size]`.
            past_key_value: keys and values of the tokens before, rotated already,
                `[batch, past tokens, KV heads, head_dim]` each: tokens before heads, as in a KV
                block. transformers swaps the two axes.
            use_cache: also return keys and values of all tokens so far.
            position_ids: int64 `[batch, tokens]`, the position of each new token, by which it is
                rotated; by default the positions that follow the past. The mask goes by the order
                of the tokens.

        Returns:
            The output, `[batch, tokens, hidden_size]`; with `use_cache` the output, None (the
            attention weights are not kept), and the new past, laid out as the old one, which is
            left as it is.

        Raises:
            ValueError: past and new tokens together exceed `max_position_embeddings`.
            ValueError, TypeError: before this method is called, for `position_ids` that do not fit
                and for hidden states of another dtype than the weights.
        """
        batch, num_tokens, _ = hidden_states.shape
        past = 0 if past_key_value is None else past_key_value[0].shape[1]
        if past + num_tokens > len(self.cos):
            raise ValueError(
                f"hidden_states: {past} past and {num_tokens} new tokens exceed "
                f"max_position_embeddings={len(self.cos)}"
            )
        positions = torch.arange(past, past + num_tokens, device=hidden_states.device)
        positions = positions.expand(batch, -1) if position_ids is None else position_ids
        q = self.q_proj(hidden_states).view(batch, num_tokens, self.num_heads, self.head_dim)
        k = self.k_proj(hidden_states).view(batch, num_tokens, self.num_kv_heads, self.head_dim)
        v = self.v_proj(hidden_states).view(batch, num_tokens, self.num_kv_heads, self.head_dim)
        cos, sin = self.cos.to(positions.device), self.sin.to(positions.device)
        q = torch.stack([apply_rotary(x, at, cos, sin) for x, at in zip(q, positions, strict=True)])
        k = torch.stack([apply_rotary(x, at, cos, sin) for x, at in zip(k, positions, strict=True)])
        if past_key_value is not None:
            k = torch.cat((past_key_value[0], k), dim=1)
            v = torch.cat((past_key_value[1], v), dim=1)
        out = torch.stack([attention(*qkv)[0] for qkv in zip(q, k, v, strict=True)])
        out = self.o_proj(out.flatten(2))
        return (out, None, (k, v)) if use_cache else out


def _check(block: RadixAttentionBlock, arguments: tuple, options: dict[str, Any]) -> None:
    """Refuse what the block cannot compute, before `forward` is called."""
    bound = inspect.signature(RadixAttentionBlock.forward).bind(block, *arguments, **options)
    hidden, positions = bound.arguments["hidden_states"], bound.arguments.get("position_ids")
    if hidden.dtype != (dtype := block.q_proj.weight.dtype):
        raise TypeError(
            f"hidden_states must be {dtype} as the block's weights are, got {hidden.dtype}: "
            f"convert the block with block.to({hidden.dtype})"
        )
    if positions is None:
        return
    if positions.shape != hidden.shape[:2]:
        wanted, got = list(hidden.shape[:2]), list(positions.shape)
        raise ValueError(f"position_ids must have the shape {wanted}, got {got}")
    outside = positions[(positions < 0) | (positions >= len(block.cos))]
    if len(outside):
        most = f"max_position_embeddings - 1 = {len(block.cos) - 1}"
        raise ValueError(f"position_ids must be from 0 to {most}, got {outside[0].item()}")
