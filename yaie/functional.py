"""The model's small operators in plain PyTorch: what every kernel is compared with.

Each computes in float32 (float64 if given it) and rounds once, when it returns to the dtype of its
input. The kernels do the same, so they differ from these only by the order of their additions.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from yaie.attention import attention as _attention
from yaie.flash import flash_backward

FP8_MAX = 448.0  # the largest finite float8_e4m3fn


def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """x + y, both of one shape."""
    return x + y


def add_relu(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """max(x + y, 0): two tensors are read and one written, where two operators move five."""
    return torch.relu(x + y)


def silu_and_mul(x: torch.Tensor) -> torch.Tensor:
    """silu(gate) × up of `[..., 2 × size]`, gate in the first half and up in the second.

    Returns `[..., size]`. silu(g) is g / (1 + exp(-g)).
    """
    gate, up = x.to(_wide(x)).chunk(2, dim=-1)
    return (torch.nn.functional.silu(gate) * up).to(x.dtype)


def transpose(x: torch.Tensor) -> torch.Tensor:
    """`[rows, columns]` -> `[columns, rows]`, written out in its new order."""
    return x.t().clone(memory_format=torch.contiguous_format)


def row_sum(x: torch.Tensor) -> torch.Tensor:
    """The sum of each row of `[rows, columns]`: `[rows]`, float32 (float64 if given it)."""
    return x.to(_wide(x)).sum(dim=-1)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Softmax of each row of `[rows, columns]`; a row of -inf alone gives zeros, not NaN."""
    wide = x.to(_wide(x))
    highest = wide.amax(dim=-1, keepdim=True) if x.shape[-1] else wide.sum(-1, keepdim=True)
    weights = torch.exp(wide - highest.masked_fill(highest == -torch.inf, 0.0))
    total = weights.sum(dim=-1, keepdim=True)
    return (weights / total.masked_fill(total == 0.0, 1.0)).to(x.dtype)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """x / sqrt(mean(x²) + eps) × weight over the last axis of `[..., size]`.

    Source: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.
    """
    wide = x.to(_wide(x))
    return torch.nn.functional.rms_norm(wide, weight.shape, weight.to(wide.dtype), eps).to(x.dtype)


def add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6
) -> tuple[torch.Tensor, torch.Tensor]:
    """RMSNorm of x + residual, and the sum itself, which the next layer adds to.

    The sum is rounded to the dtype of x before it is normalized, so both results agree.
    """
    total = x + residual
    return rms_norm(total, weight, eps), total


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """`[m, k]` × `[k, n]` -> `[m, n]`, in the dtype of a."""
    return a @ b


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool = True,
    scale: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """`yaie.attention.attention`, its results contiguous, as those of the kernels are."""
    out, lse = _attention(q, k, v, causal, scale)
    return out.contiguous(), lse.contiguous()


def attention_backward(
    grad_out: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    lse: torch.Tensor,
    delta: torch.Tensor,
    causal: bool = True,
    scale: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """`yaie.flash.flash_backward` in tiles of 64, its results in the dtype of q."""
    scale = q.shape[2] ** -0.5 if scale is None else scale
    grads = flash_backward(grad_out, q, k, v, lse, delta, causal, scale, 64, 64)
    return tuple(grad.to(q.dtype) for grad in grads)


def reshape_and_cache(
    keys: torch.Tensor,
    values: torch.Tensor,
    key_pool: torch.Tensor,
    value_pool: torch.Tensor,
    slot_mapping: torch.Tensor,
) -> None:
    """Write `[tokens, KV heads, head_dim]` into the slots of two pools; see `yaie.ops.kv`."""
    key_pool.flatten(0, 1).index_copy_(0, slot_mapping, keys)
    value_pool.flatten(0, 1).index_copy_(0, slot_mapping, values)


def copy_blocks(
    key_pools: Sequence[torch.Tensor],
    value_pools: Sequence[torch.Tensor],
    block_mapping: torch.Tensor,
) -> None:
    """Copy the blocks that `[pairs, 2]` names, source and target, in every pool.

    Sources are read before any target is written, so a chain of pairs moves each block once.
    """
    sources, targets = block_mapping.unbind(dim=1)
    for pool in (*key_pools, *value_pools):
        if pool.element_size() == 1:  # not every PyTorch can index 8-bit floats
            pool = pool.view(torch.uint8)
        pool[targets] = pool[sources]


def to_fp8(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """`[tokens, heads, head_dim]` / scale as float8_e4m3fn: the nearest, at most ±448; NaN stays.

    Args:
        scale: float32, one for each head, or one in all.
    """
    scaled = x.float() / scale.view(1, -1, 1)
    return scaled.clamp(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn)


def from_fp8(x: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """`[tokens, heads, head_dim]` of float8_e4m3fn × scale, rounded to `dtype`."""
    return (x.float() * scale.view(1, -1, 1)).to(dtype)


def reshape_and_cache_fp8(
    keys: torch.Tensor,
    values: torch.Tensor,
    key_pool: torch.Tensor,
    value_pool: torch.Tensor,
    slot_mapping: torch.Tensor,
    key_scale: torch.Tensor,
    value_scale: torch.Tensor,
) -> None:
    """`reshape_and_cache` into pools of float8_e4m3fn."""
    for new, pool, scale in ((keys, key_pool, key_scale), (values, value_pool, value_scale)):
        codes = to_fp8(new, scale).view(torch.uint8)
        pool.view(torch.uint8).flatten(0, 1).index_copy_(0, slot_mapping, codes)


def gather_kv(
    key_pool: torch.Tensor,
    value_pool: torch.Tensor,
    block_tables: torch.Tensor,
    cu_seqlens: torch.Tensor,
    num_tokens: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The keys and values of some sequences, one behind the other; see `yaie.ops.kv`."""
    block_size = key_pool.shape[1]
    token = torch.arange(num_tokens, device=key_pool.device)
    sequence = torch.searchsorted(cu_seqlens[1:].long(), token, right=True)
    position = token - cu_seqlens.long()[sequence]
    block = block_tables.long()[sequence, position // block_size]
    slots = block * block_size + position % block_size
    return key_pool.flatten(0, 1)[slots], value_pool.flatten(0, 1)[slots]


def gather_kv_fp8(
    key_pool: torch.Tensor,
    value_pool: torch.Tensor,
    block_tables: torch.Tensor,
    cu_seqlens: torch.Tensor,
    num_tokens: int,
    key_scale: torch.Tensor,
    value_scale: torch.Tensor,
    dtype: torch.dtype,
) -> tuple[torch.Tensor, torch.Tensor]:
    """`gather_kv` from pools of float8_e4m3fn, in `dtype`."""
    codes = (pool.view(torch.uint8) for pool in (key_pool, value_pool))
    keys, values = (
        found.view(torch.float8_e4m3fn)
        for found in gather_kv(*codes, block_tables, cu_seqlens, num_tokens)
    )
    return from_fp8(keys, key_scale, dtype), from_fp8(values, value_scale, dtype)


def _wide(x: torch.Tensor) -> torch.dtype:
    return torch.float64 if x.dtype == torch.float64 else torch.float32
