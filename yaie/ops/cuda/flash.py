"""Flash attention by CUDA C++ kernels, in three rungs: dense, ragged, and over the paged cache.

All rungs have one signature, that of `csrc/flash/flash.cuh`, and compute the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from yaie.ops.cuda.launching import (
    call,
    constants,
    memory,
    require_tensor_cores,
    suffix,
    token_rows,
)
from yaie.ops.plans import made
from yaie.ops.reference.attention import positive_scale
from yaie.ops.registry import Unsupported, announce

State = tuple[Tensor, Tensor]
Rung = Callable[..., State]
_ROW = constants("flash/rows.cuh")
MOST_HEAD_DIM = _ROW["MOST_PARTS"] * _ROW["WARP"]
ALIGNED = 16  # bytes of a copy to shared memory


class Sequences(NamedTuple):
    """How a batch lies: with nothing, as one sequence; with starts, end to end; with block tables,
    in the paged cache."""

    starts_q: Tensor | None = None
    starts_k: Tensor | None = None
    block_tables: Tensor | None = None
    context_lens: Tensor | None = None


def ragged_attention(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor, causal: bool, scale: float | None, rung: Rung | None = None,
) -> State:  # fmt: skip
    """Attention of several sequences that lie end to end, by the best rung unless one is given."""
    return (rung or best)(q, k, v, causal, scale, Sequences(cu_seqlens_q, cu_seqlens_k))


# The rungs take the operands of `launch`; as in csrc/, or in a file like it.


def row(*operands: Any, file: str | Path = "flash/row.cu") -> State:
    """Every row of scores on its own, with the online softmax."""
    return launch(file, "row", *operands)


def shared_tile(*operands: Any, file: str | Path = "flash/shared_tile.cu") -> State:
    """Tiles of keys and values in shared memory, for a tile of queries: head_dim up to 128."""
    head_dim = operands[0].shape[2]
    if head_dim > 128:
        raise Unsupported(f"head_dim must be up to 128, got {head_dim}")
    return launch(file, "shared_tile", *operands)


def mma(*operands: Any) -> State:
    """Tensor cores: float16 and bfloat16 from sm_80 on, head_dim up to 128."""
    require_tensor_cores(operands[0])
    require_aligned_heads(*operands[:3], 128)
    return launch("flash/mma.cu", "mma", *operands)


def require_aligned_heads(q: Tensor, k: Tensor, v: Tensor, most: int) -> None:
    """Raise Unsupported unless heads can be copied in 16 bytes, and have up to `most` elements."""
    if q.shape[2] > most or q.shape[2] % 8:
        raise Unsupported(f"head_dim must be a multiple of 8 up to {most}, got {q.shape[2]}")
    for x in (q, k, v):
        if x.data_ptr() % ALIGNED or x.stride(0) * x.element_size() % ALIGNED:
            raise Unsupported(
                f"heads must begin at multiples of {ALIGNED} bytes; here they begin "
                f"{x.data_ptr() % ALIGNED} bytes past one, with strides {[*x.stride()]}"
            )


RUNGS: dict[str, Rung] = {rung.__name__: rung for rung in (row, shared_tile, mma)}


def best(*operands: Any) -> State:
    """By the best rung that takes these tensors on this card; on a CPU, without tensor cores."""
    if operands[1].element_size() == 1:
        return mma(*operands)
    on_gpu = operands[0].is_cuda
    for rung in (mma, shared_tile) if on_gpu else (shared_tile,):
        try:
            return rung(*operands)
        except Unsupported as reason:
            if on_gpu:
                announce("attention", f"cuda's {rung.__name__}", str(reason))
    return row(*operands)


def launch(
    file: str | Path,
    rung: str,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: bool,
    scale: float | None,
    sequences: Sequences,
    into: State | None = None,
) -> State:
    """Launch a file's rung. `k` and `v` are `[keys, KV heads, head_dim]`, or pools with tables.

    Results are written into new memory, or into `into`: there only for tokens of the sequences.
    """
    name = f"flash_{rung}_{'fp8_' * (k.element_size() == 1)}{suffix(q.dtype)}"
    (tokens, heads, head_dim), kv_heads = q.shape, k.shape[-2]
    if head_dim > MOST_HEAD_DIM:
        raise Unsupported(f"head_dim is at most {MOST_HEAD_DIM}, got {head_dim}")
    out, lse = into or (
        made(q.new_empty(q.shape)),
        made(q.new_empty(tokens, heads, dtype=torch.float32)),
    )
    if out.numel() == 0:
        return out, lse.fill_(-math.inf)
    q, scale = positive_scale(q, scale)
    starts_q, starts_k, tables, lengths = (x if x is None else x.contiguous() for x in sequences)
    batch, keys, block_size, max_blocks = 1, k.shape[0], 0, 0
    if starts_q is not None:
        batch = starts_q.shape[0] - 1
    if tables is not None:
        block_size, max_blocks = k.shape[1], tables.shape[1]
        keys = k.shape[0] * block_size
        tables = tables if max_blocks else lengths  # a null pointer means no cache
        if keys >= 2**31:
            raise Unsupported(f"slots must be below 2³¹, got {k.shape[0]} × {block_size}")
        k, v = k.flatten(0, 1), v.flatten(0, 1)
    q, k, v = map(token_rows, (q, k, v))
    call(
        *(file, name),
        *(memory(q), memory(k), memory(v), out, lse, starts_q, starts_k, tables, lengths),
        *(batch, tokens, keys, heads, kv_heads, head_dim),
        *(q.stride(0), k.stride(0), v.stride(0), block_size, max_blocks),
        *(scale, int(causal)),
    )
    return out, lse
