"""Writing new keys and values into the paged cache."""

import triton
import triton.language as tl
from torch import Tensor

from yaie.ops.registry import Unsupported
from yaie.ops.triton.runtime import INTERPRETED, largest_code, launches, run_kernel


@triton.jit
def reshape_and_cache_kernel(
    keys_ptr,
    values_ptr,  # [tokens, KV heads, head_dim], any strides but the last
    key_pool_ptr,
    value_pool_ptr,  # [slots, KV heads × head_dim]
    slot_mapping_ptr,  # [tokens]
    key_token_stride,
    key_head_stride,
    value_token_stride,
    value_head_stride,
    head_dim,
    size,  # KV heads × head_dim
    BLOCK: tl.constexpr,
    LARGEST: tl.constexpr,
):
    """A program moves BLOCK elements of one token's keys and values to the token's slot.

    A negative slot is a row of padding, of which nothing is written.
    """
    token = tl.program_id(0).to(tl.int64)
    offsets = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    slot = tl.load(slot_mapping_ptr + token)
    inside = (offsets < size) & (slot >= 0)
    head, dim = offsets // head_dim, offsets % head_dim
    target = slot * size + offsets
    head = head.to(tl.int64)  # heads may lie far apart
    key_source = token * key_token_stride + head * key_head_stride + dim
    value_source = token * value_token_stride + head * value_head_stride + dim
    key = tl.load(keys_ptr + key_source, mask=inside)
    value = tl.load(values_ptr + value_source, mask=inside)
    if LARGEST > 0:  # of a pool of 8-bit floats; a NaN stays one
        key = tl.clamp(key.to(tl.float32), -LARGEST, LARGEST, tl.PropagateNan.ALL)
        value = tl.clamp(value.to(tl.float32), -LARGEST, LARGEST, tl.PropagateNan.ALL)
    tl.store(key_pool_ptr + target, key.to(key_pool_ptr.dtype.element_ty), mask=inside)
    tl.store(value_pool_ptr + target, value.to(value_pool_ptr.dtype.element_ty), mask=inside)


@launches(computes=False)
def reshape_and_cache(
    keys: Tensor, values: Tensor, key_pool: Tensor, value_pool: Tensor, slot_mapping: Tensor
) -> None:
    """Write the keys and values of new tokens into their slots."""
    tokens, num_heads, head_dim = keys.shape
    largest = largest_code(key_pool)
    if largest and INTERPRETED:
        raise Unsupported("Triton's interpreter does not round 8-bit floats to the nearest")
    if keys.numel() == 0:
        return
    if keys.stride(2) != 1 or values.stride(2) != 1:
        keys, values = keys.contiguous(), values.contiguous()
    size = num_heads * head_dim
    block = min(triton.next_power_of_2(size), 2048)
    run_kernel(
        reshape_and_cache_kernel,
        (tokens, triton.cdiv(size, block)),
        *(keys, values, key_pool, value_pool, slot_mapping.contiguous()),
        *(*keys.stride()[:2], *values.stride()[:2], head_dim, size),
        BLOCK=block,
        LARGEST=largest,
        num_warps=4 if block >= 1024 else 1,
    )
