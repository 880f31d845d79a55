"""FlashAttention forward, for sequences of any lengths that lie end to end.

A program owns a tile of BLOCK_M queries of one head and walks over its keys, BLOCK_N at a time,
with the running maximum and sum of the online softmax. Scores never leave the registers. Sources:
Dao, "FlashAttention-2", 2023; the tensor descriptors are read by Hopper's copy engine, and by
plain loads elsewhere.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from yaie.ops.reference.attention import positive_scale
from yaie.ops.registry import Unsupported
from yaie.ops.triton.online import LOWEST, finish, online_step
from yaie.ops.triton.runtime import Config, aligned, fastest, launches, precision

LARGE = 1 << 34  # multiplications from which on the configurations are timed


@triton.jit
def find_sequence(cu_seqlens_ptr, tile, batch, group, BLOCK_M: tl.constexpr):
    """The sequence that a tile of rows belongs to, by binary search; `group` rows are one query's.

    Sequence i's tiles begin at number cu_seqlens[i] × group // BLOCK_M + i: that leaves room for
    all of them, so the grid's size depends on nothing that only the GPU knows.
    """
    low = 0
    high = batch
    while high - low > 1:
        middle = (low + high) // 2
        if tl.load(cu_seqlens_ptr + middle) * group // BLOCK_M + middle <= tile:
            low = middle
        else:
            high = middle
    return low


@triton.jit
def seen_keys(
    first_row,
    num_queries,
    num_keys,
    CAUSAL: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Say which keys the queries first_row to first_row + BLOCK_M - 1 of a sequence see.

    The queries are the last of the sequence's num_keys tokens: query `num_queries - 1` is at
    position `num_keys - 1`. With CAUSAL a query sees the keys up to its own position, without it
    all of them. A tile may have rows beyond the last query, whose results are not stored.

    Returns:
        `last_key`, [BLOCK_M], the last key that each query sees, negative if it sees none;
        `unmasked`, how many keys lie in whole tiles of BLOCK_N that every query of the tile sees,
        a multiple of BLOCK_N, never negative;
        `end`, one more than the last key that any query of the tile sees, at most num_keys, 0 or
        less if none sees any.
    """
    rows = first_row + tl.arange(0, BLOCK_M)
    past = num_keys - num_queries
    if CAUSAL:
        last_key = rows + past
        seen_by_all = first_row + past + 1
        end = tl.minimum(num_keys, first_row + BLOCK_M + past)
    else:
        last_key = tl.zeros((BLOCK_M,), tl.int32) + num_keys - 1
        seen_by_all = num_keys
        end = num_keys
    return last_key, tl.maximum(seen_by_all, 0) // BLOCK_N * BLOCK_N, end


