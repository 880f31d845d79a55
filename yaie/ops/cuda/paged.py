"""Attention over the paged cache by CUDA C++ kernels: rungs, and which computes what."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from yaie.ops.cuda.flash import Rung, Sequences, State, best
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
from yaie.ops.registry import Declined, Unsupported, announce, multiprocessors

_MMA = constants("paged/mma.cu")
MOST_DIM = constants("paged/team.cuh")["MOST_DIM"]  # of grouped.cu and split.cu
# The fewest keys of a part of a context in `split`. `mma` cuts none if tables have no more room.
LEAST_PART = 128
# Up to this many queries are faster with the kernel that cuts contexts into equal shares, even
# though each query reads its context by itself: for the last 16 tokens of 4,000, a kernel for
# prompts keeps few thread blocks busy (notebooks/data/27_engine_h200.json, "few queries").
FEW_QUERIES = 32
ONE = (None, None, 0)  # the scales of an 8-bit cache that are folded into the weights


def paged_attention(*operands: Any, rung: Rung | None = None) -> State:
    """Causal attention of a ragged batch over the paged cache; see `reference.attention`.

    As many queries as sequences are treated as a decode step with one each; the result is right
    even if they are not. So are a few queries, even if several belong to one sequence. More are
    computed by a rung of flash attention, the best unless one is given.
    """
    q, key_pool, value_pool, block_tables, context_lens, cu_seqlens, scale = operands
    if q.shape[0] == context_lens.shape[0]:
        return decode_step(*operands)
    if q.shape[0] <= FEW_QUERIES and q.is_cuda:
        with suppress(Unsupported):  # no other rung of decode steps beats the kernels of prompts
            return mma(*operands)
    sequences = Sequences(cu_seqlens, None, block_tables, context_lens)
    return (rung or best)(q, key_pool, value_pool, True, scale, sequences)


def mixed_attention(
    q: Tensor, key_pool: Tensor, value_pool: Tensor, block_tables: Tensor, context_lens: Tensor,
    cu_seqlens: Tensor, num_decodes: int, rung: Rung = best,
) -> State:  # fmt: skip
    """What `paged_attention` computes, for a batch whose first `num_decodes` sequences have one
    token each; the last of these may have none.

    A kernel for decode steps computes these, `rung` the others, or the best rung if that cannot.
    Each finds on the device where its tokens begin and end, so that a CUDA graph can repeat both.
    On a GPU they run side by side: the first waits for memory, and prompts that are a small part of
    a step do not fill all SMs.

    Raises Unsupported, before anything is launched, for few queries, which `paged_attention`
    computes by one kernel, and for tensors that the kernel for decode steps does not take.
    """
    _require_mma(q, key_pool, value_pool)
    if q.is_cuda and len(q) <= FEW_QUERIES:
        raise Declined(f"more than {FEW_QUERIES} queries are computed by two kernels")
    into = q.new_empty(q.shape), q.new_empty(q.shape[:2], dtype=torch.float32)
    alone, rest = slice(num_decodes), slice(num_decodes, None)
    decodes = block_tables[alone], context_lens[alone], cu_seqlens[: num_decodes + 1]
    prompts = Sequences(cu_seqlens[rest], None, block_tables[rest], context_lens[rest])
    here = torch.cuda.current_stream(q.device) if q.is_cuda else None
    beside = here and _beside(here)
    if here:
        beside.wait_stream(here)
    try:
        mma(q[alone], key_pool, value_pool, *decodes, None, state=(into[0][alone], into[1][alone]))
        operands = q, key_pool, value_pool, True, None, prompts, into
        with torch.cuda.stream(beside) if here else nullcontext():
            try:
                rung(*operands)
            except Unsupported:
                best(*operands)
    finally:
        if here:
            here.wait_stream(beside)
    return into


@cache
def _beside(stream: torch.cuda.Stream) -> torch.cuda.Stream:
    """The second stream of a stream, for what runs beside it."""
    return torch.cuda.Stream(stream.device)


def decode_step(*operands: Any) -> State:
    """By the best rung that takes these tensors on this card; on a CPU, without tensor cores."""
    if operands[1].element_size() == 1:
        return mma(*operands)
    if operands[0].is_cuda:
        try:
            return mma(*operands)
        except Unsupported as reason:
            announce("paged_attention", "cuda's tensor cores", str(reason))
    return split(*operands)


def split(*operands: Any, splits: int | None = None, file: str | Path = "paged/split.cu") -> State:
    """Several thread blocks for each query and KV head, and a second kernel that merges.

    Args:
        file: as in csrc/, or one like it.
        splits: into how many parts the longest context that the tables have room for is cut, by
            default for 8 thread blocks per multiprocessor.
    """
    q, key_pool, _, block_tables = operands[:4]
    require_dim("split", q, MOST_DIM)
    room = max(block_tables.shape[1] * key_pool.shape[1], 1)
    if splits is None:
        wanted = 8 * multiprocessors(q.device) // max(q.shape[0] * key_pool.shape[2], 1)
        splits = max(1, min(wanted, room // LEAST_PART))
    part = -(-room // splits)
    parts = made(q.new_empty(splits, *q.shape, dtype=torch.float32))
    part_lse = made(q.new_empty(splits, *q.shape[:2], dtype=torch.float32))
    return decode(file, "split", *operands, workspace=(parts, part_lse, part, splits))


def mma(
    *operands: Any, skip: int = 0, workers: int | None = None, scales: tuple = ONE,
    state: State | None = None,
) -> State:  # fmt: skip
    """Tensor cores, equal shares, any lengths: 16-bit floats, over 8-bit caches too, from sm_80 on.

    Args:
        skip: how many tokens at the beginning of every context are left out, a multiple of
            block_size.
        workers: thread blocks that share the work equally: by default as many as run together, or
            one per query and KV head if the tables have room for short contexts only; then no
            second kernel merges.
        scales: of an 8-bit cache: of keys and of values, float32 on the device, and whether there
            is one for each KV head; by default 1.
        state: see `decode`.
    """
    q, key_pool, value_pool, block_tables = operands[:4]
    (tokens, heads, head_dim), (_, block_size, kv_heads, _) = q.shape, key_pool.shape
    _require_mma(q, key_pool, value_pool)
    most = workers or _workers(q.device, head_dim, key_pool.element_size())
    items, room = tokens * kv_heads, block_tables.shape[1] * block_size - skip
    if workers is None and items <= most and room <= LEAST_PART:
        workers, workspace = items, None
    else:
        workers, group = most, heads // kv_heads
        size = workers * (4 + 2 * group * (head_dim + 1))
        workspace = made(q.new_empty(size, dtype=torch.float32))
    name, scales = ("mma_fp8", scales) if key_pool.element_size() == 1 else ("mma", ())
    workspace = *scales, workspace, skip, workers
    return decode("paged/mma.cu", name, *operands, workspace=workspace, state=state)


def decode(
    file: str | Path, rung: str, *operands: Any, workspace: tuple = (), state: State | None = None
) -> State:
    """Launch the rung of a file on the operator's arguments.

    Args:
        workspace: further arguments of this rung's launcher, after those that all take.
        state: outputs to update in place; by default new memory.
    """
    q = operands[0]
    name = f"paged_{rung}_{suffix(q.dtype)}"
    state, given = arguments(*operands, state=state)
    call(file, name, *given, *workspace)
    return state


def arguments(
    q: Tensor, key_pool: Tensor, value_pool: Tensor, block_tables: Tensor, context_lens: Tensor,
    cu_seqlens: Tensor | None, scale: float | None, state: State | None = None,
) -> tuple[State, list[Any]]:  # fmt: skip
    """Outputs, and what the launchers of all rungs take, as in csrc/paged/paged.cuh."""
    tokens, heads, head_dim = q.shape
    q = token_rows(q)
    if state is None:
        state = made(q.new_empty(q.shape)), made(q.new_empty(q.shape[:2], dtype=torch.float32))
    batch, max_blocks = block_tables.shape
    q, scale = positive_scale(q, scale)
    return state, [
        *(memory(q), key_pool, value_pool, block_tables.contiguous(), context_lens.contiguous()),
        *(None if cu_seqlens is None else cu_seqlens.contiguous(), *state),
        *(scale, tokens, batch, heads, key_pool.shape[2]),
        *(head_dim, key_pool.shape[1], max_blocks, q.stride(0)),
    ]


def require_dim(rung: str, q: Tensor, most: int) -> None:
    """Raise Unsupported unless heads have up to `most` elements."""
    if q.shape[2] > most:
        raise Unsupported(f"{rung}.cu takes a head_dim of up to {most}, got {q.shape[2]}")


def _require_mma(q: Tensor, key_pool: Tensor, value_pool: Tensor) -> None:
    """Raise Unsupported unless mma.cu takes these tensors on this card."""
    require_tensor_cores(q)
    (num_blocks, block_size, kv_heads, head_dim), heads = key_pool.shape, q.shape[1]
    if head_dim not in (64, 128) or heads > 16 * kv_heads:
        raise Unsupported(
            "mma.cu takes a head_dim of 64 or 128 and up to 16 query heads per KV head, "
            f"got {head_dim} and {heads} for {kv_heads}"
        )
    if (key_pool.data_ptr() | value_pool.data_ptr()) % 16 or q.data_ptr() % 4 or q.stride(0) % 2:
        raise Unsupported("pools must begin at multiples of 16 bytes, queries at multiples of 4")
    if block_size < 1 or num_blocks * block_size >= 2**31:
        raise Unsupported(f"slots must be 1 to 2³¹, got {num_blocks} × {block_size}")


@cache
def _workers(device: torch.device, head_dim: int, size: int) -> int:
    """How many thread blocks of mma.cu run together, by their shared memory, over a cache whose
    elements take `size` bytes. Over 8-bit floats fewer are faster than as many as there is room
    for: notebooks/data/19_fp8_h100.json."""
    if device.type != "cuda":
        return 4
    properties = torch.cuda.get_device_properties(device)
    each = _MMA["STAGES"] * 2 * _MMA["TILE"] * head_dim * size + 1024  # the system's part
    room = properties.shared_memory_per_multiprocessor - (2 - size) * (48 << 10)
    return properties.multi_processor_count * max(1, room // each)
