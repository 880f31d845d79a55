"""The case of a shared prefix, with its peers."""

from __future__ import annotations

from dataclasses import replace

import torch

from yaie.bench.cases import Case
from yaie.bench.cases_attention import WORKSPACE, paged_case, pages
from yaie.bench.protocol import Call
from yaie.ops.attention import paged_attention_forward


def shared_prefix(
    batch: int, shared: int, own: int, heads: int, kv_heads: int, head_dim: int, block_size: int,
    dtype: torch.dtype,
) -> Case:  # fmt: skip
    """One query for each of `batch` sequences, of which the first `shared` tokens are the same.

    Both numbers of tokens are multiples of the block size.
    """

    def plain(q, key_pool, value_pool, tables, lengths, shared_len, scale) -> Call:
        starts = torch.arange(len(q) + 1, dtype=torch.int32, device=q.device)
        cache = key_pool, value_pool, tables, lengths, starts
        return lambda: paged_attention_forward(q, *cache, scale)

    case = paged_case(
        "shared_prefix_attention", [shared + own] * batch, shared, heads, kv_heads, head_dim,
        block_size, dtype, lambda draw: shared,
    )  # fmt: skip
    return replace(
        case,
        shape=f"B{batch} shared {shared} own {own} heads {heads}/{kv_heads} d{head_dim}",
        peers={"paged_attention": plain, "FlashInfer, cascade": _flashinfer_cascade},
    )


def _flashinfer_cascade(q, key_pool, value_pool, tables, lengths, shared_len, scale) -> Call:
    """FlashInfer's attention in two levels: the shared prefix, then the rest of each sequence."""
    from flashinfer import MultiLevelCascadeAttentionWrapper

    if not shared_len:
        raise ValueError("nothing is shared")
    block_size, ints = key_pool.shape[1], {"dtype": torch.int32, "device": q.device}
    blocks = shared_len // block_size
    common = (torch.tensor([0, len(q)], **ints), torch.tensor([0, blocks], **ints),
              tables[0, :blocks], torch.tensor([block_size], **ints))  # fmt: skip
    own = (torch.arange(len(q) + 1, **ints), *pages(tables, lengths, block_size, blocks))
    workspace = torch.zeros(WORKSPACE, dtype=torch.uint8, device=q.device)
    wrapper = MultiLevelCascadeAttentionWrapper(2, workspace, "NHD")
    wrapper.plan(
        *(list(level) for level in zip(common, own, strict=True)),
        q.shape[1], key_pool.shape[2], q.shape[2], block_size, q_data_type=q.dtype,
    )  # fmt: skip
    cache = torch.stack((key_pool, value_pool), dim=1)
    return lambda: wrapper.run(q, cache)
