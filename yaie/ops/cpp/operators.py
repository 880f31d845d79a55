"""The operators of a Llama in C++, one by one: for a step in which one of them is another's."""

from __future__ import annotations

import torch

from yaie.ops.cpp.native import CACHES, call, kind_of, struct
from yaie.ops.cuda.launching import token_rows
from yaie.ops.registry import Declined


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """RMSNorm of each row of `[rows, size]`."""
    kind, out = kind_of(x), torch.empty_like(x)
    call("rms_norm", kind, x, None, weight, out, None, *x.shape, float(eps))
    return out


def add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """RMSNorm of x + residual, and the sum."""
    kind, out, total = kind_of(x), torch.empty_like(x), torch.empty_like(x)
    call("rms_norm", kind, x, residual, weight, out, total, *x.shape, float(eps))
    return out, total


def silu_and_mul(x: torch.Tensor) -> torch.Tensor:
    """silu(gate) × up of `[rows, 2 × size]`."""
    kind, out = kind_of(x), x.new_empty(len(x), x.shape[1] // 2)
    call("silu_and_mul", kind, x, out, *out.shape)
    return out


def rotary(
    x: torch.Tensor, positions: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> torch.Tensor:
    """Rotate queries or keys `[tokens, heads, head_dim]` by their positions."""
    kind, out = kind_of(x), x.new_empty(x.shape)
    x = token_rows(x)
    stride = x.stride(0) * x.element_size()
    call("rotary", kind, x, stride, positions, cos, sin, out, *x.shape)
    return out


def reshape_and_cache(
    keys: torch.Tensor,
    values: torch.Tensor,
    key_pool: torch.Tensor,
    value_pool: torch.Tensor,
    slot_mapping: torch.Tensor,
) -> None:
    """Write `[tokens, KV heads, head_dim]` into the slots of two pools."""
    kind, cache = kind_of(keys, key_pool), CACHES[key_pool.dtype]
    keys, values, size = token_rows(keys), token_rows(values), keys.element_size()
    strides, slots = (keys.stride(0) * size, values.stride(0) * size), slot_mapping.contiguous()
    read, each = (kind, keys, values, *strides), keys[:1].numel()
    call("reshape_and_cache", *read, cache, key_pool, value_pool, slots, len(keys), each)


def paged_attention(
    q: torch.Tensor,
    key_pool: torch.Tensor,
    value_pool: torch.Tensor,
    block_tables: torch.Tensor,
    context_lens: torch.Tensor,
    cu_seqlens: torch.Tensor,
    scale: float | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Causal attention of a ragged batch over a paged cache, and its log-sum-exp."""
    kind_of(q, key_pool)
    kind, (tokens, heads, head_dim) = CACHES[key_pool.dtype], q.shape
    if head_dim % (lanes := call("lanes")):
        raise Declined(f"head_dim must be a multiple of {lanes}, got {head_dim}")
    out, lse = torch.zeros(tokens, heads, head_dim), torch.empty(tokens, heads)
    wide = q.float().contiguous()
    read = [x.contiguous() for x in (block_tables, context_lens, cu_seqlens)]
    pointers = [x.data_ptr() for x in (wide, out, lse, key_pool, value_pool, *read)]
    sizes = kind, len(context_lens), block_tables.shape[1], key_pool.shape[1]
    fields = [*pointers, heads * head_dim, *sizes, heads, key_pool.shape[2], head_dim]
    call("paged_attention", struct(fields), head_dim**-0.5 if scale is None else float(scale))
    return out.to(q.dtype), lse