@triton.jit
def attend(
    q,  # [BLOCK_M, DIM]
    k_desc,
    v_desc,  # [KV heads, tokens, DIM], tiles of [1, BLOCK_N, DIM]
    kv_head,
    first_key,  # where the sequence begins
    begin,
    end,  # keys of the sequence to attend to
    num_keys,
    last_key,  # [BLOCK_M], the last key that each query sees
    scale,  # of scores, times log2(e): exp2 is the hardware's exponential
    maximum,
    total,
    out,  # the state of the online softmax
    MASKED: tl.constexpr,  # whether some query may not see some key
    BEYOND: tl.constexpr,  # whether the last tile reaches beyond the sequence
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    DIM: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Take the keys from `begin` to `end` into the state, a tile at a time."""
    for start in tl.range(begin, end, BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N)
        k = k_desc.load([kv_head, first_key + start, 0]).reshape(BLOCK_N, DIM)
        scores = tl.dot(q, k.T, input_precision=PRECISION)
        if MASKED:
            scores = tl.where(keys[None, :] <= last_key[:, None], scores, float("-inf"))
        weights, maximum, total, out = online_step(scores, scale, maximum, total, out)
        v = v_desc.load([kv_head, first_key + start, 0]).reshape(BLOCK_N, DIM)
        if BEYOND:  # there lie another sequence's values, and a weight of 0 times NaN is NaN
            v = tl.where(keys[:, None] < num_keys, v, 0.0)
        out = tl.dot(weights.to(v.dtype), v, out, input_precision=PRECISION)
    return maximum, total, out


# A batch of another size needs no other machine code.
@triton.jit(do_not_specialize=["batch", "num_heads", "group"])
def flash_attention_kernel(
    q_desc,  # [heads, query tokens, DIM], tiles of [1, BLOCK_M, DIM]
    k_desc,
    v_desc,  # [KV heads, key tokens, DIM], tiles of [1, BLOCK_N, DIM]
    out_ptr,  # [query tokens, heads, HEAD_DIM]
    lse_ptr,  # [query tokens, heads]
    cu_seqlens_q_ptr,
    cu_seqlens_k_ptr,  # [batch + 1]
    batch,
    num_heads,
    group,  # query heads that share a KV head
    scale,  # of scores, times log2(e)
    CAUSAL: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIM: tl.constexpr,  # HEAD_DIM rounded up to a power of two
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Attention of one tile of queries of one head, and its log-sum-exp."""
    # The last tiles of a causal sequence have most keys: started first, none is left to wait for.
    tile = tl.num_programs(0) - 1 - tl.program_id(0)
    head = tl.program_id(1)
    sequence = find_sequence(cu_seqlens_q_ptr, tile, batch, 1, BLOCK_M)
    first_query = tl.load(cu_seqlens_q_ptr + sequence)
    num_queries = tl.load(cu_seqlens_q_ptr + sequence + 1) - first_query
    first_row = (tile - (first_query // BLOCK_M + sequence)) * BLOCK_M
    if first_row >= num_queries:
        return
    first_key = tl.load(cu_seqlens_k_ptr + sequence)
    num_keys = tl.load(cu_seqlens_k_ptr + sequence + 1) - first_key

    # fmt: off
    last_key, unmasked, seen_by_any = seen_keys(
        first_row, num_queries, num_keys, CAUSAL, BLOCK_M, BLOCK_N
    )
    # fmt: on
    # Tiles that every query sees whole; tiles with a mask; one that ends beyond the sequence.
    within = tl.minimum(num_keys // BLOCK_N * BLOCK_N, seen_by_any)

    q = q_desc.load([head, first_query + first_row, 0]).reshape(BLOCK_M, DIM)
    maximum = tl.zeros((BLOCK_M,), tl.float32) + LOWEST
    total = tl.zeros((BLOCK_M,), tl.float32)
    out = tl.zeros((BLOCK_M, DIM), tl.float32)
    kv_head = head // group
    # fmt: off
    maximum, total, out = attend(
        q, k_desc, v_desc, kv_head, first_key, 0, unmasked, num_keys, last_key, scale,
        maximum, total, out, False, False, BLOCK_M, BLOCK_N, DIM, PRECISION,
    )
    if CAUSAL:
        maximum, total, out = attend(
            q, k_desc, v_desc, kv_head, first_key, unmasked, within, num_keys, last_key, scale,
            maximum, total, out, True, False, BLOCK_M, BLOCK_N, DIM, PRECISION,
        )
    rest = tl.maximum(unmasked, num_keys // BLOCK_N * BLOCK_N)
    maximum, total, out = attend(
        q, k_desc, v_desc, kv_head, first_key, rest, seen_by_any, num_keys, last_key, scale,
        maximum, total, out, True, True, BLOCK_M, BLOCK_N, DIM, PRECISION,
    )
    # fmt: on
    out, lse = finish(maximum, total, out)

    rows = first_row + tl.arange(0, BLOCK_M)
    dims = tl.arange(0, DIM)
    target = (first_query + rows).to(tl.int64) * num_heads + head
    inside = rows < num_queries
    tl.store(lse_ptr + target, lse, mask=inside)
    tl.store(
        out_ptr + target[:, None] * HEAD_DIM + dims[None, :],
        out.to(out_ptr.dtype.element_ty),
        mask=inside[:, None] & (dims[None, :] < HEAD_DIM),
    )


def _config(block_m: int, block_n: int, warps: int, stages: int) -> Config:
    return {"BLOCK_M": block_m, "BLOCK_N": block_n, "num_warps": warps, "num_stages": stages}


def _configs(dim: int, element_size: int) -> list[Config]:
    """Candidates, by what fits registers and shared memory; the first also suits short prompts."""
    if element_size == 4:
        return [_config(64, 32, 4, 2) if dim <= 128 else _config(32, 16, 4, 1)]
    if dim > 128:
        return [_config(64, 32, 4, 2), _config(128, 64, 8, 2), _config(64, 64, 4, 2)]
    tiles = [(64, 64, 4, 2), (64, 64, 4, 3), (64, 128, 4, 2), (128, 64, 4, 3)]
    tiles += [(128, 64, 8, stages) for stages in (2, 3, 4)]
    return [_config(*tile) for tile in [*tiles, (128, 128, 8, 2), (128, 128, 8, 3)]]


@launches(float32_result=1)
def ragged_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    causal: bool,
    scale: float | None,
) -> tuple[Tensor, Tensor]:
    """Attention of several sequences that lie end to end; see `reference.attention`."""
    (num_tokens, num_heads, head_dim), num_kv_heads = q.shape, k.shape[1]
    out = q.new_empty(q.shape)
    lse = q.new_empty(num_tokens, num_heads, dtype=torch.float32)
    if out.numel() == 0:
        return out, lse
    if k.shape[0] == 0:
        return out.zero_(), lse.fill_(-math.inf)
    dim = max(16, triton.next_power_of_2(head_dim))  # 16: the least that the tensor cores take
    if dim > 256 or not all(map(aligned, (q, k, v))):
        raise Unsupported(
            "head_dim is at most 256, and each head begins at a multiple of 16 bytes, got "
            f"head_dim {head_dim} and strides {[*q.stride()]}, {[*k.stride()]}, {[*v.stride()]}"
        )
    q, scale = positive_scale(q, scale)
    batch, starts = len(cu_seqlens_q) - 1, [x.contiguous() for x in (cu_seqlens_q, cu_seqlens_k)]

    def launch(config: Config) -> None:
        block_m, block_n = config["BLOCK_M"], config["BLOCK_N"]
        flash_attention_kernel[(num_tokens // block_m + batch, num_heads)](
            *(_tiles(q, block_m, dim), _tiles(k, block_n, dim), _tiles(v, block_n, dim)),
            *(out, lse, *starts, batch, num_heads, num_heads // num_kv_heads),
            scale * math.log2(math.e),
            CAUSAL=causal,
            HEAD_DIM=head_dim,
            DIM=dim,
            PRECISION=precision(q.dtype),
            **config,
        )

    length = num_tokens // batch
    large = num_tokens * num_heads * head_dim * k.shape[0] // batch >= LARGE
    key = ("flash_attention", dim, q.dtype, causal, min(triton.next_power_of_2(length + 1), 8192))
    launch(fastest(key, _configs(dim, q.element_size()), launch, large))
    return out, lse


def _tiles(x: Tensor, block: int, dim: int) -> TensorDescriptor:
    """`[tokens, heads, head_dim]` as tiles of some tokens of one head; beyond the end come zeros.

    Beyond head_dim too, where it is not a power of two: the product does not notice them.
    """
    x = x.transpose(0, 1)
    return TensorDescriptor(x, list(x.shape), list(x.stride()), [1, block, dim])
