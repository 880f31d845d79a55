"""Attention over the paged cache by CUDA C++ kernels: rungs, and which computes what."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from yaie.backends.cuda.launching import SUFFIXES, call, memory
from yaie.backends.registry import Unsupported

State = tuple[torch.Tensor, torch.Tensor]
Rung = Callable[..., State]
WARPS, STAGES, TILE = 4, 3, 16  # as in csrc/paged/mma.cu


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


def mma(*operands: Any, skip: int = 0, thread_blocks: int | None = None) -> State:
    """Tensor cores, equal shares, any lengths: float16 and bfloat16 from sm_80 on.

    Args:
        skip: how many tokens at the beginning of every context are left out, a multiple of
            block_size.
        thread_blocks: among which the work is shared, by default as many as run together.
    """
    q, key_pool = operands[:2]
    heads, head_dim = q.shape[1:]
    group = heads // key_pool.shape[2]
    _require_tensor_cores(q, key_pool, operands[2])
    if thread_blocks is None:
        thread_blocks = _thread_blocks(q.device, 2 * q.element_size() * head_dim)
    size = WARPS * thread_blocks * (4 + 2 * group * (head_dim + 1))
    workspace = q.new_empty(size, dtype=torch.float32)
    return decode("mma", *operands, workspace=(workspace, skip, thread_blocks))


RUNGS: dict[str, Rung] = {"mma": mma}  # from the simplest on; all take the operator's arguments


def _require_tensor_cores(
    q: torch.Tensor, key_pool: torch.Tensor, value_pool: torch.Tensor
) -> None:
    """Raise Unsupported unless mma.cu takes these tensors on this card."""
    if q.dtype not in (torch.float16, torch.bfloat16):
        raise Unsupported(f"tensor cores take float16 and bfloat16 here, got {q.dtype}")
    if q.is_cuda and (has := torch.cuda.get_device_capability(q.device)) < (8, 0):
        raise Unsupported(f"mma.cu needs sm_80, this is sm_{has[0]}{has[1]}")
    (num_blocks, block_size, kv_heads, head_dim), heads = key_pool.shape, q.shape[1]
    if head_dim not in (64, 128) or heads > 16 * kv_heads:
        raise Unsupported(
            "mma.cu takes a head_dim of 64 or 128 and up to 16 query heads a KV head, "
            f"got {head_dim} and {heads} for {kv_heads}"
        )
    if (key_pool.data_ptr() | value_pool.data_ptr()) % 16 or q.data_ptr() % 4 or q.stride(0) % 2:
        raise Unsupported("pools have to begin at multiples of 16 bytes, queries of 4")
    if num_blocks * block_size >= 2**31:
        raise Unsupported(f"there may be 2³¹ slots, got {num_blocks} × {block_size}")


def _thread_blocks(device: torch.device, token_bytes: int) -> int:
    """How many thread blocks of mma.cu run together, by their shared memory."""
    if device.type != "cuda":
        return 2
    properties = torch.cuda.get_device_properties(device)
    each = WARPS * STAGES * TILE * token_bytes + 1024  # what the system takes of each
    per_processor = properties.shared_memory_per_multiprocessor // each
    most = 65536 // (168 * WARPS * 32)  # by registers
    return properties.multi_processor_count * max(1, min(per_processor, most))
