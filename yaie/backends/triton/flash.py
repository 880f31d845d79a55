"""FlashAttention forward, for sequences of any lengths that lie end to end.

A program owns a tile of BLOCK_M queries of one head and walks over its keys, BLOCK_N at a time,
with the running maximum and sum of the online softmax. Scores never leave the registers. Tiles are
read through tensor descriptors: by the copy engine of a Hopper GPU, by plain loads elsewhere.
Source: Dao, "FlashAttention-2", 2023.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl

from yaie.backends.registry import Unsupported
from yaie.backends.triton.matmul import aligned, is_hopper, precision
from yaie.backends.triton.runtime import Config, fastest, launches

LARGE = 1 << 34  # multiplications from which on the configurations are timed
LOWEST = tl.constexpr(-3.0e38)  # a maximum before any score; finite, because -inf - -inf is NaN


@triton.jit
def find_sequence(cu_seqlens_ptr, tile, batch, steps, BLOCK_M: tl.constexpr):
    """The sequence that a tile of queries belongs to, by binary search.

    Sequence i's tiles begin at number cu_seqlens[i] // BLOCK_M + i: that leaves room for all of
    them, so the grid's size depends on nothing that only the GPU knows.
    """
    low, high = 0, batch
    for _ in range(steps):  # as many as halve the batch down to 1
        middle = (low + high) // 2
        is_before = tl.load(cu_seqlens_ptr + middle) // BLOCK_M + middle <= tile
        low = tl.where(is_before, middle, low)
        high = tl.where(is_before, high, middle)
    return low


@triton.jit
def attend(
    q,  # [BLOCK_M, DIM]
    k_desc,
    v_desc,  # keys and values of one head of one sequence; beyond its end come zeros
    begin,
    end,  # keys to attend to
    last_key,  # [BLOCK_M], the last key that each query sees
    scale,  # of scores, times log2(e): exp2 is the hardware's exponential
    maximum,
    total,
    out,  # the state of the online softmax
    MASKED: tl.constexpr,  # whether some query does not see some key
    SPECIALIZE: tl.constexpr,  # whether some warps load and the others compute
    BLOCK_N: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Take the keys from `begin` to `end` into the state, a tile at a time."""
    for start in tl.range(begin, end, BLOCK_N, warp_specialize=SPECIALIZE):
        k = k_desc.load([start, 0])
        scores = tl.dot(q, k.T, input_precision=PRECISION)
        if MASKED:
            keys = start + tl.arange(0, BLOCK_N)
            scores = tl.where(keys[None, :] <= last_key[:, None], scores, float("-inf"))
        higher = tl.maximum(maximum, tl.max(scores, 1) * scale)
        weights = tl.exp2(scores * scale - higher[:, None])
        rescale = tl.exp2(maximum - higher)
        total = total * rescale + tl.sum(weights, 1)
        out = out * rescale[:, None]
        v = v_desc.load([start, 0])
        out = tl.dot(weights.to(v.dtype), v, out, input_precision=PRECISION)
        maximum = higher
    return maximum, total, out


