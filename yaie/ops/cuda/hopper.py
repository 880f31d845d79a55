"""Attention by the kernels for Hopper: the back end `cuda_hopper`, on a CPU emulated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from yaie.ops.cuda import flash, paged
from yaie.ops.cuda.launching import require_hopper
from yaie.ops.registry import Unsupported

TILE = 128  # keys: a cache's blocks must divide it, or be multiples of it


def ragged_attention(*operands: Any) -> flash.State:
    """Attention of several sequences that lie end to end; see `reference.attention`."""
    return flash.ragged_attention(*operands, rung=pingpong)


def paged_attention(*operands: Any) -> flash.State:
    """Attention over the paged cache, prompts by these kernels; see `reference.attention`."""
    return paged.paged_attention(*operands, rung=pingpong)


def pingpong(*operands: Any, file: str = "flash/hopper/pingpong.cu") -> flash.State:
    """By the best rung of `csrc/flash/hopper`, or another; operands as for `flash.launch`."""
    q, k, v, _, _, sequences = operands[:6]
    require_hopper(q)
    if k.element_size() == 1:
        raise Unsupported("these kernels read a cache in float16 or bfloat16, got 8-bit floats")
    flash.require_aligned_heads(q, k, v, 256)
    size = k.shape[1]
    if sequences.block_tables is not None and (size % 8 or (TILE % size and size % TILE)):
        raise Unsupported(f"blocks must be 8, 16, 32, 64 or multiples of 128 tokens, got {size}")
    return flash.launch(file, Path(file).stem, *operands)
