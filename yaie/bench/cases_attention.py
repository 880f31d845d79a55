"""Cases of attention and of the paged cache, with their peers."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from yaie.bench.cases import Case, Draw, Prepare, itemsize
from yaie.bench.protocol import Call

WORKSPACE = 512 << 20  # bytes for FlashInfer's partial results


def attention_flops(batch: int, heads: int, num_q: int, num_k: int, head_dim: int, causal: bool):
    """Operations of q · k and of weights × v over the scores that the mask leaves.

    With `causal`, queries are the last tokens: query i of num_q sees num_k - num_q + i + 1 keys.
    """
    hidden = num_q * (num_q - 1) // 2 if causal else 0
    return 4 * batch * heads * head_dim * (num_q * num_k - hidden)


# ------------------------------------------------------------------------------------- prefill


def prefill(
    batch: int, heads: int, tokens: int, head_dim: int, causal: bool, dtype: torch.dtype
) -> Case:
    """Attention of `batch` sequences of one length over themselves, every head with its own K, V.

    All lie end to end, `[batch × tokens, heads, head_dim]`.
    """
    count = batch * tokens * heads * head_dim
    rest = batch * tokens * heads * 4 + 2 * 4 * (batch + 1)  # log-sum-exp, where sequences begin

    def arguments(draw: Draw) -> tuple:
        q, k, v = (draw.normal(batch * tokens, heads, head_dim) for _ in range(3))
        starts = torch.arange(batch + 1, dtype=torch.int32, device=draw.device) * tokens
        return q, k, v, starts, starts, causal, None

    def oracle(q, k, v, starts_q, starts_k, causal, scale) -> tuple:
        parts = [
            _exact(*(x[i * tokens : (i + 1) * tokens] for x in (q, k, v)), causal)
            for i in range(batch)
        ]
        return tuple(torch.cat(part) for part in zip(*parts, strict=True))

    kind = "causal" if causal else "full"
    peers = {
        "SDPA, FlashAttention-2": sdpa(SDPBackend.FLASH_ATTENTION, batch),
        "SDPA, cuDNN": sdpa(SDPBackend.CUDNN_ATTENTION, batch),
        "FlashInfer, FA3": _flashinfer_prefill,
        "FlashAttention-3": _flash_attention_3,
    }
    return Case(
        "ragged_attention", f"B{batch} H{heads} S{tokens} d{head_dim} {kind}", arguments,
        4 * count * itemsize(dtype) + rest,
        attention_flops(batch, heads, tokens, tokens, head_dim, causal),
        oracle=oracle, peers=peers, compiled=False,
        kernels={"SDPA, FlashAttention-2": "flash", "SDPA, cuDNN": "cudnn"},
    )  # fmt: skip


def _exact(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> tuple:
    """Attention of one sequence in float64, a head at a time, since the scores are large."""
    (num_q, heads, head_dim), num_k = q.shape, k.shape[0]
    group = heads // k.shape[1]
    out = torch.empty(num_q, heads, head_dim, dtype=torch.float64, device=q.device)
    lse = torch.empty(num_q, heads, dtype=torch.float64, device=q.device)
    hidden = torch.ones(num_q, num_k, dtype=torch.bool, device=q.device)
    hidden = hidden.triu(num_k - num_q + 1) if causal else None
    for head in range(heads):
        scores = q[:, head].double() @ k[:, head // group].double().t() / head_dim**0.5
        if hidden is not None:
            scores.masked_fill_(hidden, -torch.inf)
        lse[:, head] = torch.logsumexp(scores, dim=1)
        out[:, head] = torch.softmax(scores, dim=1) @ v[:, head // group].double()
    return out, lse


def sdpa(backend: SDPBackend, batch: int) -> Prepare:
    """torch's scaled_dot_product_attention with one implementation allowed and no other."""

    def prepare(q, k, v, starts_q, starts_k, causal, scale) -> Call:
        # [batch, heads, tokens, head_dim], as views
        q, k, v = (x.unflatten(0, (batch, -1)).transpose(1, 2) for x in (q, k, v))

        def call() -> torch.Tensor:
            with sdpa_kernel(backend):
                out = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
            return out.transpose(1, 2)

        return call

    return prepare


