"""Attention over the paged cache: decoding, pieces of prompts, and any mix of the two.

The query heads that share a KV head, and the queries of a sequence, become the rows of one tile,
so that what is read of the cache is read once for all of them. A decode step has few rows and long
contexts: there the context is split among several programs, each of which leaves a partial result,
and a second kernel merges them by their log-sum-exps ("flash decoding", Dao et al., 2023).
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from yaie.ops.plans import made
from yaie.ops.reference.attention import positive_scale
from yaie.ops.registry import Unsupported, multiprocessors
from yaie.ops.triton import runtime
from yaie.ops.triton.flash import find_sequence
from yaie.ops.triton.online import LOWEST, finish, online_step
from yaie.ops.triton.runtime import Config, fastest, launches, precision, run_kernel

LARGE = 1 << 27  # elements of the cache that the tables have room for, from which on it is tuned


@triton.jit
def find_queries(rows, kv_head, group):
    """The query and the query head of each row of a KV head's tile.

    The `group` query heads that read one KV head are neighbors, query head h reads KV head
    h // group, and the rows take all of them for query 0, then all for query 1, and so on.

    Args:
        rows: block of row numbers, from 0.
        kv_head, group: numbers.

    Returns:
        Two blocks of the shape of `rows`: the queries, and the heads, counted from the first query
        head of all.
    """
    return rows // group, kv_head * group + rows % group


@triton.jit
def find_slots(table, keys, end, BLOCK_SIZE: tl.constexpr):
    """Look up where keys lie: the slot of each, block × BLOCK_SIZE + offset.

    Args:
        table: pointer to the sequence's row of the block tables, int32. Key j is in the block
            that entry j // BLOCK_SIZE names. Entries beyond the context may hold anything.
        keys: block of key numbers.
        end: keys from here on are not wanted, and entries that only they need are not loaded.

    Returns:
        int64, of the shape of `keys`, since a pool may have more than 2³¹ elements. For a key that
        is not wanted it may be any number.
    """
    block = tl.load(table + keys // BLOCK_SIZE, mask=keys < end, other=0)
    return block.to(tl.int64) * BLOCK_SIZE + keys % BLOCK_SIZE


# A batch of another size needs no other machine code.
_SIZES = ["batch", "num_tokens", "num_heads", "group", "max_blocks", "splits"]


@triton.jit(do_not_specialize=_SIZES)
def paged_attention_kernel(
    q_ptr,  # [tokens, heads, HEAD_DIM], any strides but the last
    key_pool_ptr,
    value_pool_ptr,  # [blocks, BLOCK_SIZE, KV heads, HEAD_DIM]
    block_tables_ptr,  # [batch, max_blocks]
    context_lens_ptr,  # [batch]
    cu_seqlens_ptr,  # [batch + 1]
    out_ptr,  # [splits, tokens, heads, HEAD_DIM]; the splits of float32 if there are several
    lse_ptr,  # [splits, tokens, heads]
    batch,
    num_tokens,
    num_heads,
    group,  # query heads that share a KV head
    max_blocks,
    token_stride,
    head_stride,
    scale,  # of scores, times log2(e)
    splits,
    BLOCK_SIZE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIM: tl.constexpr,  # HEAD_DIM rounded up to a power of two
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """A tile of rows of one KV head, over one part of the context."""
    split = tl.program_id(0) % splits
    tile = tl.program_id(0) // splits
    kv_head = tl.program_id(1)
    sequence = find_sequence(cu_seqlens_ptr, tile, batch, group, BLOCK_M)
    first_query = tl.load(cu_seqlens_ptr + sequence)
    num_queries = tl.load(cu_seqlens_ptr + sequence + 1) - first_query
    first_row = (tile - (first_query * group // BLOCK_M + sequence)) * BLOCK_M
    if first_row >= num_queries * group:
        return
    context = tl.load(context_lens_ptr + sequence)

    rows = first_row + tl.arange(0, BLOCK_M)
    queries, heads = find_queries(rows, kv_head, group)
    dims = tl.arange(0, DIM)
    in_rows = rows < num_queries * group
    in_dims = dims < HEAD_DIM
    tokens = (first_query + queries).to(tl.int64)
    head_starts = heads.to(tl.int64) * head_stride  # heads may lie far apart
    source = tokens[:, None] * token_stride + head_starts[:, None] + dims[None, :]
    q = tl.load(q_ptr + source, mask=in_rows[:, None] & in_dims[None, :], other=0.0)

    last_key = context - num_queries + queries  # the queries are the last tokens of the context
    last_query = tl.minimum((first_row + BLOCK_M - 1) // group, num_queries - 1)
    visible = context - num_queries + last_query + 1
    # Each split has as many whole tiles of keys as the others; the last may have fewer.
    part = tl.cdiv(tl.cdiv(visible, BLOCK_N), splits) * BLOCK_N
    begin = split * part
    end = tl.minimum(begin + part, visible)

    maximum = tl.zeros((BLOCK_M,), tl.float32) + LOWEST
    total = tl.zeros((BLOCK_M,), tl.float32)
    out = tl.zeros((BLOCK_M, DIM), tl.float32)
    token_size = tl.num_programs(1) * HEAD_DIM  # elements of one token in a pool
    table = block_tables_ptr + sequence.to(tl.int64) * max_blocks
    for start in tl.range(begin, end, BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N)
        slots = find_slots(table, keys, end, BLOCK_SIZE)
        place = slots[:, None] * token_size + kv_head * HEAD_DIM + dims[None, :]
        inside = (keys < end)[:, None] & in_dims[None, :]
        k = tl.load(key_pool_ptr + place, mask=inside, other=0.0).to(q.dtype)
        scores = tl.dot(q, k.T, input_precision=PRECISION)
        seen = (keys[None, :] <= last_key[:, None]) & (keys < end)[None, :]
        scores = tl.where(seen, scores, float("-inf"))
        weights, maximum, total, out = online_step(scores, scale, maximum, total, out)
        v = tl.load(value_pool_ptr + place, mask=inside, other=0.0).to(q.dtype)
        out = tl.dot(weights.to(v.dtype), v, out, input_precision=PRECISION)

    out, lse = finish(maximum, total, out)
    target = (split * num_tokens.to(tl.int64) + tokens) * num_heads + heads
    tl.store(lse_ptr + target, lse, mask=in_rows)
    tl.store(
        out_ptr + target[:, None] * HEAD_DIM + dims[None, :],
        out.to(out_ptr.dtype.element_ty),
        mask=in_rows[:, None] & in_dims[None, :],
    )


@triton.jit(do_not_specialize=["num_rows"])
def merge_kernel(
    parts_ptr,  # [SPLITS, rows, HEAD_DIM] float32
    part_lse_ptr,  # [SPLITS, rows]
    out_ptr,  # [rows, HEAD_DIM]
    lse_ptr,  # [rows]
    num_rows,
    SPLITS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIM: tl.constexpr,
):
    """Merge the partial results of one row: their average, weighted by exp(log-sum-exp).

    Program r merges row r. Split s holds the output `parts[s, r]`, divided by its own sum already,
    and the natural log-sum-exp `part_lse[s, r]`; -inf if it saw nothing, and zeros then. If no
    split saw anything, the row is zeros and its log-sum-exp -inf. SPLITS and DIM are powers of
    two; DIM is HEAD_DIM or more. The dtype behind `out_ptr` may be narrower than float32.
    """
    row = tl.program_id(0).to(tl.int64)
    splits = tl.arange(0, SPLITS)
    dims = tl.arange(0, DIM)
    lse = tl.load(part_lse_ptr + splits * num_rows.to(tl.int64) + row)
    maximum = tl.maximum(tl.max(lse), LOWEST)
    weights = tl.exp(lse - maximum)
    total = tl.sum(weights)
    source = (splits * num_rows.to(tl.int64) + row)[:, None] * HEAD_DIM + dims[None, :]
    parts = tl.load(parts_ptr + source, mask=(dims < HEAD_DIM)[None, :], other=0.0)
    out = tl.sum(parts * weights[:, None], 0) / tl.where(total == 0.0, 1.0, total)
    tl.store(out_ptr + row * HEAD_DIM + dims, out.to(out_ptr.dtype.element_ty), dims < HEAD_DIM)
    tl.store(lse_ptr + row, maximum + tl.log(total))


@launches(float32_result=1)
def paged_attention(
    q: Tensor,
    key_pool: Tensor,
    value_pool: Tensor,
    block_tables: Tensor,
    context_lens: Tensor,
    cu_seqlens: Tensor,
    scale: float | None,
) -> tuple[Tensor, Tensor]:
    """Causal attention of a ragged batch over the paged cache; see `reference.attention`."""
    (num_tokens, num_heads, head_dim), num_kv_heads = q.shape, key_pool.shape[2]
    out = made(q.new_empty(q.shape))
    lse = made(q.new_empty(num_tokens, num_heads, dtype=torch.float32))
    if out.numel() == 0:
        return out, lse
    if head_dim > 256:
        raise Unsupported(f"head_dim is at most 256, got {head_dim}")
    runtime.largest_code(key_pool)  # refuses what the card cannot read
    q, scale = positive_scale(q, scale)
    if q.stride(2) != 1:
        q = q.contiguous()
    lists = [x.contiguous() for x in (block_tables, context_lens, cu_seqlens)]
    batch, max_blocks = block_tables.shape
    block_size, group = key_pool.shape[1], num_heads // num_kv_heads
    dim = max(16, triton.next_power_of_2(head_dim))  # 16: the least that the tensor cores take
    most = 64 if dim <= 128 and q.element_size() == 2 else 32  # rows that the registers hold
    block_m = min(max(16, triton.next_power_of_2(num_tokens * group // batch)), most)
    tiles = num_tokens * group // block_m + batch

    def launch(config: Config) -> None:
        constants = dict(config)
        splits = _num_splits(
            tiles * num_kv_heads,
            max_blocks * block_size // config["BLOCK_N"],
            constants.pop("PROGRAMS") * multiprocessors(q.device),
        )
        parts, part_lse = out, lse
        if splits > 1:
            parts = made(out.new_empty(splits, *out.shape, dtype=torch.float32))
            part_lse = made(lse.new_empty(splits, *lse.shape))
        run_kernel(
            paged_attention_kernel,
            (tiles * splits, num_kv_heads),
            *(q, key_pool, value_pool, *lists, parts, part_lse),
            *(batch, num_tokens, num_heads, group, max_blocks, *q.stride()[:2]),
            *(scale * math.log2(math.e), splits),
            BLOCK_SIZE=block_size,
            HEAD_DIM=head_dim,
            DIM=dim,
            BLOCK_M=block_m,
            PRECISION=precision(q.dtype),
            **constants,
        )
        if splits > 1:
            rows = num_tokens * num_heads
            warps = max(1, min(8, splits * dim // 2048))
            sizes = (rows, splits, head_dim, dim)
            run_kernel(merge_kernel, (rows,), parts, part_lse, out, lse, *sizes, num_warps=warps)

    large = batch * max_blocks * block_size * num_kv_heads * head_dim >= LARGE
    sizes = (block_m, block_size, triton.next_power_of_2(tiles))
    key = ("paged_attention", dim, q.dtype, key_pool.dtype, *sizes)
    launch(fastest(key, _configs(block_m, dim, q.element_size()), launch, large))
    return out, lse


def _num_splits(programs: int, tiles_of_keys: int, wanted: int) -> int:
    """Splits of each context: a power of two that brings the programs to `wanted`, if it can.

    A split has at least two tiles of keys in the longest context that the tables have room for.
    """
    splits = 1
    while programs * splits < wanted and splits * 4 <= tiles_of_keys and splits < 128:
        splits *= 2
    return splits


def _configs(block_m: int, dim: int, element_size: int) -> list[Config]:
    """Candidates; the splits aim at PROGRAMS programs per multiprocessor."""
    if element_size == 4 or dim > 128:
        return [{"BLOCK_N": 32, "num_warps": 4, "num_stages": 2, "PROGRAMS": 4}]
    if block_m > 16:
        tiles = [(64, 4, 2), (64, 4, 3), (128, 4, 2), (32, 4, 3), (64, 8, 3)]
        return [_config(*tile, programs=4) for tile in tiles]
    # A load that waits for a table's entry is a stage later: 5 stages are two buffers, 7 three.
    tiles = [(64, 4, 3), (32, 2, 3), (32, 4, 5), (32, 2, 5), (64, 2, 3), (64, 2, 5), (64, 4, 5)]
    tiles += [(64, 4, 7), (128, 4, 3), (128, 8, 3), (128, 8, 5)]
    return [_config(*tile, programs=programs) for programs in (8, 16, 32) for tile in tiles]


def _config(block_n: int, warps: int, stages: int, programs: int) -> Config:
    return {"BLOCK_N": block_n, "num_warps": warps, "num_stages": stages, "PROGRAMS": programs}
