"""What one forward pass of the model works on."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass
class Batch:
    """A ragged batch: the new tokens of several sequences, one after the other.

    Sequence i owns rows `cu_seqlens[i]:cu_seqlens[i + 1]` of the flat token axis; its keys so far,
    those rows included, number `context_lens[i]`. A prompt brings many rows, a decode step one. On
    a GPU there is padding: sequences without rows, or with rows and a context of 0, which see no
    key and get zeros.

    The first `num_decodes` sequences have one row each, and the last of them may have none; 0 says
    that this is not known.

    token_ids      int64 [tokens]
    positions      int64 [tokens]     place of each token in its own sequence, from 0
    slot_mapping   int64 [tokens]     where its key and value go: block * block_size + offset
    block_tables   int32 [batch, max_blocks]
    context_lens   int32 [batch]
    cu_seqlens     int32 [batch + 1]
    logit_rows     int64 [rows]       the rows of the flat token axis whose logits are wanted
    """

    token_ids: torch.Tensor
    positions: torch.Tensor
    slot_mapping: torch.Tensor
    block_tables: torch.Tensor
    context_lens: torch.Tensor
    cu_seqlens: torch.Tensor
    logit_rows: torch.Tensor
    num_decodes: int = 0

    @classmethod
    def of_prompt(cls, token_ids: torch.Tensor, block_size: int, num_rows: int = 1) -> Batch:
        """A batch of one sequence, computed whole, whose tokens lie in the first blocks in order.
        The logits of its last `num_rows` tokens are wanted, or of all if it has fewer."""
        if num_rows < 0:
            raise ValueError(f"num_rows must be 0 or more, got {num_rows}")
        places = torch.arange(len(token_ids), device=token_ids.device)
        starts = places.new_tensor([0, len(places)], dtype=torch.int32)
        table = places[: -(-len(places) // block_size)].int().unsqueeze(0)
        rows = places[max(0, len(places) - num_rows) :]
        return cls(token_ids, places, places, table, starts[1:], starts, rows)

    def __post_init__(self):
        tokens, batch = self.token_ids.shape[0], self.context_lens.shape[0]
        wanted = {
            "token_ids": (torch.int64, (tokens,)),
            "positions": (torch.int64, (tokens,)),
            "slot_mapping": (torch.int64, (tokens,)),
            "block_tables": (torch.int32, (batch, self.block_tables.shape[-1])),
            "context_lens": (torch.int32, (batch,)),
            "cu_seqlens": (torch.int32, (batch + 1,)),
            "logit_rows": (torch.int64, (self.logit_rows.shape[0],)),
        }
        for name, (dtype, shape) in wanted.items():
            tensor = getattr(self, name)
            if tensor.dtype != dtype or tensor.shape != shape:
                raise ValueError(
                    f"{name} must be {dtype} {list(shape)}, got {tensor.dtype} {list(tensor.shape)}"
                )
