"""From a scheduled step to logits: the batch as tensors, and one forward pass."""

from __future__ import annotations

import torch

from yaie.engine.scheduler import Step
from yaie.kv_cache import KVCacheManager
from yaie.model.batch import Batch
from yaie.model.llama import Llama


class Runner:
    """Runs the model over the paged cache."""

    def __init__(self, model: Llama, kv: KVCacheManager) -> None:
        self.model = model
        self.kv = kv

    def run(self, step: Step) -> torch.Tensor:
        """Compute the tokens of a step, and store their keys and values.

        Returns:
            Logits for the token after the last one of each request whose tokens are all computed
            then, in the order of the batch: float32 `[requests, vocabulary]`.
        """
        with torch.inference_mode():
            return self.model(self.prepare(step), self.kv.key_pools, self.kv.value_pools)

    def prepare(self, step: Step) -> Batch:
        """Lay the requests of a step out one behind the other."""
        tokens, positions, slots, tables = [], [], [], []
        lengths, starts, logit_rows = [], [0], []
        for request in step.scheduled:
            start = request.num_computed_tokens
            end = start + step.num_tokens[request.request_id]
            tokens += request.token_ids[start:end]
            positions += range(start, end)
            slots += self.kv.slot_mapping(request.request_id, start, end)
            tables.append(self.kv.block_tables[request.request_id])
            lengths.append(end)
            starts.append(len(tokens))
            if end == len(request.token_ids):
                logit_rows.append(len(tokens) - 1)
        longest = max(len(table) for table in tables)
        tables = [table + [0] * (longest - len(table)) for table in tables]
        device = self.kv.key_pools[0].device

        def tensor(values: list, dtype: torch.dtype) -> torch.Tensor:
            return torch.tensor(values, dtype=dtype, device=device)

        return Batch(
            token_ids=tensor(tokens, torch.int64),
            positions=tensor(positions, torch.int64),
            slot_mapping=tensor(slots, torch.int64),
            block_tables=tensor(tables, torch.int32),
            context_lens=tensor(lengths, torch.int32),
            cu_seqlens=tensor(starts, torch.int32),
            logit_rows=tensor(logit_rows, torch.int64),
        )
