"""Paged attention of notebook 19's last sections: over selected tokens, and over an 8-bit cache.

Arguments that both share are those of `yaie.ops.reference.attention.paged_attention`. A selection
is int32 `[query tokens, most]`: positions in the query's sequence, of which the first `counts[t]`
(int32 `[query tokens]`) are valid and different; all query heads of a token share them.
"""

from itertools import pairwise
from typing import Any

import torch

from yaie.course.lessons.ops.kv import _check_scales
from yaie.ops.checks import check_tensor
from yaie.ops.cuda import paged
from yaie.ops.cuda.launching import call
from yaie.ops.reference.attention import attention, paged_attention

State = tuple[torch.Tensor, torch.Tensor]

# ------------------------------------------------------------------------------- selected tokens


def selected_attention(*operands: Any, selected: torch.Tensor, counts: torch.Tensor) -> State:
    """Attention of each query over its selected tokens, by PyTorch, in the precision of q.

    Args:
        operands: q, key_pool, value_pool, block_tables, context_lens, cu_seqlens and scale.
    """
    q, key_pool, value_pool, tables, _, starts, scale = operands
    check_selection(q, selected, counts)
    out = torch.zeros_like(q)
    lse = torch.full(q.shape[:2], -torch.inf, device=q.device)
    for sequence, tokens in enumerate(pairwise(starts.tolist())):
        for token in range(*tokens):
            chosen = selected[token, : counts[token]].long()
            blocks, offsets = chosen // key_pool.shape[1], chosen % key_pool.shape[1]
            blocks = tables[sequence, blocks].long()
            keys, values = (pool[blocks, offsets] for pool in (key_pool, value_pool))
            mine = slice(token, token + 1)
            out[mine], lse[mine] = attention(q[mine], keys, values, causal=False, scale=scale)
    return out, lse


def selected_attention_cuda(
    *operands: Any,
    selected: torch.Tensor,
    counts: torch.Tensor,
    file: str = "paged/selected.cu",
) -> State:
    """The same by the CUDA kernel, which follows selection and table itself."""
    check_selection(operands[0], selected, counts)
    paged.require_dim("selected", operands[0], paged.MOST_DIM)
    chosen = selected.contiguous(), counts.contiguous(), selected.shape[1]
    return paged.decode(file, "selected", *operands, workspace=chosen)


def slot_tables(
    selected: torch.Tensor, counts: torch.Tensor, tables: torch.Tensor,
    context_lens: torch.Tensor, starts: torch.Tensor, block_size: int,
) -> torch.Tensor:  # fmt: skip
    """A selection as block tables for blocks of one token: int32 `[query tokens, most]`.

    Row t holds the slots of the selected tokens, and 0 past counts[t]. By a CUDA kernel; on CPU
    tensors it is emulated.
    """
    check_selection(selected, selected, counts)
    slots = selected.new_empty(selected.shape)
    given = (x.contiguous() for x in (selected, counts, tables, context_lens, starts))
    sizes = len(selected), len(tables), selected.shape[1], block_size, tables.shape[1]
    call("paged/slots.cu", "slot_tables_i32", *given, slots, *sizes)
    return slots


def attention_by_slots(
    *operands: Any, slots: torch.Tensor, counts: torch.Tensor, rung: paged.Rung = paged.mma
) -> State:
    """A kernel of paged attention over a selection: each query is a sequence of counts[t] tokens,
    and its row of `slot_tables` is its block table, with a block_size of 1."""
    q, key_pool, value_pool, *_, scale = operands
    pools = (pool.flatten(0, 1).unsqueeze(1) for pool in (key_pool, value_pool))
    return rung(q, *pools, slots, counts, None, scale)


def check_selection(q: torch.Tensor, selected: torch.Tensor, counts: torch.Tensor) -> None:
    """Raise ValueError or TypeError unless the selection has a row and a count for each query."""
    check_tensor("selected", selected, (len(q), "most"), (torch.int32,), like=q)
    check_tensor("counts", counts, (len(q),), (torch.int32,), like=q)


# ----------------------------------------------------------------------------------- 8-bit cache


def attention_fp8(*operands: Any, key_scale: torch.Tensor, value_scale: torch.Tensor) -> State:
    """Paged attention whose pools are float8_e4m3fn, times a scale, by PyTorch.

    Args:
        operands: q, key_pool, value_pool, block_tables, context_lens, cu_seqlens and scale.
        key_scale, value_scale: float32 `[KV heads]` or `[1]`, positive: a stored number times its
            scale is the key or value.
    """
    q, key_pool, value_pool, *others = operands
    scales = _check_scales(key_pool, key_scale, value_scale)
    precision = torch.promote_types(q.dtype, torch.float32)
    pools = (
        pool.to(precision) * scale.to(precision).view(-1, 1)
        for pool, scale in zip((key_pool, value_pool), scales, strict=True)
    )
    out, lse = paged_attention(q.to(precision), *pools, *others)
    return out.to(q.dtype), lse


def attention_fp8_cuda(
    *operands: Any,
    key_scale: torch.Tensor,
    value_scale: torch.Tensor,
    workers: int | None = None,
) -> State:
    """The same by rung 4: tiles are widened to the dtype of q, float16 or bfloat16, on the chip."""
    scales = _check_scales(operands[1], key_scale, value_scale)
    if not scales:
        raise ValueError(f"key_pool must be float8_e4m3fn, got {operands[1].dtype}")
    scales = (*(scale.contiguous() for scale in scales), int(len(key_scale) > 1))
    return paged.mma(*operands, workers=workers, scales=scales)
