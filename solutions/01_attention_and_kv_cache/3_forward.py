"""Solution of exercise 01.3: An attention layer with a KV cache.

Put the layer together: project the new tokens to queries, keys and values, rotate queries and
keys by their positions, append the keys and values to those of the past, attend, and project
back. `apply_rotary` and `attention` take one sequence each, without the batch axis. Where
`position_ids` is passed, row b of it holds the positions of sequence b's new tokens, instead of
those that follow the past.

Generated from RadixAttentionBlock.forward in yaie/course/lessons/attention_block.py.
Edit it there, and run `python -m yaie.course build`.
"""

from __future__ import annotations

import torch

from yaie.course.lessons import attention_block as reference
from yaie.ops.reference.attention import attention
from yaie.ops.reference.rotary import apply_rotary


class RadixAttentionBlock(reference.RadixAttentionBlock):
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