# A batch of another size needs no other machine code.
@triton.jit(do_not_specialize=["batch", "steps", "num_heads", "group"])
def flash_attention_kernel(
    q_ptr,  # [query tokens, heads, HEAD_DIM]
    k_ptr,
    v_ptr,  # [key tokens, KV heads, HEAD_DIM]
    out_ptr,  # [query tokens, heads, HEAD_DIM], contiguous
    lse_ptr,  # [query tokens, heads]
    cu_seqlens_q_ptr,
    cu_seqlens_k_ptr,  # [batch + 1]
    batch,
    steps,
    num_heads,
    group,  # query heads that share a KV head
    q_token_stride,
    q_head_stride,
    k_token_stride,
    k_head_stride,
    v_token_stride,
    v_head_stride,
    scale,  # of scores, times log2(e)
    CAUSAL: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIM: tl.constexpr,  # HEAD_DIM rounded up to a power of two
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    PRECISION: tl.constexpr,
    SPECIALIZE: tl.constexpr,
):
    """Attention of one tile of queries of one head, and its log-sum-exp."""
    # The last tiles of a causal sequence have most keys: started first, none is left to wait for.
    tile = tl.num_programs(0) - 1 - tl.program_id(0)
    head = tl.program_id(1)
    kv_head = head // group
    sequence = find_sequence(cu_seqlens_q_ptr, tile, batch, steps, BLOCK_M)
    first_query = tl.load(cu_seqlens_q_ptr + sequence).to(tl.int64)
    num_queries = (tl.load(cu_seqlens_q_ptr + sequence + 1) - first_query).to(tl.int32)
    first_key = tl.load(cu_seqlens_k_ptr + sequence).to(tl.int64)
    num_keys = (tl.load(cu_seqlens_k_ptr + sequence + 1) - first_key).to(tl.int32)
    first_row = (tile - (first_query // BLOCK_M + sequence)).to(tl.int32) * BLOCK_M
    first_row = tl.where(num_queries > 0, first_row, BLOCK_M)  # no descriptor has no rows: see 1
    rows = first_row + tl.arange(0, BLOCK_M)
    dims = tl.arange(0, DIM)
    inside = (rows < num_queries)[:, None] & (dims < HEAD_DIM)[None, :]

    past = num_keys - num_queries  # the queries are the last tokens of the sequence
    seen_by_all = num_keys
    seen_by_any = tl.where(first_row < num_queries, num_keys, 0)  # some tiles have no queries
    last_key = tl.zeros((BLOCK_M,), tl.int32) + num_keys - 1
    if CAUSAL:
        seen_by_all = tl.maximum(first_row + past + 1, 0)
        seen_by_any = tl.minimum(seen_by_any, first_row + BLOCK_M + past)
        last_key = rows + past

    # The descriptors end with the sequence: what lies beyond is another's, and may be NaN.
    q_desc = tl.make_tensor_descriptor(
        q_ptr + first_query * q_token_stride + head * q_head_stride,
        shape=[tl.maximum(num_queries, 1), HEAD_DIM],
        strides=[q_token_stride, 1],
        block_shape=[BLOCK_M, DIM],
    )
    k_desc = tl.make_tensor_descriptor(
        k_ptr + first_key * k_token_stride + kv_head * k_head_stride,
        shape=[tl.maximum(num_keys, 1), HEAD_DIM],
        strides=[k_token_stride, 1],
        block_shape=[BLOCK_N, DIM],
    )
    v_desc = tl.make_tensor_descriptor(
        v_ptr + first_key * v_token_stride + kv_head * v_head_stride,
        shape=[tl.maximum(num_keys, 1), HEAD_DIM],
        strides=[v_token_stride, 1],
        block_shape=[BLOCK_N, DIM],
    )
    q = q_desc.load([first_row, 0])
    maximum = tl.zeros((BLOCK_M,), tl.float32) + LOWEST
    total = tl.zeros((BLOCK_M,), tl.float32)
    out = tl.zeros((BLOCK_M, DIM), tl.float32)
    # fmt: off
    if SPECIALIZE:  # the compiler takes one loop, whose warps have the time to mask every tile
        maximum, total, out = attend(
            q, k_desc, v_desc, 0, seen_by_any, last_key, scale, maximum, total, out,
            True, True, BLOCK_N, PRECISION,
        )
    else:
        unmasked = tl.minimum(seen_by_all // BLOCK_N * BLOCK_N, seen_by_any)
        maximum, total, out = attend(
            q, k_desc, v_desc, 0, unmasked, last_key, scale, maximum, total, out,
            False, False, BLOCK_N, PRECISION,
        )
        maximum, total, out = attend(
            q, k_desc, v_desc, unmasked, seen_by_any, last_key, scale, maximum, total, out,
            True, False, BLOCK_N, PRECISION,
        )
    # fmt: on
    out = out / tl.where(total == 0.0, 1.0, total)[:, None]  # a row that saw nothing gives zeros
    lse = (maximum + tl.log2(total)) * 0.6931471805599453  # ln 2; log2(0) is -inf

    target = (first_query + rows) * num_heads + head
    tl.store(lse_ptr + target, lse, mask=rows < num_queries)
    target = target[:, None] * HEAD_DIM + dims[None, :]
    tl.store(out_ptr + target, out.to(out_ptr.dtype.element_ty), mask=inside)


def _config(block_m: int, block_n: int, warps: int, stages: int, specialize: int = 0) -> Config:
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "SPECIALIZE": specialize}
    return tile | {"num_warps": warps, "num_stages": stages}


def _configs(dim: int, element_size: int, device: torch.device) -> list[Config]:
    """Candidates, by what fits registers and shared memory; the first also suits short prompts."""
    if element_size == 4:
        return [_config(64, 32, 4, 2) if dim <= 128 else _config(32, 16, 4, 1)]
    if dim > 128:
        configs = [_config(64, 32, 4, 2), _config(128, 64, 8, 2)]
        specialized = [_config(128, 64, 4, 2, 1)]
    else:
        tiles = [(64, 64, 4, 2), (64, 64, 4, 3), (64, 64, 4, 1), (64, 32, 4, 3), (128, 64, 8, 2)]
        tiles += [(128, 64, 8, 3), (128, 128, 8, 2), (128, 128, 8, 3)]
        configs = [_config(*tile) for tile in tiles]
        tiles = [(128, 128, 4, 2, 1), (128, 64, 4, 2, 1), (128, 64, 4, 3, 1), (128, 64, 4, 4, 1)]
        specialized = [_config(*tile) for tile in tiles]
    return configs + specialized if is_hopper(device) else configs


@launches(float32_result=1)
def ragged_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    causal: bool,
    scale: float | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of several sequences that lie end to end; see `yaie.attention`."""
    (num_tokens, num_heads, head_dim), num_kv_heads = q.shape, k.shape[1]
    out = q.new_empty(q.shape)
    lse = q.new_empty(num_tokens, num_heads, dtype=torch.float32)
    if out.numel() == 0:
        return out, lse
    dim = max(16, triton.next_power_of_2(head_dim))  # 16: the least that the tensor cores take
    if dim > 256 or not all(map(aligned, (q, k, v))):
        raise Unsupported(
            "head_dim is at most 256, and each head begins at a multiple of 16 bytes, got "
            f"head_dim {head_dim} and strides {[*q.stride()]}, {[*k.stride()]}, {[*v.stride()]}"
        )
    scale = head_dim**-0.5 if scale is None else scale
    if scale < 0:  # the kernel scales the maximum of the scores, so the factor must be positive
        q, scale = -q, -scale
    batch = len(cu_seqlens_q) - 1

    def launch(config: Config) -> None:
        tiles = num_tokens // config["BLOCK_M"] + batch
        flash_attention_kernel[(tiles, num_heads)](
            q,
            k,
            v,
            out,
            lse,
            cu_seqlens_q,
            cu_seqlens_k,
            batch,
            batch.bit_length(),
            num_heads,
            num_heads // num_kv_heads,
            *q.stride()[:2],
            *k.stride()[:2],
            *v.stride()[:2],
            max(scale, 1e-30) * math.log2(math.e),  # not 0, because -inf × 0 is NaN
            CAUSAL=causal,
            HEAD_DIM=head_dim,
            DIM=dim,
            PRECISION=precision(q.dtype),
            **config,
        )

    large = num_tokens * num_heads * head_dim * len(k) // batch >= LARGE
    length = min(triton.next_power_of_2(num_tokens // batch + 1), 8192)
    key = ("flash_attention", dim, q.dtype, causal, length)
    launch(fastest(key, _configs(dim, q.element_size(), q.device), launch, large))
    return out, lse


@launches(float32_result=1)
def attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, scale: float | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of one sequence; see `yaie.attention.attention`."""
    ends = torch.arange(2, dtype=torch.int32, device=q.device)  # made there: no copy to wait for
    return ragged_attention.__wrapped__(q, k, v, ends * len(q), ends * len(k), causal, scale)
