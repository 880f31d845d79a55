"""A Llama whose attention reads and writes a paged cache.

One forward pass takes a ragged batch: prompts, pieces of prompts and single decode steps in any
mix, flattened to one axis of tokens. Everything but attention treats each token alone; attention
finds each sequence's keys and values through its block table.

Query, key and value projections are one matrix, gate and up too: with few tokens in a batch a
product costs the reading of its weights, and fewer, larger products read them at a better rate.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import nn
from torch.nn.functional import embedding, rms_norm, silu

from yaie.attention import apply_rotary, rotary_tables
from yaie.model.batch import Batch
from yaie.model.config import ModelConfig, RopeScaling
from yaie.model.linear import Linear
from yaie.ops.attention import paged_attention_forward
from yaie.ops.kv import reshape_and_cache


class Llama(nn.Module):
    """The model, with memory for its weights; `yaie.model.weights.load_model` fills it.

    Args:
        config: sizes and constants.
        dtype: of weights, activations and cache; logits are float32 in any case.
        device: where the weights lie.
        apply_rotary, paged_attention: the operators to compute with, those of the engine by
            default (`yaie.attention.apply_rotary`, `yaie.ops.attention.paged_attention_forward`).
    """

    def __init__(
        self,
        config: ModelConfig,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
        apply_rotary: Callable = apply_rotary,
        paged_attention: Callable = paged_attention_forward,
    ):
        super().__init__()
        self.config, self.dtype = config, dtype
        self.apply_rotary, self.paged_attention = apply_rotary, paged_attention

        def weight(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(shape, dtype=dtype, device=device), requires_grad=False)

        self.embed = weight(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config, weight) for _ in range(config.num_hidden_layers))
        self.norm = weight(config.hidden_size)
        tied = config.tie_word_embeddings
        self.lm_head = Linear(self.embed if tied else weight(*self.embed.shape))
        cos, sin = scaled_rotary_tables(config)
        self.register_buffer("cos", cos.to(device), persistent=False)
        self.register_buffer("sin", sin.to(device), persistent=False)

    @torch.inference_mode()
    def forward(
        self, batch: Batch, key_pools: list[torch.Tensor], value_pools: list[torch.Tensor]
    ) -> torch.Tensor:
        """Logits, float32 `[rows, vocab_size]`, of the rows that `batch.logit_rows` names.

        Keys and values of all tokens of the batch are written into the pools, one of each a layer,
        `[num_blocks, block_size, num_key_value_heads, head_dim]`.
        """
        eps = self.config.rms_norm_eps
        hidden = embedding(batch.token_ids, self.embed)
        for layer, key_pool, value_pool in zip(self.layers, key_pools, value_pools, strict=True):
            normed = rms_norm(hidden, layer.attention_norm.shape, layer.attention_norm, eps)
            hidden = hidden + self._attend(layer, normed, batch, key_pool, value_pool)
            normed = rms_norm(hidden, layer.mlp_norm.shape, layer.mlp_norm, eps)
            gate, up = layer.gate_up(normed).chunk(2, dim=-1)
            hidden = hidden + layer.down(silu(gate) * up)
        hidden = rms_norm(hidden[batch.logit_rows], self.norm.shape, self.norm, eps)
        return self.lm_head(hidden).float()

    def _attend(
        self,
        layer: Layer,
        hidden: torch.Tensor,
        batch: Batch,
        key_pool: torch.Tensor,
        value_pool: torch.Tensor,
    ) -> torch.Tensor:
        config = self.config
        num_q, num_kv = config.num_attention_heads, config.num_key_value_heads
        heads = layer.qkv(hidden).unflatten(-1, (-1, config.head_dim))
        # Queries and keys turn by the same angles: one call rotates both.
        rotated = self.apply_rotary(heads[:, : num_q + num_kv], batch.positions, self.cos, self.sin)
        q, k, v = rotated[:, :num_q], rotated[:, num_q:], heads[:, num_q + num_kv :]
        reshape_and_cache(k, v, key_pool, value_pool, batch.slot_mapping)
        out, _ = self.paged_attention(
            q, key_pool, value_pool, batch.block_tables, batch.context_lens, batch.cu_seqlens
        )
        return layer.output(out.flatten(1))

    def pack(self) -> None:
        """Lay the weights out for fast products, once they are all in place."""
        for module in self.modules():
            if isinstance(module, Linear):
                module.pack()

    def places(self) -> dict[str, torch.Tensor]:
        """Where each tensor of a Hugging Face checkpoint goes: its name -> the memory for it.

        The three projections of attention are row ranges of one matrix here, gate and up of
        another. Valid until `pack`.
        """
        config = self.config
        rows = [config.num_attention_heads, config.num_key_value_heads, config.num_key_value_heads]
        rows = [heads * config.head_dim for heads in rows]
        places = {"model.embed_tokens.weight": self.embed, "model.norm.weight": self.norm}
        if not config.tie_word_embeddings:
            places["lm_head.weight"] = self.lm_head.weight
        for index, layer in enumerate(self.layers):
            q, k, v = layer.qkv.weight.split(rows)
            gate, up = layer.gate_up.weight.chunk(2)
            parts = {
                "input_layernorm.weight": layer.attention_norm,
                "self_attn.q_proj.weight": q,
                "self_attn.k_proj.weight": k,
                "self_attn.v_proj.weight": v,
                "self_attn.o_proj.weight": layer.output.weight,
                "post_attention_layernorm.weight": layer.mlp_norm,
                "mlp.gate_proj.weight": gate,
                "mlp.up_proj.weight": up,
                "mlp.down_proj.weight": layer.down.weight,
            }
            if config.qkv_bias:
                for name, part in zip("qkv", layer.qkv.bias.split(rows), strict=True):
                    parts[f"self_attn.{name}_proj.bias"] = part
            places |= {f"model.layers.{index}.{name}": part for name, part in parts.items()}
        return places


class Layer(nn.Module):
    """The weights of one layer."""

    def __init__(self, config: ModelConfig, weight: Callable[..., nn.Parameter]):
        super().__init__()
        num_q, num_kv = config.num_attention_heads, config.num_key_value_heads
        hidden, inner = config.hidden_size, config.intermediate_size
        qkv_rows = (num_q + 2 * num_kv) * config.head_dim
        self.attention_norm = weight(hidden)
        qkv_bias = weight(qkv_rows) if config.qkv_bias else None
        self.qkv = Linear(weight(qkv_rows, hidden), qkv_bias)
        self.output = Linear(weight(hidden, num_q * config.head_dim))
        self.mlp_norm = weight(hidden)
        self.gate_up = Linear(weight(2 * inner, hidden))
        self.down = Linear(weight(hidden, inner))


def scaled_rotary_tables(config: ModelConfig) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines, float32 `[max_position_embeddings, head_dim / 2]`, with Llama 3's scaling
    of the frequencies if the configuration asks for it."""
    if config.rope_scaling is None:
        return rotary_tables(config.head_dim, config.max_position_embeddings, config.rope_theta)
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
    frequencies = scale_frequencies(1.0 / config.rope_theta**exponents, config.rope_scaling)
    positions = torch.arange(config.max_position_embeddings, dtype=torch.float32)
    angles = torch.outer(positions, frequencies)
    return angles.cos(), angles.sin()


def scale_frequencies(frequencies: torch.Tensor, scaling: RopeScaling) -> torch.Tensor:
    """Slow the low rotary frequencies down by `scaling.factor`, keep the high ones, blend between.

    What counts is how often a pair turns within the original context: fewer than
    `low_freq_factor` turns is low, more than `high_freq_factor` is high.
    """
    turns = scaling.original_max_positions * frequencies / (2 * math.pi)
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    keep = ((turns - low) / (high - low)).clamp(0.0, 1.0)
    return keep * frequencies + (1.0 - keep) * frequencies / scaling.factor
