"""What the checks of notebook 17 share: problems, the right answer, and wrong ones by name.

The right answer has every score in memory, in float64. The wrong ones are made by a loop over tiles
of keys that leaves out what a learner may leave out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from yaie.course.core.cuda import Explain, launch, poisoned
from yaie.course.core.expect import close, given

if TYPE_CHECKING:
    from yaie.emulator import Report

State = tuple[Any, Any]
Mistakes = Iterable[tuple[Any, str]]  # made when they are asked for
TOLERANCE = {"f32": 1e-4, "f16": 4e-3, "bf16": 3e-2}

UNWRITTEN = "NaN was there before: nobody wrote it. Every row of out has its number in lse, too."
NOT_A_NUMBER = (
    "Something became NaN on the way: -inf - -inf is NaN, and so are 0 × inf and 0 / 0. Before any "
    "score the maximum is -inf, and exp(-inf - finite) is 0, as it should be."
)
LARGE = (
    "The scores are large here: exp of one of them overflows unless the maximum is taken off "
    "first, and inf / inf is NaN."
)
BELOW = (
    "All scores are far below 0 here. A maximum that begins at 0 is larger than all of them, and "
    "stays: every weight is exp(score - 0), which is 0. It begins below any score, at -INFINITY."
)
BLIND = (
    "This query sees no key: its row of out has zeros and its log-sum-exp is -inf. Its maximum "
    "stays -inf and its total 0: neither -inf - -inf nor 0 / 0 may come about, both are NaN."
)


@dataclass(frozen=True)
class Problem:
    """A batch to attend over.

    Attributes:
        lengths: queries and keys of each sequence.
        block_size: of the pools that keys and values lie in; None: they lie end to end.
        size: what random queries are multiplied by, so that scores are large.
        rising: whether every key's scores are larger than the last's.
        below: whether every score is far below 0.
    """

    lengths: tuple[tuple[int, int], ...]
    heads: int = 1
    kv_heads: int = 1
    dim: int = 8
    causal: bool = False
    block_size: int | None = None
    size: float = 1.0
    rising: bool = False
    below: bool = False
    suffix: str = "f32"

    def __str__(self) -> str:
        words = [
            ", then ".join(
                f"{q} {'query' if q == 1 else 'queries'} and {k} key{'s' * (k != 1)}"
                for q, k in self.lengths
            ),
            *([f"{self.heads} heads, {self.kv_heads} of keys"] if self.heads > 1 else []),
            f"head_dim {self.dim}",
            *(["causal"] if self.causal else []),
            *(["all scores far below 0"] if self.below else []),
            *([f"in blocks of {self.block_size}"] if self.block_size else []),
            *([self.suffix] if self.suffix != "f32" else []),
        ]
        return ", ".join(words)

    @property
    def scale(self) -> float:
        return 0.7 * self.dim**-0.5

    @property
    def group(self) -> int:
        return self.heads // self.kv_heads


@lru_cache(maxsize=64)
def tensors(problem: Problem) -> tuple[Any, Any, Any]:
    """q, k and v of all sequences, end to end."""
    import torch

    dtype = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[problem.suffix]
    generator = torch.Generator().manual_seed(sum(map(sum, problem.lengths)) + problem.dim)
    queries, keys = (sum(pair[i] for pair in problem.lengths) for i in (0, 1))
    q = torch.randn(queries, problem.heads, problem.dim, generator=generator) * problem.size
    k, v = (torch.randn(keys, problem.kv_heads, problem.dim, generator=generator) for _ in "kv")
    if problem.rising:
        q = q.abs() + 0.5
        k = (torch.arange(keys) + 1.0).view(-1, 1, 1) / keys * (k.abs() + 0.5)
    if problem.below:
        q, k = -100.0 * (q.abs() + 0.5), k.abs() + 0.5
    return q.to(dtype), k.to(dtype), v.to(dtype)


def sequences(problem: Problem) -> list[tuple[slice, slice]]:
    """The rows of q and of k that each sequence has."""
    found, q_start, k_start = [], 0, 0
    for q, k in problem.lengths:
        found.append((slice(q_start, q_start + q), slice(k_start, k_start + k)))
        q_start, k_start = q_start + q, k_start + k
    return found


def seen_by(problem: Problem, sequence: int, query: int) -> int:
    """How many keys a query of a sequence sees, from its first on."""
    queries, keys = problem.lengths[sequence]
    return max(0, keys - queries + query + 1) if problem.causal else keys


# ------------------------------------------------------------------------------------- answers


def scores_of(problem: Problem, q: Any, k: Any, head: int, kv_head: int | None = None) -> Any:
    """Scaled scores of one sequence's queries and keys, float64 `[queries, keys]`."""
    kv_head = head // problem.group if kv_head is None else kv_head
    return q[:, head].double() @ k[:, kv_head].double().T * problem.scale


