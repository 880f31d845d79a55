"""The inputs of a step, laid out in one piece of memory, so that one copy brings them to a GPU.

On the device that memory is

    sampled | token_ids | sources | positions | slot_mapping | ... | min_p

`sampled` has a place for each of `num_sampled` tokens: there a step leaves the tokens that it
chose, in the order of its rows of logits. What follows are the fields of a `Shape`, which the host
writes and one copy brings. The host may write a step before it knows the tokens of the last one, so
it writes where each token is found, as an index into `sampled` and `token_ids` together:
`sources[i]` is `num_sampled + i` for a token that the host knows, and so wrote to `token_ids[i]`;
it is the request's row in the last step for a token that only the device knows.

An example with blocks of 4 tokens and `num_sampled` of 64. Request a has 5 known tokens in blocks
0 and 1, and a sixth, in row 1 of the last step, that the host has not read: it decodes. Request b
computes two tokens, 25 and 26, in the middle of a prompt whose first 4 tokens are in block 2:

    token_ids     [-1, 25, 26]      PENDING, and the chunk of b
    sources       [1, 65, 66]       row 1 of `sampled`; token_ids[1], token_ids[2]
    positions     [5, 4, 5]         of each token in its own sequence
    slot_mapping  [5, 12, 13]       block 1, slot 1; block 3, slots 0 and 1
    block_tables  [[0, 1], [2, 3]]
    context_lens  [6, 6]            tokens that each sequence attends to
    cu_seqlens    [0, 1, 3]         a has the first token, b the next two
    logit_rows    [0]               only a gets a token: b's prompt goes on in the next step
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile

import numpy as np
import torch

from yaie.engine.kv_cache import KVCacheManager
from yaie.engine.request import PENDING, Request
from yaie.engine.scheduler import Step
from yaie.model.batch import Batch

Fields = Mapping[str, np.ndarray]  # see `Shape.fields`
OPTIONS = {"temperature": 0, "top_k": 0, "top_p": 1, "min_p": 0}  # and what padding has


@dataclass(frozen=True)
class Shape:
    """The sizes of a step.

    Attributes:
        tokens, sequences: computed together; a sequence that decodes has one token.
        rows: of logits: one for each sequence that gets a token, and behind them those of prompts
            whose log-probabilities are wanted.
        width: entries of a block table.
        decodes: how many of the sequences, from the first on, are for requests with one token: as
            a rule, those that decode. Where a step has fewer, the last of them have no token, or in
            a decode step one of padding.
    """

    tokens: int
    sequences: int
    rows: int
    width: int
    decodes: int

    @property
    def is_decode(self) -> bool:
        """Whether every sequence has one token, and gets one."""
        return self.tokens == self.sequences == self.rows

    def holds(self, step: Shape) -> bool:
        """Whether a step, padded with tokens and sequences, can have this shape.

        Attention treats a shape with as many sequences as tokens as a decode step.
        """
        if self.is_decode:
            return step.is_decode and step.tokens <= self.tokens
        prompts = step.sequences - step.decodes
        has_room = step.decodes <= self.decodes and prompts < self.sequences - self.decodes
        fits = step.tokens <= self.tokens and step.rows <= self.rows
        return has_room and fits and step.width <= self.width

    @cached_property
    def fields(self) -> dict[str, tuple[torch.dtype, tuple[int, ...]]]:
        """What a step consists of, in the order of memory: numbers of 8 bytes before those of 4, so
        that all are aligned, and first `token_ids`, to make one array with the sampled tokens."""
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
        memory: uint8, on the device; see the module.
        num_sampled: how many places for sampled tokens come before the fields.
    """

    def __init__(self, shape: Shape, memory: torch.Tensor, num_sampled: int) -> None:
        self.shape = shape
        self._fields = shape.views(memory[8 * num_sampled :])
        self._tokens = memory[: 8 * (num_sampled + shape.tokens)].view(torch.int64)

    def batch(self) -> Batch:
        """The model's arguments."""
        names = ("positions", "slot_mapping", "block_tables", "context_lens", "cu_seqlens")
        return Batch(
            token_ids=self._tokens[self._fields["sources"]],
            **{name: self._fields[name] for name in (*names, "logit_rows")},
            num_decodes=0 if self.shape.decodes == self.shape.sequences else self.shape.decodes,
        )

    def sampling(self) -> list[torch.Tensor]:
        """The arguments of the operator `sample`, after the logits."""
        return [self._fields[name] for name in (*OPTIONS, "uniform")]


def shape_of(step: Step, ready: Sequence[Request], kv: KVCacheManager) -> Shape:
    """The sizes of a step, block tables as wide as the longest."""
    widest = max([len(kv.block_tables[request.request_id]) for request in step.scheduled])
    scoring = [request for request in step.scheduled if request.scores_prompt]
    scored = sum(r.num_scored(step.num_tokens[r.request_id]) for r in scoring)
    sizes = step.total_tokens, len(step.scheduled), len(ready) + scored, widest
    return Shape(*sizes, step.num_decodes)


