"""Rotary embedding by a CUDA C++ kernel."""

from __future__ import annotations

from torch import Tensor

from yaie.ops.cuda.launching import call, launch, memory, suffix
from yaie.ops.plans import made

BOTH = "rotary/rotary_and_cache.cu"


def rotary(x: Tensor, positions: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate each head of `[tokens, heads, head_dim]`; x may be a part of a larger tensor."""
    if x.stride(2) != 1:
        x = x.contiguous()
    out = made(x.new_empty(x.shape))
    tokens, heads, head_dim = x.shape
    launch(
        *("rotary/rotary.cu", "rotary", x.dtype, memory(x), positions, cos, sin, out),
        *(tokens, heads, head_dim // 2, x.stride(0), x.stride(1)),
    )
    return out


def rotary_and_cache(
    x: Tensor, positions: Tensor, cos: Tensor, sin: Tensor, key_pool: Tensor, value_pool: Tensor,
    slot_mapping: Tensor,
) -> Tensor:  # fmt: skip
    """`rotary` of queries and keys and `reshape_and_cache` of keys and values, in one kernel.

    x is `[tokens, heads, head_dim]`, contiguous: queries, then as many keys as values. The pools
    have its dtype. Returns the queries. The kernel that runs before it must not write positions or
    slots.
    """
    tokens, all_heads, head_dim = x.shape
    kv_heads = key_pool.shape[2]
    heads = all_heads - 2 * kv_heads
    q = x.new_empty(tokens, heads, head_dim)
    call(  # not `launch`: the pools may have any size
        *(BOTH, f"rotary_and_cache_{suffix(x.dtype)}", x, positions, cos, sin, q, key_pool),
        *(value_pool, slot_mapping, tokens, heads, kv_heads, head_dim // 2),
    )
    return q