def attend(
    problem: Problem,
    seen: Callable[[int, int], int] | None = None,
    kv_head: Callable[[int], int] | None = None,
) -> State:
    """Output and log-sum-exp, in float64.

    Args:
        seen: (sequence, query) -> how many keys it sees, if not as it should.
        kv_head: query head -> the KV head that it reads, likewise.
    """
    import torch

    q, k, v = tensors(problem)
    out = torch.zeros(q.shape, dtype=torch.float64)
    lse = torch.full(q.shape[:2], -math.inf, dtype=torch.float64)
    for number, (rows, columns) in enumerate(sequences(problem)):
        for head in range(problem.heads):
            of_head = head // problem.group if kv_head is None else kv_head(head)
            scores = scores_of(problem, q[rows], k[columns], head, of_head)
            values = v[columns, of_head].double()
            for query in range(len(scores)):
                count = seen(number, query) if seen else seen_by(problem, number, query)
                if count > 0:
                    row = scores[query, :count]
                    out[rows.start + query, head] = row.softmax(0) @ values[:count]
                    lse[rows.start + query, head] = row.logsumexp(0)
    return out, lse


def wrong(problem: Problem, tile: int, *faults: str) -> State:
    """What a loop over tiles of keys gives with some of these faults.

    "sums", "total": not corrected when a larger maximum comes; "total and sums": neither. "each
    tile": every tile's weights are divided by their own sum; "so far": by the sum so far; "not
    divided". "no scale". "all keys": the mask is left out, and with "zeros" the zeros of the last
    tile count, too. "same place": keys are taken from the first sequence's. "last tile": alone.
    "no weights": the values are added up as they are.
    """
    import torch

    q, k, v = tensors(problem)
    out = torch.zeros(q.shape, dtype=torch.float64)
    lse = torch.full(q.shape[:2], -math.inf, dtype=torch.float64)
    for number, (rows, columns) in enumerate(sequences(problem)):
        if "same place" in faults:
            columns = slice(0, columns.stop - columns.start)
        for head in range(problem.heads):
            scores = scores_of(problem, q[rows], k[columns], head)
            scores = scores / problem.scale if "no scale" in faults else scores
            values = v[columns, head // problem.group].double()
            for query in range(len(scores)):
                seen = seen_by(problem, number, query)
                if "all keys" in faults:
                    seen = len(values)
                row, of_row = scores[query, :seen], values[:seen]
                if "zeros" in faults:
                    beyond = -len(row) % tile
                    row = torch.cat((row, row.new_zeros(beyond)))
                    of_row = torch.cat((of_row, of_row.new_zeros(beyond, problem.dim)))
                at = rows.start + query, head
                out[at], lse[at] = _row(row, of_row, tile, faults)
    return out, lse


def _row(row: Any, values: Any, tile: int, faults: Sequence[str]) -> State:
    import torch

    maximum, total, sums = -math.inf, torch.zeros((), dtype=row.dtype), values.new_zeros(1)
    for start in range(0, len(row), tile):
        some, of_some = row[start : start + tile], values[start : start + tile]
        larger = max(maximum, some.max().item())
        correction = math.exp(maximum - larger)
        weights = (some - larger).exp()
        if "last tile" in faults:
            correction = 0.0
        both = "total and sums" in faults
        total = total * (1.0 if both or "total" in faults else correction) + weights.sum()
        share = weights
        if "each tile" in faults:
            share, correction = weights / weights.sum(), 1.0
        if "so far" in faults:
            share = weights / total
        if "no weights" in faults:
            share = torch.ones_like(weights)
        sums = sums * (1.0 if both or "sums" in faults else correction) + share @ of_some
        maximum = larger
    if not len(row):
        return values.new_zeros(values.shape[1]), torch.tensor(-math.inf)
    whole = {"each tile", "so far", "not divided"} & set(faults)
    return sums / (1.0 if whole else total), maximum + total.log()


def wrong_lse(problem: Problem) -> Iterator[tuple[Any, str]]:
    """Log-sum-exps that are likely, besides the right one."""
    import torch

    right_lse = attend(problem)[1]
    maxima = torch.full_like(right_lse, -math.inf)
    q, k, _ = tensors(problem)
    for number, (rows, columns) in enumerate(sequences(problem)):
        for head in range(problem.heads):
            scores = scores_of(problem, q[rows], k[columns], head)
            for query in range(len(scores)):
                if seen := seen_by(problem, number, query):
                    maxima[rows.start + query, head] = scores[query, :seen].max()
    totals = (right_lse - maxima).exp()
    words = "The log-sum-exp is maximum + log(total)."
    unscaled = wrong(problem, 1, "no scale")[1]
    yield from (
        (unscaled, "The scores are not scaled: `flash.scale` is missing."),
        (totals.log(), f"That is log(total) alone: the maximum was taken off the scores. {words}"),
        (maxima, f"That is the maximum alone. {words}"),
        (totals, f"That is the total. {words}"),
        (totals.exp() + maxima, f"That is maximum + exp(total). {words}"),
        (maxima + totals, f"That is maximum + total: the logarithm is missing. {words}"),
        (maxima + totals.log2(), f"That is a logarithm to base 2. {words}"),
        (maxima * totals, f"That is maximum × total. {words}"),
        (maxima - totals.log(), f"That is maximum - log(total). {words}"),
    )  # fmt: skip


# -------------------------------------------------------------------------------------- launches


def arguments(problem: Problem) -> tuple[tuple[Any, ...], State]:
    """What a launcher of csrc/flash is called with, and the outputs among it, full of NaN."""
    import torch

    q, k, v = tensors(problem)
    out = poisoned(*q.shape, dtype=q.dtype)
    lse = poisoned(*q.shape[:2])
    starts_q = starts_k = tables = lengths = None
    keys, block_size, max_blocks = len(k), 0, 0
    if len(problem.lengths) > 1 or problem.block_size:
        ends = torch.tensor([(0, 0), *problem.lengths], dtype=torch.int32).cumsum(0).int()
        starts_q, starts_k = (x.contiguous() for x in ends.unbind(1))
    if problem.block_size:
        tables, k, v = _paged(problem, k, v)
        lengths = torch.tensor([keys for _, keys in problem.lengths], dtype=torch.int32)
        keys, block_size, max_blocks = 0, problem.block_size, tables.shape[1]
        starts_k = None
    strides = (problem.heads * problem.dim, *[problem.kv_heads * problem.dim] * 2)
    return (
        *(q, k, v, out, lse, starts_q, starts_k, tables, lengths, len(problem.lengths), len(q)),
        *(keys, problem.heads, problem.kv_heads, problem.dim, *strides, block_size, max_blocks),
        *(problem.scale, int(problem.causal)),
    ), (out, lse)


def _paged(problem: Problem, k: Any, v: Any) -> tuple[Any, Any, Any]:
    """Block tables in no order, and pools in which NaN lies where no key does."""
    import torch

    size = problem.block_size
    counts = [-(-keys // size) for _, keys in problem.lengths]
    order = torch.randperm(sum(counts) + 2, generator=torch.Generator().manual_seed(1)).tolist()
    tables = torch.zeros(len(counts), max(counts) + 1, dtype=torch.int32)
    pools = [torch.full((len(order), size, *x.shape[1:]), torch.nan, dtype=x.dtype) for x in (k, v)]
    for number, (_, columns) in enumerate(sequences(problem)):
        for j in range(columns.stop - columns.start):
            if j % size == 0:
                tables[number, j // size] = order.pop()
            for pool, rows in zip(pools, (k, v), strict=True):
                pool[tables[number, j // size], j % size] = rows[columns.start + j]
    return tables, *pools


def run(
    path: Path,
    name: str,
    problem: Problem,
    explain: Explain,
    mistakes: Mistakes,
    because: str,
    order: str = "forward",
) -> Report | None:
    """One launch and what it must give; each wrong `out` is compared with the mistakes'."""
    given_arguments, (out, lse) = arguments(problem)
    words = str(problem) + ("" if order == "forward" else f", threads in {order} order")
    with given(words):
        launcher = f"{name}_{problem.suffix}"
        report = launch(path, launcher, *given_arguments, explain=explain, order=order)
        compare(problem, out, lse, mistakes, because)
    return report


def compare(problem: Problem, out: Any, lse: Any, mistakes: Mistakes, because: str) -> None:
    """Reject results that are not those of `attend`."""
    import torch

    want, want_lse = attend(problem)
    tolerance = TOLERANCE[problem.suffix]
    blind = want_lse == -math.inf
    if problem.below:
        because, mistakes = BELOW, []
    elif bool(out[~blind].isnan().any()):
        because = LARGE if problem.size > 1 else NOT_A_NUMBER
        because, mistakes = (because if came_about(lse) else UNWRITTEN), []
    elif bool(blind.any()) and (bool((out[blind] != 0).any()) or bool(out[blind].isnan().any())):
        because, mistakes = BLIND, []
    found = ((x.to(out.dtype), told) for x, told in mistakes)
    want = want.to(out.dtype)
    close(out, want, "out", because=because, mistakes=found, rtol=tolerance, atol=tolerance)
    for_lse = because
    if bool(lse.isnan().any()):
        for_lse = NOT_A_NUMBER if came_about(lse) else UNWRITTEN
    if bool(blind.any()) and bool((lse[blind] != -math.inf).any()):
        for_lse = BLIND
    found = ((x.float(), told) for x, told in wrong_lse(problem))
    close(
        lse, want_lse.to(torch.float32), "lse", because=for_lse, mistakes=found, rtol=tolerance,
        atol=tolerance,
    )  # fmt: skip


def came_about(lse: Any) -> bool:
    """Whether numbers were written to lse, or a NaN that is not the one from before."""
    import torch

    return bool((lse.view(torch.int32) != poisoned(1).view(torch.int32)).any())


def requests(report: Report, name: str, kind: str = "load") -> int:
    """How often a warp asked for some of one tensor."""
    return sum(a.requests for a in report.accesses if (a.name, a.kind) == (name, kind))
