"""Attention over the paged cache by CUDA C++ kernels: rungs, and which computes what."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from yaie.backends.cuda.launching import SUFFIXES, call, memory
from yaie.backends.registry import Unsupported

State = tuple[torch.Tensor, torch.Tensor]
Rung = Callable[..., State]
RUNGS: dict[str, Rung] = {}  # by name, from the simplest on; all take the operator's arguments


def arguments(
    q: torch.Tensor,
    key_pool: torch.Tensor,
    value_pool: torch.Tensor,
    block_tables: torch.Tensor,
    context_lens: torch.Tensor,
    cu_seqlens: torch.Tensor | None,
    scale: float | None,
) -> tuple[State, list[Any]]:
    """Empty outputs, and what the launchers of all rungs take, as in csrc/paged/paged.cuh."""
    tokens, heads, head_dim = q.shape
    if q.stride(2) != 1 or (heads > 1 and q.stride(1) != head_dim) or q.stride(0) < 0:
        q = q.contiguous()
    out, lse = q.new_empty(q.shape), q.new_empty(tokens, heads, dtype=torch.float32)
    batch, max_blocks = block_tables.shape
    return (out, lse), [
        *(memory(q), key_pool, value_pool, block_tables.contiguous(), context_lens.contiguous()),
        *(None if cu_seqlens is None else cu_seqlens.contiguous(), out, lse),
        *(head_dim**-0.5 if scale is None else scale, tokens, batch, heads, key_pool.shape[2]),
        *(head_dim, key_pool.shape[1], max_blocks, q.stride(0)),
    ]


def decode(rung: str, *operands: Any, workspace: Sequence[Any] = ()) -> State:
    """Launch the rung of csrc/paged/{rung}.cu on the operator's arguments.

    Args:
        workspace: what its launcher takes behind those that all take.
    """
    q = operands[0]
    if q.dtype not in SUFFIXES:
        raise Unsupported(f"the kernels take float32, float16 and bfloat16, got {q.dtype}")
    state, given = arguments(*operands)
    call(f"paged/{rung}.cu", f"paged_{rung}_{SUFFIXES[q.dtype]}", *given, *workspace)
    return state