def _flashinfer_prefill(q, k, v, starts_q, starts_k, causal, scale) -> Call:
    from flashinfer import BatchPrefillWithRaggedKVCacheWrapper

    workspace = torch.zeros(WORKSPACE, dtype=torch.uint8, device=q.device)
    wrapper = BatchPrefillWithRaggedKVCacheWrapper(workspace, "NHD", backend="fa3")
    wrapper.plan(
        starts_q, starts_k, q.shape[1], k.shape[1], q.shape[2],
        causal=causal, q_data_type=q.dtype, kv_data_type=k.dtype,
    )  # fmt: skip
    return lambda: wrapper.run(q, k, v)


def _flash_attention_3(q, k, v, starts_q, starts_k, causal, scale) -> Call:
    """The library's own kernels, compiled ahead: the package fa3-fwd."""
    from fa3_fwd_interface import flash_attn_func

    batch = len(starts_q) - 1
    q, k, v = (x.unflatten(0, (batch, -1)) for x in (q, k, v))
    return lambda: flash_attn_func(q, k, v, causal=causal)


# ------------------------------------------------------------------------------------- decode


def decode(
    batch: int, context: int, heads: int, kv_heads: int, head_dim: int, block_size: int,
    dtype: torch.dtype, contexts: Sequence[int] = (),
) -> Case:  # fmt: skip
    """One query for each of `batch` sequences, over blocks that lie anywhere in the pool.

    Args:
        contexts: of each sequence, where they are not all `context`.
    """
    peers = {
        "FlashInfer": _flashinfer_decode(tensor_cores=False),
        "FlashInfer, tensor cores": _flashinfer_decode(tensor_cores=True),
    }
    case = paged_case(
        "paged_attention", contexts or [context] * batch, 0, heads, kv_heads, head_dim, block_size,
        dtype, lambda draw: torch.arange(batch + 1, dtype=torch.int32, device=draw.device),
    )  # fmt: skip
    return replace(
        case,
        shape=f"B{batch} ctx{context} heads {heads}/{kv_heads} d{head_dim} block {block_size}",
        num_bytes=case.num_bytes + 4 * (batch + 1),  # where the queries begin
        peers=peers if contexts else {"SDPA, FlashAttention-2, contiguous": _sdpa_decode} | peers,
    )