@dataclass
class LaidOut:
    """A step as it was laid out.

    Attributes:
        requests: in the order of the batch.
        places: int `[requests]`, the number of each among the shape's sequences.
        kept: int `[requests]`, how many tokens of each were in the radix cache.
    """

    fields: Fields
    requests: Sequence[Request]
    places: np.ndarray
    kept: np.ndarray


def write_batch(
    fields: Fields, shape: Shape, step: Step, ready: Sequence[Request], kv: KVCacheManager,
    num_sampled: int, last: LaidOut | None = None,
) -> LaidOut:  # fmt: skip
    """Lay out the requests of a step, one after the other, in the fields of a shape; also how the
    next tokens of the `ready` requests are chosen, but not the random numbers of this step.

    If the shape has room for more, the rest is padding: sequences without tokens (in a decode step,
    with one token each) and a last one with all tokens that are left. Their keys and values are not
    stored, and attention reads nothing for them, because their contexts are empty.

    Args:
        last: the step before. If the first requests decode again, their rows are copied from it.
    """
    requests, sources, tables = step.scheduled, fields["sources"], fields["block_tables"]
    places = np.arange(len(requests))
    places[step.num_decodes :] += shape.decodes - step.num_decodes
    laid_out = LaidOut(fields, requests, places, np.array([r.num_kept_tokens for r in requests]))
    count = 0 if last is None else write_next_tokens(laid_out, last, kv)
    sources[count:] = np.arange(num_sampled + count, num_sampled + len(sources))
    tables[count:], fields["context_lens"][count:] = 0, 0
    tokens, positions, slots, logit_rows, scored_rows = [], [np.arange(0)], [], [], []
    for place, request in zip(places[count:].tolist(), requests[count:], strict=True):
        start, first = request.num_computed_tokens, count + len(tokens)
        end = start + step.num_tokens[request.request_id]
        scored_rows += range(first, first + request.num_scored(end - start))
        positions.append(np.arange(start, end))
        tokens += request.token_ids[start:end]
        slots += kv.slot_mapping(request.request_id, start, end)
        table = kv.block_tables[request.request_id]
        tables[place, : len(table)] = table
        fields["context_lens"][place] = end
        newest = count + len(tokens) - 1
        if end == len(request.token_ids):
            logit_rows.append(newest)
        if tokens[-1] == PENDING:
            sources[newest] = request.row
    counts = np.full(len(tables), int(shape.is_decode))
    counts[places] = [step.num_tokens[request.request_id] for request in requests]
    counts[-1] += len(sources) - counts.sum()
    fields["cu_seqlens"][0], fields["cu_seqlens"][1:] = 0, counts.cumsum()
    written = [
        ("token_ids", tokens, 0), ("positions", np.concatenate(positions), 0),
        ("slot_mapping", slots, -1), ("logit_rows", logit_rows + scored_rows, 0),
    ]  # fmt: skip
    others = ready[count:]
    written += [(n, [getattr(r.params, n) for r in others], rest) for n, rest in OPTIONS.items()]
    for name, values, rest in written:
        end = count + len(values)
        fields[name][count:end], fields[name][end:] = values, rest
    return laid_out


def write_next_tokens(now: LaidOut, last: LaidOut, kv: KVCacheManager) -> int:
    """Write the rows of the first requests, up to one whose newest token the last step does not
    compute, and return how many. Both steps may share memory: all is read before any is written.

    Such a request has one new token, in the row that it has in the last step's results. Its blocks
    have changed only after those that the radix cache held in the last step, and only if the cache
    holds more now, or a block begins.
    """
    fields, before, size = now.fields, last.fields, kv.block_size
    is_as_wide = before["block_tables"].shape[1] == fields["block_tables"].shape[1]
    known = {request: i for i, request in enumerate(last.requests)} if is_as_wide else {}
    follow = takewhile(lambda request: request.num_pending and request in known, now.requests)
    found = np.array([known[request] for request in follow], np.int64)
    count, requests, order = len(found), now.requests[: len(found)], np.arange(len(found))
    rows = last.places[found]
    rows = slice(count) if (rows == order).all() else rows
    newest = before["cu_seqlens"][1:][rows] - 1
    positions = np.array([request.num_computed_tokens for request in requests], np.int64)
    if not count or (positions != before["positions"][newest] + 1).any():
        return 0  # no request decodes again, or the last step failed and is repeated
    slots, sources = before["slot_mapping"][newest] + 1, np.array([r.row for r in requests])
    values = {name: before[name][sources] for name in OPTIONS}
    values |= {"slot_mapping": slots, "positions": positions, "context_lens": positions + 1}
    values |= {"sources": sources, "token_ids": PENDING, "logit_rows": order}
    tables, kept = fields["block_tables"], last.kept[found]
    tables[:count] = before["block_tables"][rows]
    for i in ((kept != now.kept[:count]) | (positions % size == 0)).nonzero()[0].tolist():
        request, start, first = requests[i], int(positions[i]), int(kept[i]) // size
        table = kv.block_tables[request.request_id]
        tables[i, first : len(table)] = table[first:]
        slots[i] = kv.slot_mapping(request.request_id, start, start + 1)[0]
    for name, value in values.items():
        fields[name][:count] = value
    return count
