"""What the exercises of notebook 17 share: batches to attend over, and attention in float64."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from yaie.course.core.cuda import ORDERS, Explain, draw_lines, in_every_order, poisoned, run
from yaie.course.core.observe import Case, Observer
from yaie.emulator import Report

TOLERANCE = {"f32": 1e-4, "f16": 4e-3, "bf16": 3e-2}

UNWRITTEN = "This NaN was there before the launch: no thread has written the element."
NOT_A_NUMBER = "-inf - -inf, 0 × inf and 0 / 0 are NaN."
LARGE = (
    "The scores are large here: exp of one of them overflows unless the maximum is subtracted "
    "first, and inf / inf is NaN."
)
BELOW = (
    "All scores are far below 0 here, and so is their maximum. It has to begin below any score, at "
    "-INFINITY."
)
BLIND = (
    "Some queries see no key: their rows of out are zeros and their log-sum-exp is -inf. Their "
    "maximum stays -inf and their total 0, and -inf - -inf and 0 / 0 are NaN."
)


@dataclass(frozen=True)
class Problem:
    """A batch to attend over.

    Attributes:
        lengths: queries and keys of each sequence.
        block_size: of the pools that hold keys and values; None: sequences lie end to end.
        size: what random queries are multiplied by, so that scores are large.
        rising: whether every key's scores are larger than those of the key before it.
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
            *(["large scores"] if self.size > 1 else []),
            *(["rising scores"] if self.rising else []),
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


def cases_of(
    small: Sequence[Problem], others: Sequence[Problem], counted: Problem
) -> Iterator[Case]:
    """All problems, the small ones in every schedule, and the one whose loads are counted."""
    planned = [Case(str(problem), problem=problem) for problem in (*small, *others, counted)]
    yield from in_every_order(*planned[:-1], orders=ORDERS[:1])
    yield from in_every_order(*planned[: len(small)], orders=ORDERS[1:])
    yield from in_every_order(planned[-1], orders=ORDERS[:1])


@lru_cache(maxsize=64)
def tensors(problem: Problem) -> tuple[Any, Any, Any]:
    """q, k and v of all sequences, end to end."""
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


@lru_cache(maxsize=64)
def attend(problem: Problem) -> tuple[Any, Any]:
    """Output and log-sum-exp in float64, with every score of a query in memory."""
    q, k, v = (tensor.double() for tensor in tensors(problem))
    out = torch.zeros(q.shape, dtype=torch.float64)
    lse = torch.full(q.shape[:2], -math.inf, dtype=torch.float64)
    for number, (rows, columns) in enumerate(sequences(problem)):
        for query in range(rows.stop - rows.start):
            at = rows.start + query
            for head in range(problem.heads):
                keys = slice(columns.start, columns.start + seen_by(problem, number, query))
                if keys.start < keys.stop:
                    of_head = head // problem.group
                    scores = k[keys, of_head] @ q[at, head] * problem.scale
                    out[at, head] = scores.softmax(0) @ v[keys, of_head]
                    lse[at, head] = scores.logsumexp(0)
    return out, lse


def arguments(problem: Problem) -> tuple[tuple[Any, ...], tuple[Any, Any]]:
    """What a launcher of csrc/flash is called with, and the outputs among it, full of NaN."""
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
    """Block tables in no order, and pools that hold NaN in every slot without a key."""
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


def see_attention(
    see: Observer,
    path: Path,
    name: str,
    problem: Problem,
    order: str,
    explain: Explain,
    because: str,
) -> Report:
    """Launch a rung, and note its output and log-sum-exp."""
    given, (out, lse) = arguments(problem)
    report = run(see, path, f"{name}_{problem.suffix}", *given, explain=explain, order=order)
    want, want_lse = attend(problem)
    if problem.below:
        because = BELOW
    elif problem.size > 1:
        because = LARGE
    elif bool((want_lse == -math.inf).any()):
        because = f"{BLIND} {because}"
    see_result(see, "out", out, want, because, problem)
    see_result(see, "lse", lse, want_lse, "The log-sum-exp is maximum + log(total).", problem)
    return report


def see_result(
    see: Observer, what: str, got: Any, want: Any, because: str, problem: Problem
) -> None:
    """Note a result of a kernel, which was full of NaN before."""
    if bool(got.isnan().any()):
        because = UNWRITTEN if _was_there_before(got) else f"{NOT_A_NUMBER} {because}"
    tolerance = TOLERANCE[problem.suffix]
    see.close(what, got, want.to(got.dtype), because, rtol=tolerance, atol=tolerance)


def _was_there_before(got: Any) -> bool:
    """Whether the first NaN has the bits that `poisoned` wrote."""
    bits = torch.int32 if got.element_size() == 4 else torch.int16
    found = got[got.isnan()][:1].view(bits)
    return bool(found == poisoned(1, dtype=got.dtype).view(bits))


def requests(report: Report, name: str, kind: str = "load") -> int:
    """How often a warp asked for some of one tensor."""
    return sum(a.requests for a in report.accesses if (a.name, a.kind) == (name, kind))


def draw_rung(path: Path, name: str, problem: Problem) -> Any:
    """What each line of a rung costs."""
    return draw_lines(path, f"{name}_{problem.suffix}", *arguments(problem)[0])
