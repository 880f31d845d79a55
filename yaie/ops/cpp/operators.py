"""The operators of a Llama in C++, one by one, in float32: for steps that mix back ends."""

import torch
from torch import Tensor

from yaie.ops.cpp.native import CACHES, call, padded, struct, wide
from yaie.ops.registry import Declined


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm of each row of `[rows, size]`."""
    rows = padded(x)
    out = torch.empty_like(rows)
    call("rms_norm", rows, padded(weight), out, *x.shape, float(eps))
    return out[:, : x.shape[1]].contiguous().to(x.dtype)


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """RMSNorm of x + residual, and the sum, rounded: both results agree."""
    total = x + residual
    return rms_norm(total, weight, eps), total


def silu_and_mul(x: Tensor) -> Tensor:
    """silu(gate) × up of `[rows, 2 × size]`."""
    both = padded(x.unflatten(1, (2, -1)))
    out = torch.empty_like(both[:, 0])
    call("silu_and_mul", both, out, len(x), x.shape[1] // 2)
    return out[:, : x.shape[1] // 2].contiguous().to(x.dtype)


def rotary(x: Tensor, positions: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate queries or keys `[tokens, heads, head_dim]` by their positions."""
    out = wide(x.clone(memory_format=torch.contiguous_format))
    call("rotary", out, positions, cos, sin, *x.shape)
    return out.to(x.dtype)


def reshape_and_cache(
    keys: Tensor, values: Tensor, key_pool: Tensor, value_pool: Tensor, slot_mapping: Tensor
) -> None:
    """Write `[tokens, KV heads, head_dim]` into the slots of two pools."""
    size = keys[:1].numel()
    keys, values = padded(keys.flatten(1)), padded(values.flatten(1))
    pools = CACHES[key_pool.dtype], key_pool, value_pool
    call("reshape_and_cache", keys, values, *pools, slot_mapping.contiguous(), len(keys), size)


def paged_attention(
    q: Tensor,
    key_pool: Tensor,
    value_pool: Tensor,
    block_tables: Tensor,
    context_lens: Tensor,
    cu_seqlens: Tensor,
    scale: float | None,
) -> tuple[Tensor, Tensor]:
    """Causal attention of a ragged batch over a paged cache, and its log-sum-exp."""
    queries, kind, (tokens, heads, head_dim) = wide(q), CACHES[key_pool.dtype], q.shape
    if head_dim % (lanes := call("lanes")):
        raise Declined(f"head_dim must be a multiple of {lanes}, got {head_dim}")
    out, lse = torch.zeros(tokens, heads, head_dim), torch.full((tokens, heads), -torch.inf)
    read = [x.contiguous() for x in (block_tables, context_lens, cu_seqlens)]
    sizes = kind, len(context_lens), block_tables.shape[1], key_pool.shape[1], heads
    pointers = [x.data_ptr() for x in (*read, queries, key_pool, value_pool, out, lse)]
    fields = [*pointers[:3], heads * head_dim, *sizes, *key_pool.shape[2:], *pointers[3:]]
    call("paged_attention", struct(fields), head_dim**-0.5 if scale is None else float(scale))
    return out.to(q.dtype), lse
