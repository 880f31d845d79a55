"""A Llama whose attention reads and writes a paged cache.

One forward pass takes a ragged batch: prompts, pieces of prompts and single decode steps in any
mix, flattened to one axis of tokens. Everything but attention treats each token alone; attention
finds each sequence's keys and values through its block table.

Query, key and value projections are one matrix, gate and up too: with few tokens in a batch a
product costs the reading of its weights, and fewer, larger products read them at a better rate.

With tensor parallelism a rank's model has fewer heads and a narrower MLP. The results of attention
and MLP are summands, which are added up where they are normalized (`yaie.model.parallel`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import torch
from torch import nn
from torch.nn.functional import embedding

from yaie.model.batch import Batch
from yaie.model.config import ModelConfig, RopeScaling
from yaie.model.linear import GATED, GEMV, Linear
from yaie.model.parallel import VocabularyParallel, all_reduce
from yaie.model.shards import WHOLE, Shard, part
from yaie.model.step import Step, multiplies
from yaie.ops import operators
from yaie.ops.attention import check_lengths
from yaie.ops.checks import check_range
from yaie.ops.cpp import native
from yaie.ops.cpp.native import Rows
from yaie.ops.kv import check_slots
from yaie.ops.reference.rotary import rotary_tables
from yaie.ops.registry import AUTO, Unsupported, are_ours, choose

Pools = tuple[torch.Tensor, torch.Tensor]  # of keys and of values

OPERATORS = (
    *("rms_norm", "add_rms_norm", "silu_and_mul", "rotary"),
    *("reshape_and_cache", "paged_attention"),
)
STEP_OPERATORS = (*OPERATORS, "sample")  # and what chooses the tokens of a step on a device


class Llama(nn.Module):
    """The model, with memory for its weights; `yaie.model.weights.load_model` fills it.

    Args:
        config: sizes and constants.
        dtype: of weights, activations and cache; logits are float32 in any case.
        device: where the weights lie.
        backends: of `STEP_OPERATORS`: one back end for all, or a mapping from operators to back
            ends, with "auto" for the rest. See `yaie.ops.registry`.
        shard: the part of the model that this process holds, if it is one of a group.

    Attributes:
        config: of this process's part.
        cache_dtype: of the keys and values that it caches: `dtype`, or one of fewer bits.
    """

    def __init__(
        self,
        config: ModelConfig,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
        backends: str | Mapping[str, str] = AUTO,
        shard: Shard = WHOLE,
    ):
        super().__init__()
        config = shard.narrow(config)
        self.config, self.dtype, self.cache_dtype = config, dtype, dtype
        self.backends = choose(STEP_OPERATORS, backends)

        def weight(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(shape, dtype=dtype, device=device), requires_grad=False)

        self.embed = weight(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config, weight) for _ in range(config.num_hidden_layers))
        self.norm = weight(config.hidden_size)
        tied = config.tie_word_embeddings
        self.num_ranks = shard.size
        if self.num_ranks == 1:
            self.lm_head = Linear(self.embed if tied else weight(*self.embed.shape))
        else:
            rows = self.embed[part(config.vocab_size, shard.rank, shard.size)]
            self.lm_head = VocabularyParallel(rows if tied else weight(*rows.shape))
        cos, sin = scaled_rotary_tables(config)
        self.step: Step | None = None  # the whole forward pass in one call, if there is one
        self.embedding: Rows | None = None  # as the back end `cpp` reads it
        self.has_kernels = False  # in CUDA C++, for several operators together
        self.register_buffer("cos", cos.to(device), persistent=False)
        self.register_buffer("sin", sin.to(device), persistent=False)

    @torch.inference_mode()
    def forward(
        self, batch: Batch, key_pools: list[torch.Tensor], value_pools: list[torch.Tensor]
    ) -> torch.Tensor:
        """Logits, float32 `[rows, vocab_size]`, of the rows that `batch.logit_rows` names. See
        `hidden`."""
        return self.logits(self.hidden(batch, key_pools, value_pools))

    @torch.inference_mode()
    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits, float32 `[rows, vocab_size]`, of what `hidden` returned."""
        return self.lm_head(hidden).float()

    @torch.inference_mode()
    def hidden(
        self, batch: Batch, key_pools: list[torch.Tensor], value_pools: list[torch.Tensor]
    ) -> torch.Tensor:
        """What the last layer makes of the rows that `batch.logit_rows` names, `[rows, hidden]`.

        Keys and values of all tokens of the batch are written into the pools, one of each per
        layer, `[num_blocks, block_size, num_key_value_heads, head_dim]`.
        """
        self._check(batch, key_pools[0])
        if self.step is not None and not self.lm_head.torch_is_faster(len(batch.token_ids)):
            return self.step(batch, key_pools, value_pools)
        out, total = self._embed(batch.token_ids), None  # total: the sum of all layers so far
        for index, layer in enumerate(self.layers):
            qkv, total = self._of_norm(layer.qkv, out, total, layer.attention_norm)
            attended = self._attend(qkv, batch, key_pools[index], value_pools[index])
            if layer is self.layers[-1]:  # all keys and values are written
                attended, total = attended[batch.logit_rows], total[batch.logit_rows]
                if not len(total):  # an operator, maybe a learner's, gets at least one row
                    return total
            out = layer.output(attended)
            inner, total = self._of_norm(layer.gate_up, out, total, layer.mlp_norm, gated=True)
            out = layer.down(inner)
        return self._norm(out, total, self.norm)[0]

    def _of_norm(
        self, linear: Linear, out: torch.Tensor, total: torch.Tensor | None,
        weight: torch.Tensor, gated: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
        """`linear` of the norm of out + total, then `silu_and_mul` of it if `gated`; and that sum.

        One kernel computes all of it for a single token, on a GPU and without other ranks; for
        many, a kernel for Hopper computes the product and its activation.
        """
        names = "rms_norm", "add_rms_norm", "silu_and_mul"
        if self.num_ranks == 1 and linear.takes(out) and self._is_own(*names):
            return linear.of_norm(out, total, weight, self.config.rms_norm_eps, gated)
        normed, total = self._norm(out, total, weight)
        if gated and linear.takes_gated(normed) and self._is_own("silu_and_mul"):
            return linear.gated(normed), total
        product = linear(normed)
        return self._compute("silu_and_mul", product) if gated else product, total

    def _norm(
        self, out: torch.Tensor, total: torch.Tensor | None, weight: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The norm of out + total, and that sum; out is summed over all ranks that share the model,
        unless it is the embedding, which has no total."""
        norm = weight, self.config.rms_norm_eps
        if total is None:
            return self._compute("rms_norm", out, *norm), out
        norm = total, *norm
        if self.num_ranks == 1:
            return self._compute("add_rms_norm", out, *norm)
        own = self._is_own("add_rms_norm")
        return all_reduce(out, *(norm if own else ())) or self._compute("add_rms_norm", out, *norm)

    def _is_own(self, *names: str) -> bool:
        """Whether the engine's kernels in CUDA C++ compute these operators on a GPU, and torch
        compiles nothing."""
        own = all(self.backends[name] in (AUTO, "cuda") for name in names)
        return own and are_ours(names) and not torch.compiler.is_compiling()

    def _embed(self, token_ids: torch.Tensor) -> torch.Tensor:
        if self.embedding is None:
            return embedding(token_ids, self.embed)
        return native.embed(self.embedding, token_ids).to(self.dtype)

    def _attend(
        self, qkv: torch.Tensor, batch: Batch, key_pool: torch.Tensor, value_pool: torch.Tensor
    ) -> torch.Tensor:
        """Store keys and values, and attend to them: `[tokens, heads × head_dim]`."""
        heads = qkv.unflatten(-1, (-1, self.config.head_dim))
        angles, pools = (batch.positions, self.cos, self.sin), (key_pool, value_pool)
        fits = self.has_kernels and key_pool.dtype == heads.dtype
        if fits and self._is_own("rotary", "reshape_and_cache"):
            from yaie.ops.cuda.rotary import rotary_and_cache

            q = rotary_and_cache(heads, *angles, *pools, batch.slot_mapping)
        else:
            # Queries and keys are rotated by the same angles, in one call.
            num_q, num_kv = self.config.num_attention_heads, self.config.num_key_value_heads
            rotated = self._compute("rotary", heads[:, : num_q + num_kv], *angles)
            q, k, v = rotated[:, :num_q], rotated[:, num_q:], heads[:, num_q + num_kv :]
            self._compute("reshape_and_cache", k, v, *pools, batch.slot_mapping)
        return self._attention(q, pools, batch).flatten(1)

    def _attention(self, q: torch.Tensor, pools: Pools, batch: Batch) -> torch.Tensor:
        """Attention over the paged cache. Of prompts and requests that decode in the same batch, a
        kernel for decode steps computes the latter, if it takes such heads."""
        about = batch.block_tables, batch.context_lens, batch.cu_seqlens
        if batch.num_decodes and self.has_kernels and self._is_own("paged_attention"):
            from yaie.ops.cuda import hopper, paged

            rung = hopper.pingpong if self.backends["paged_attention"] == AUTO else paged.best
            with suppress(Unsupported):
                return paged.mixed_attention(q, *pools, *about, batch.num_decodes, rung)[0]
        return self._compute("paged_attention", q, *pools, *about, None)[0]

    def _compute(self, operator: str, *arguments: Any) -> Any:
        """Compute an operator. Nothing is checked: shapes fit by construction, and `_check` saw
        the numbers once for all layers."""
        return getattr(operators, operator)(*arguments, backend=self.backends[operator])

    def _check(self, batch: Batch, key_pool: torch.Tensor) -> None:
        """Check the batch's numbers on a CPU; on a GPU the check would wait for them."""
        if key_pool.device.type != "cpu":
            return
        check_range("token_ids", batch.token_ids, self.config.vocab_size)
        check_range("logit_rows", batch.logit_rows, len(batch.token_ids))
        check_range("positions", batch.positions, len(self.cos))
        check_slots(batch.slot_mapping, key_pool.shape)
        check_lengths(
            len(batch.token_ids),
            *(key_pool, batch.block_tables, batch.context_lens, batch.cu_seqlens),
        )

    def pack(self) -> None:
        """Prepare the products, once the weights are all in place: see `Linear` and `Step`."""
        if multiplies(self):
            if self.embedding is None:
                for linear, parts in self._parts():
                    linear.rows = [Rows(part.detach()) for part in parts.values()]
                self.embedding = Rows(self.embed.detach())
            self.step = Step.of(self, OPERATORS) if self.num_ranks == 1 else None
        by_cuda = {AUTO, "cuda"} & {self.backends[name] for name in OPERATORS}
        if self.embed.is_cuda and by_cuda and self.dtype.itemsize == 2:
            from yaie.build import jit  # a CPU starts without it
            from yaie.ops.cuda.rotary import BOTH

            device = self.embed.device
            *ways, gated = [jit.load(file).how(device).available for file in (GEMV, BOTH, GATED)]
            self.has_kernels = all(ways)
            for linear in self.linears():
                rows, size = linear.weight.shape
                linear.by_gemv = self.has_kernels and size % 8 == 0 and rows * size < 2**31
            sms = torch.cuda.get_device_properties(device).multi_processor_count if gated else 0
            for layer in self.layers:
                whole = layer.gate_up.by_gemv and len(layer.gate_up.weight) % 16 == 0
                layer.gate_up.gated_sms = sms if whole else 0

    def take(self, tensors: Mapping[str, Rows]) -> None:
        """Compute with the tensors of a checkpoint where they lie, in place of copies of them, if
        the back end `cpp` `multiplies`. `pack` comes next."""
        for name, place in self.places().items():
            if place.ndim == 1:
                place.copy_(tensors[name].data)
        for linear, parts in self._parts():
            linear.weight, linear.rows = None, [tensors[name] for name in parts]
        self.embedding = tensors["model.embed_tokens.weight"]
        self.embed = nn.Parameter(self.embedding.data, requires_grad=False)

    def _parts(self) -> Iterator[tuple[Linear, dict[str, torch.Tensor]]]:
        """Every linear layer, with the matrices of a checkpoint that lie in its memory."""
        lying: dict[int, dict[str, torch.Tensor]] = {}
        for name, place in self.places().items():
            if place.ndim == 2:
                lying.setdefault(place.untyped_storage().data_ptr(), {})[name] = place
        for linear in self.linears():
            parts = lying[linear.weight.untyped_storage().data_ptr()]
            whole = sum(map(len, parts.values())) == len(linear.weight)
            yield linear, parts if whole else {"": linear.weight}  # a rank's part of the head

    def linears(self) -> Iterator[Linear]:
        """The linear layers, in the order in which a step takes them."""
        return (module for module in self.modules() if isinstance(module, Linear))

    def places(self) -> dict[str, torch.Tensor]:
        """Where each tensor of a Hugging Face checkpoint, or this process's part of it, goes: its
        name -> the memory for it.

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
