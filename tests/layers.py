"""A step of the engine as its attention sees it: one layout, two layers, eager and from a graph.

What the engine runs differs from what tests of single kernels do. `write_batch` lays out more rows
than there are tokens: sequences that belong to nobody, whose tables are zeros and whose tokens go
into no slot, and among which the tokens that are left are dealt out. Layers follow each other with
nothing in between, so that a kernel may be launched while the one before it runs, and the work
space of one layer is that of the next. And all of it is recorded once, and replayed on other
lengths.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from unittest import mock

import torch

from yaie.engine.inputs import Shape, write_batch
from yaie.engine.kv_cache import KVCacheManager
from yaie.engine.request import Request
from yaie.engine.scheduler import Step
from yaie.ops.cuda import kv, paged

BLOCK_SIZE = 16
Lengths = Sequence[tuple[int, int]]  # tokens of a request, and how many of them are new
Check = Callable[[tuple, list], None]


class LaidOut:
    """Inputs of a step of `shape`, at one place for every step, and caches of two layers."""

    def __init__(
        self, shape: Shape, heads: int, kv_heads: int, head_dim: int, dtype: torch.dtype,
        device: str,
    ) -> None:  # fmt: skip
        self.shape, self.device = shape, device
        self._sizes = kv_heads, head_dim, dtype
        self._memory = torch.zeros(shape.nbytes, dtype=torch.uint8, device=device)
        self.fields = shape.views(self._memory)
        size = (shape.sequences * shape.width, BLOCK_SIZE, kv_heads, head_dim)
        self.pools = [[torch.zeros(size, dtype=dtype, device=device) for _ in "kv"] for _ in "12"]
        self.q = torch.zeros(shape.tokens, heads, head_dim, dtype=dtype, device=device)
        self.new = torch.zeros(shape.tokens, 2 * kv_heads, head_dim, dtype=dtype, device=device)

    def write(self, lengths: Lengths) -> None:
        """Lay out a step of requests with these lengths; what is not theirs is NaN."""
        kv_heads, head_dim, dtype = self._sizes
        cache = KVCacheManager(self.shape.sequences * self.shape.width, BLOCK_SIZE, 1, 1)
        step = Step()
        for number, (length, new) in enumerate(lengths):
            request = Request(str(number), [1] * length)
            request.num_computed_tokens = length - new
            cache.allocate_blocks(request.request_id, length)
            step.add(request, new)
        paper = torch.zeros(self._memory.shape, dtype=torch.uint8)
        fields = {name: view.numpy() for name, view in self.shape.views(paper).items()}
        write_batch(fields, step, cache, self.shape.rows)
        self._memory.copy_(paper)
        for pool in (pool for pools in self.pools for pool in pools):
            pool.fill_(torch.nan)
            for number, (length, new) in enumerate(lengths):
                slots = cache.slot_mapping(str(number), 0, length - new)
                old = torch.randn(len(slots), kv_heads, head_dim).to(self.device, dtype)
                pool.view(-1, kv_heads, head_dim)[slots] = old
        for x in (self.q, self.new):
            x.copy_(torch.randn(x.shape))
        self.own = len(lengths), step.total_tokens

    def layer(self, number: int, q: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """New keys and values into the cache of a layer, and attention over it."""
        fields, pools = self.fields, self.pools[number]
        keys, values = self.new.chunk(2, dim=1)
        kv.reshape_and_cache(keys, values, *pools, fields["slot_mapping"])
        batch = [fields[name] for name in ("block_tables", "context_lens", "cu_seqlens")]
        return paged.paged_attention(q, *pools, *batch, None)

    def operands(self, number: int, q: torch.Tensor) -> list[torch.Tensor]:
        """What attention computes for those who asked, without the rest."""
        sequences, tokens = self.own
        fields = self.fields
        return [
            q[:tokens], *self.pools[number], fields["block_tables"][:sequences],
            fields["context_lens"][:sequences], fields["cu_seqlens"][: sequences + 1],
        ]  # fmt: skip


def run(laid_out: LaidOut, steps: Sequence[Lengths], check: Check) -> None:
    """Two layers, the second's queries being what the first one returned, for each of the steps:
    eager, and on a GPU from one CUDA graph.

    Args:
        check: given a result and the operands that it belongs to, raises if it is wrong.
    """

    def chain() -> list[tuple[torch.Tensor, torch.Tensor]]:
        with handing_out(of_first):
            first = laid_out.layer(0, laid_out.q)
        with handing_out(of_second):
            return [first, laid_out.layer(1, first[0])]

    def compare(results: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> None:
        tokens = laid_out.own[1]
        for number, q in enumerate((laid_out.q, results[0][0])):
            check(tuple(x[:tokens] for x in results[number]), laid_out.operands(number, q))

    laid_out.write(steps[0])
    of_first, of_second = [], []
    for tensors in (of_first, of_second):
        with keeping(tensors):
            result = laid_out.layer(0, laid_out.q)
    # Results are each layer's own, and the rest of the memory is used by one after the other.
    of_second[:] = [
        mine if any(mine is x for x in result) else theirs
        for mine, theirs in zip(of_second, of_first, strict=True)
    ]
    graph = None
    for lengths in steps:
        laid_out.write(lengths)
        spoil(of_first, of_second, result)
        compare(chain())
        if laid_out.device == "cpu":
            continue
        if graph is None:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                results = chain()
        for _ in range(2):
            laid_out.write(lengths)
            spoil(of_first, of_second, result)
            graph.replay()
            compare(results)


def spoil(*groups: Sequence[torch.Tensor]) -> None:
    """NaN into what has to be written anew."""
    for x in (x for tensors in groups for x in tensors):
        x.fill_(torch.nan)


@contextmanager
def keeping(tensors: list[torch.Tensor]) -> Iterator[None]:
    """Note what `new_empty` returns."""
    new_empty = torch.Tensor.new_empty

    def noted(*given: object, **how: object) -> torch.Tensor:
        tensors.append(new_empty(*given, **how))
        return tensors[-1]

    with mock.patch.object(torch.Tensor, "new_empty", noted):
        yield


@contextmanager
def handing_out(tensors: Sequence[torch.Tensor]) -> Iterator[None]:
    """Let `new_empty` return these, in turn: a graph's memory may not be taken while it is
    captured where there is no allocator that keeps it."""
    left = iter(tensors)
    with mock.patch.object(torch.Tensor, "new_empty", lambda *_, **__: next(left)):
        yield