def paged_case(
    operator: str, lengths: Sequence[int], shared: int, heads: int, kv_heads: int, head_dim: int,
    block_size: int, dtype: torch.dtype, last: Callable[[Draw], object],
) -> Case:  # fmt: skip
    """One query per sequence over the paged cache; `last` makes the argument before the scale."""
    batch, size = len(lengths), itemsize(dtype)
    tokens = shared + sum(length - shared for length in lengths)
    cache = 2 * tokens * kv_heads * head_dim * size
    queries = 2 * batch * heads * head_dim * size + batch * heads * 4  # in, out, log-sum-exp
    tables = 4 * batch * (-(-max(lengths) // block_size) + 1)

    def arguments(draw: Draw) -> tuple:
        operands = _paged_inputs(draw, lengths, shared, heads, kv_heads, head_dim, block_size)
        return *operands, last(draw), None

    return Case(
        operator, "", arguments, cache + queries + tables, 4 * heads * sum(lengths) * head_dim,
        oracle=lambda *arguments: _exact_paged(*arguments[:5]), writes=False, compiled=False,
    )  # fmt: skip


def _paged_inputs(
    draw: Draw, lengths: Sequence[int], shared: int, heads: int, kv_heads: int, head_dim: int,
    block_size: int,
) -> tuple:  # fmt: skip
    """Queries, pools, tables and lengths; the blocks of the first `shared` tokens are in each."""
    blocks = shared // block_size
    counts = [-(-length // block_size) - blocks for length in lengths]
    total = blocks + sum(counts)
    pools = (draw.normal(total, block_size, kv_heads, head_dim) for _ in ("keys", "values"))
    order = draw.permutation(total).int()
    own = torch.nn.utils.rnn.pad_sequence(order[blocks:].split(counts), batch_first=True)
    return (
        draw.normal(len(lengths), heads, head_dim),
        *pools,
        torch.cat((order[:blocks].expand(len(lengths), -1), own), dim=1),
        torch.tensor(lengths, dtype=torch.int32, device=draw.device),
    )


def _exact_paged(q, key_pool, value_pool, tables, lengths) -> tuple:
    """One query per sequence in float64."""
    parts = []
    for i, (table, length) in enumerate(zip(tables.long(), lengths.tolist(), strict=True)):
        blocks = table[: -(-length // key_pool.shape[1])]
        keys, values = (pool[blocks].flatten(0, 1)[:length] for pool in (key_pool, value_pool))
        parts.append(_exact(q[i : i + 1], keys, values, causal=False))
    return tuple(torch.cat(part) for part in zip(*parts, strict=True))


def _sdpa_decode(q, key_pool, value_pool, tables, lengths, starts, scale) -> Call:
    """A cache without pages, gathered beforehand: what torch alone offers."""
    context = int(lengths[0])
    keys, values = (
        pool[tables.long()].flatten(1, 2)[:, :context].transpose(1, 2).contiguous()
        for pool in (key_pool, value_pool)
    )
    queries = q.unsqueeze(2)

    def call() -> torch.Tensor:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return F.scaled_dot_product_attention(queries, keys, values, enable_gqa=True).squeeze(2)

    return call


def _flashinfer_decode(tensor_cores: bool) -> Prepare:
    def prepare(q, key_pool, value_pool, tables, lengths, starts, scale) -> Call:
        from flashinfer import BatchDecodeWithPagedKVCacheWrapper

        block_size = key_pool.shape[1]
        workspace = torch.zeros(WORKSPACE, dtype=torch.uint8, device=q.device)
        wrapper = BatchDecodeWithPagedKVCacheWrapper(
            workspace, "NHD", use_tensor_cores=tensor_cores
        )
        wrapper.plan(
            *pages(tables, lengths, block_size), q.shape[1], key_pool.shape[2], q.shape[2],
            block_size, q_data_type=q.dtype, kv_data_type=key_pool.dtype,
        )  # fmt: skip
        return lambda: wrapper.run(q, (key_pool, value_pool))

    return prepare


def pages(
    tables: torch.Tensor, lengths: torch.Tensor, block_size: int, skip: int = 0
) -> tuple[torch.Tensor, ...]:
    """Blocks after the first `skip` as FlashInfer takes them: starts, all, lengths of the last."""
    counts = [-(-length // block_size) for length in lengths.tolist()]
    starts = torch.tensor([0, *(count - skip for count in counts)]).cumsum(0)
    rows = [table[skip:count] for table, count in zip(tables, counts, strict=True)]
    return starts.int().to(tables.device), torch.cat(rows), (lengths - 1) % block_size + 1


# ------------------------------------------------------------------------------------- cache


def cache_write(
    tokens: int, kv_heads: int, head_dim: int, block_size: int, dtype: torch.dtype
) -> Case:
    """reshape_and_cache of `tokens` tokens."""
    row = kv_heads * head_dim * itemsize(dtype)

    def new_tokens(draw: Draw) -> tuple:
        blocks = -(-tokens // block_size)
        pools = (draw.normal(blocks, block_size, kv_heads, head_dim) for _ in ("keys", "values"))
        keys, values = (draw.normal(tokens, kv_heads, head_dim) for _ in range(2))
        return keys, values, *pools, draw.permutation(blocks * block_size)[:tokens]

    def slots(keys, values, key_pool, value_pool, slots) -> tuple:
        return (key_pool.flatten(0, 1), value_pool.flatten(0, 1)), slots, (keys, values)

    shape, num_bytes = f"{tokens} tokens, {kv_heads} × {head_dim}", 4 * tokens * row + 8 * tokens
    return writing("reshape_and_cache", shape, new_tokens, num_bytes, slots)


def writing(
    operator: str, shape: str, arguments: Callable[[Draw], tuple], num_bytes: int,
    writes: Callable[..., tuple],
) -> Case:  # fmt: skip
    """An operator that writes rows of pools in place.

    Args:
        writes: arguments -> the pools, which of their rows are written, and what belongs there.
    """

    def oracle(*arguments: object) -> tuple:
        pools, rows, new = writes(*arguments)
        pairs = zip(pools, new, strict=True)
        return tuple(pool.double().index_copy(0, rows, x.double()) for pool, x in pairs)

    def spoil(*arguments: object) -> None:
        pools, rows, _ = writes(*arguments)
        for pool in pools:
            pool[rows] = torch.nan

    return Case(
        operator, shape, arguments, num_bytes, 0, oracle=oracle, compiled=False,
        changes=lambda *arguments: tuple(writes(*arguments)[0]), spoil=spoil,
    )  # fmt: skip
