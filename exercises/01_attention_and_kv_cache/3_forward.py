"""Exercise 01.3: An attention layer with a KV cache.

Put the layer together: project the new tokens to queries, keys and values, rotate queries and
keys by their positions, append the keys and values to those of the past, attend, and project
back. `apply_rotary` and `attention` take one sequence each, without the batch axis. Where
`position_ids` is passed, row b of it holds the positions of sequence b's new tokens, instead of
those that follow the past.

You have
- `self.q_proj`, `self.k_proj`, `self.v_proj`, `self.o_proj`: layers: `layer(x)` takes `[..., in]`
  and returns `[..., out]`
- `self.num_heads`, `self.num_kv_heads`, `self.head_dim`: ints
- `self.cos`, `self.sin`: float32 `[max_position_embeddings, head_dim / 2]`
- `apply_rotary(x, positions, cos, sin)`: of one sequence `[tokens, heads, head_dim]`, returns the
  same shape, rotated
- `attention(q, k, v)`: causal, of one sequence, as in exercise 01.1; returns the output and the
  log-sum-exp
- `past_key_value`: None, or a tuple of two tensors `[batch, past tokens, KV heads, head_dim]`
- `position_ids`: None, or int64 `[batch, tokens]`

In a terminal: yaie check 01.3, yaie hint 01.3, yaie reset 01.3.
What this file does not define is inherited from yaie/course/lessons/attention_block.py.
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
        raise NotImplementedError("Exercise 01.3: An attention layer with a KV cache")
