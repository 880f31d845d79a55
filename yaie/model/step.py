"""A whole forward pass in one call of C++, where every operator of it is the back end `cpp`'s."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch

from yaie.model.batch import Batch
from yaie.ops.cpp import native
from yaie.ops.cpp.native import CACHES, FLOATS
from yaie.ops.registry import AUTO, Unsupported, announce, order

if TYPE_CHECKING:
    from yaie.model.linear import Linear
    from yaie.model.llama import Llama


def multiplies(model: Llama) -> bool:
    """Whether the back end `cpp` computes the model's products: on a CPU, if it computes any of its
    operators. A missing compiler is announced."""
    config, wanted = model.config, any(_is_cpp(*chosen) for chosen in model.backends.items())
    attended = config.num_attention_heads * config.head_dim
    sizes = config.hidden_size, config.intermediate_size, attended
    fits = not any(size % native.GROUP for size in sizes) and model.dtype in FLOATS
    if not (fits and wanted and model.embed.device.type == "cpu"):
        return False
    try:
        native.call("lanes")
    except Unsupported as reason:
        announce("linear", "cpp", str(reason))
        return False
    return True


def _is_cpp(operator: str, backend: str) -> bool:
    return (order(operator, "cpu")[0] if backend == AUTO else backend) == "cpp"


class Step:
    """The forward pass of a model whose weights are all in place."""

    def __init__(self, model: Llama) -> None:
        config = model.config
        self.hidden_size = config.hidden_size
        self._kept: list[object] = []  # what only the structs point to
        self._layers = [
            [
                *map(self._matrix, (layer.qkv, layer.output, layer.gate_up, layer.down)),
                [self._wide(layer.attention_norm), self._wide(layer.mlp_norm)],
            ]
            for layer in model.layers
        ]
        self._fields = [
            *model.embedding.part(),
            *(self._wide(model.norm), self._wide(model.cos), self._wide(model.sin)),
            *(len(self._layers), config.hidden_size, config.num_attention_heads),
            *(config.num_key_value_heads, config.head_dim, config.intermediate_size),
        ]
        self._eps = float(config.rms_norm_eps)
        self._pools: tuple = (None, None)

    @classmethod
    def of(cls, model: Llama, operators: Iterable[str]) -> Step | None:
        """The forward pass of a model that `multiplies`, or None if an operator is another's."""
        all_cpp = all(_is_cpp(name, model.backends[name]) for name in operators)
        return cls(model) if all_cpp and model.config.head_dim % native.call("lanes") == 0 else None

    def __call__(
        self, batch: Batch, key_pools: list[torch.Tensor], value_pools: list[torch.Tensor]
    ) -> torch.Tensor:
        """As `Llama.hidden`, for a batch that was checked; float32 whatever the dtype."""
        if self._pools[0] is not key_pools or self._pools[1] is not value_pools:
            flat: list[int] = []
            for parts, keys, values in zip(self._layers, key_pools, value_pools, strict=True):
                flat += [number for part in parts for number in part]
                flat += [keys.data_ptr(), values.data_ptr()]
            self._layer_structs, self._pools = native.struct(flat), (key_pools, value_pools)
            cache = CACHES[key_pools[0].dtype], key_pools[0].shape[1]
            self._model = native.struct([*self._fields, *cache])
        read = [batch.token_ids, batch.positions, batch.slot_mapping, batch.logit_rows]
        read += [batch.block_tables, batch.context_lens, batch.cu_seqlens]
        read = [tensor.contiguous() for tensor in read]
        out = torch.empty(len(batch.logit_rows), self.hidden_size)
        sizes = len(batch.token_ids), len(batch.context_lens), batch.block_tables.shape[1], len(out)
        passed = native.struct([*(tensor.data_ptr() for tensor in read), *sizes])
        native.call("step", self._model, self._layer_structs, passed, self._eps, out)
        return out

    def _matrix(self, linear: Linear) -> list[int]:
        bias = None if linear.bias is None else linear.bias.detach().float().contiguous()
        self._kept += [bias, linear.rows]
        return native.matrix(linear.rows, bias)

    def _wide(self, weight: torch.Tensor) -> int:
        self._kept.append(weight.detach().float().contiguous())
        return self._kept[-1].data_ptr()
