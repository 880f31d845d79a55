"""What a step works on, laid out in one piece of memory, so that one copy brings it to a GPU.

On the device that memory is

    sampled | token_ids | sources | positions | slot_mapping | ... | min_p

`sampled` has a place for each of `num_sampled` tokens: there a step leaves those that it chose, in
the order of its rows of logits. What follows are the fields of a `Shape`, which the host writes and
a copy brings. The host may write a step before it knows the tokens of the last one, so it says
where each token is to be found, as an index into `sampled` and `token_ids` together: `sources[i]`
is `num_sampled + i` for a token that the host knows, and so wrote to `token_ids[i]`; it is the
request's row in the last step for a token that only the device knows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import torch

from yaie.engine.kv_cache import KVCacheManager
from yaie.engine.request import PENDING, Request
from yaie.engine.scheduler import Step
from yaie.model.batch import Batch


@dataclass(frozen=True)
class Shape:
    """The sizes of a step.

    Attributes:
        tokens, sequences: computed together; a sequence that decodes has one token.
        rows: sequences that get a token.
        width: entries of a block table.
    """

    tokens: int
    sequences: int
    rows: int
    width: int

    @property
    def is_decode(self) -> bool:
        """Whether every sequence has one token, and gets one."""
        return self.tokens == self.sequences == self.rows

    def holds(self, step: Shape) -> bool:
        """Whether a step, with nobody's tokens and sequences beside its own, can have this shape.

        Attention takes a shape of as many sequences as tokens for a decode step.
        """
        if self.is_decode:
            return step.is_decode and step.tokens <= self.tokens
        has_room = step.sequences < self.sequences and step.rows <= self.rows
        return has_room and step.tokens <= self.tokens and step.width <= self.width

    @cached_property
    def fields(self) -> dict[str, tuple[torch.dtype, tuple[int, ...]]]:
        """What a step consists of, in the order of memory.

        Numbers of 8 bytes, then those of 4, so that all are aligned. And `token_ids` first: behind
        the sampled tokens, with which they are one array.
        """
        return {
            "token_ids": (torch.int64, (self.tokens,)),
            "sources": (torch.int64, (self.tokens,)),
            "positions": (torch.int64, (self.tokens,)),
            "slot_mapping": (torch.int64, (self.tokens,)),
            "logit_rows": (torch.int64, (self.rows,)),
            "uniform": (torch.float64, (self.rows,)),
            "block_tables": (torch.int32, (self.sequences, self.width)),
            "context_lens": (torch.int32, (self.sequences,)),
            "cu_seqlens": (torch.int32, (self.sequences + 1,)),
            "temperature": (torch.float32, (self.rows,)),
            "top_k": (torch.int32, (self.rows,)),
            "top_p": (torch.float32, (self.rows,)),
            "min_p": (torch.float32, (self.rows,)),
        }

    @cached_property
    def nbytes(self) -> int:
        """The size of all fields together."""
        return sum(dtype.itemsize * math.prod(size) for dtype, size in self.fields.values())

    def views(self, memory: torch.Tensor) -> dict[str, torch.Tensor]:
        """The fields, as tensors that lie in `memory`, uint8 `[nbytes or more]`."""
        views, start = {}, 0
        for name, (dtype, size) in self.fields.items():
            end = start + dtype.itemsize * math.prod(size)
            views[name] = memory[start:end].view(dtype).view(size)
            start = end
        return views


class Inputs:
    """A step's inputs on the device.

    Args:
        shape: its sizes.
        memory: uint8, on the device; see the module.
        num_sampled: for how many sampled tokens there is a place in front.
    """

    def __init__(self, shape: Shape, memory: torch.Tensor, num_sampled: int) -> None:
        self.shape = shape
        self._fields = shape.views(memory[8 * num_sampled :])
        self._tokens = memory[: 8 * (num_sampled + shape.tokens)].view(torch.int64)

    def batch(self) -> Batch:
        """What the model takes."""
        names = ("positions", "slot_mapping", "block_tables", "context_lens", "cu_seqlens")
        return Batch(
            token_ids=self._tokens[self._fields["sources"]],
            **{name: self._fields[name] for name in (*names, "logit_rows")},
        )

    def sampling(self) -> list[torch.Tensor]:
        """What the operator `sample` takes beside logits."""
        names = ("temperature", "top_k", "top_p", "min_p", "uniform")
        return [self._fields[name] for name in names]


# ------------------------------------------------------------------------------- the host's part


def shape_of(step: Step, ready: Sequence[Request], kv: KVCacheManager) -> Shape:
    """The sizes of a step, block tables as wide as the longest."""
    widest = max(len(kv.block_tables[request.request_id]) for request in step.scheduled)
    return Shape(step.total_tokens, len(step.scheduled), len(ready), widest)


def write_batch(
    fields: Mapping[str, np.ndarray], step: Step, kv: KVCacheManager, num_sampled: int
) -> None:
    """Lay the requests of a step out, one behind the other.

    Where there is room for more, the rest is nobody's: sequences among which the tokens that are
    left are dealt out. Their keys and values are written nowhere.

    Args:
        fields: those of a `Shape`.
        num_sampled: for how many sampled tokens there is a place in front of `token_ids`.
    """
    tokens, positions, slots, logit_rows = [], [], [], []
    lengths, starts = [], [0]
    sources, tables = fields["sources"], fields["block_tables"]
    sources[:] = np.arange(num_sampled, num_sampled + len(sources))
    tables.fill(0)
    for i, request in enumerate(step.scheduled):
        start = request.num_computed_tokens
        end = start + step.num_tokens[request.request_id]
        tokens += request.token_ids[start:end]
        positions += range(start, end)
        slots += kv.slot_mapping(request.request_id, start, end)
        table = kv.block_tables[request.request_id]
        tables[i, : len(table)] = table
        lengths.append(end)
        starts.append(len(tokens))
        if end == len(request.token_ids):
            logit_rows.append(len(tokens) - 1)
        if tokens[-1] == PENDING:
            sources[len(tokens) - 1] = request.row
    ends, nobodys_lengths = _deal_out(len(tokens), len(sources), len(tables) - len(lengths))
    lengths += nobodys_lengths
    starts += ends
    fields["context_lens"][:] = lengths
    fields["cu_seqlens"][:] = starts
    _fill(fields["token_ids"], tokens, 0)
    _fill(fields["positions"], positions, 0)
    _fill(fields["slot_mapping"], slots, -1)
    _fill(fields["logit_rows"], logit_rows, 0)


def _deal_out(start: int, end: int, num_sequences: int) -> tuple[list[int], list[int]]:
    """Make equal shares of the tokens from `start` to `end`, as nobody's sequences.

    In a shape of 8 tokens and 4 sequences, where two requests have 5 tokens, `_deal_out(5, 8, 2)`
    is `([6, 8], [1, 2])`: a sequence of token 5, and one of tokens 6 and 7.

    Returns:
        Where each sequence ends, and its context length: that is its tokens, as no sequence may
        have more of them than that, but at least 1, as attention is never over nothing.
    """
    ends = [start + (end - start) * (i + 1) // num_sequences for i in range(num_sequences)]
    lengths = [max(b - a, 1) for a, b in pairwise([start, *ends])]
    return ends, lengths


def write_sampling(fields: Mapping[str, np.ndarray], requests: Sequence[Request]) -> None:
    """How the next token of each request is chosen, and the random number that chooses it."""
    params = [request.params for request in requests]
    _fill(fields["temperature"], [p.temperature for p in params], 0)
    _fill(fields["top_k"], [p.top_k for p in params], 0)
    _fill(fields["top_p"], [p.top_p for p in params], 1)
    _fill(fields["min_p"], [p.min_p for p in params], 0)
    drawn = [r.uniform() if r.params.temperature > 0 else 0.0 for r in requests]
    _fill(fields["uniform"], drawn, 0)


def _fill(field: np.ndarray, values: Sequence[float], rest: float) -> None:
    field[: len(values)] = values
    field[len(values) :] = rest
