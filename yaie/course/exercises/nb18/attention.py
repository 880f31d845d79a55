"""What the exercises of notebook 18 share: batches to attend over, and attention in float64."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from yaie.course.core import cuda
from yaie.course.core.cuda import KernelCase
from yaie.course.core.observe import Observer
from yaie.emulator import Report
from yaie.ops.reference.attention import ragged_attention

TOLERANCE = {"f32": 1e-4, "f16": 4e-3, "bf16": 3e-2}

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


def cases_of(
    small: Sequence[Problem], others: Sequence[Problem], counted: Problem
) -> Iterator[KernelCase]:
    """All problems, the small ones in every schedule, and the one whose loads are counted."""
    problems = (*small, *others, counted)
    planned = [KernelCase(str(p), problem=p, costs=p is counted) for p in problems]
    yield from cuda.in_every_order(*planned[:-1], orders=cuda.ORDERS[:1])
    yield from cuda.in_every_order(*planned[: len(small)], orders=cuda.ORDERS[1:])
    yield from cuda.in_every_order(planned[-1], orders=cuda.ORDERS[:1])


@lru_cache(maxsize=64)
def tensors(problem: Problem) -> tuple[Any, Any, Any]:
    """q, k and v of all sequences, end to end."""
    dtype = cuda.dtype_of(problem.suffix)
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


def starts(problem: Problem) -> tuple[Any, Any]:
    """Where each sequence begins among the rows of q and of k, and where the last one ends."""
    ends = torch.tensor([(0, 0), *problem.lengths], dtype=torch.int32).cumsum(0).int()
    return ends[:, 0].contiguous(), ends[:, 1].contiguous()


def seen_by(problem: Problem, sequence: int, query: int) -> int:
    """How many keys a query of a sequence sees, from its first on."""
    queries, keys = problem.lengths[sequence]
    return max(0, keys - queries + query + 1) if problem.causal else keys


@lru_cache(maxsize=64)
def attend(problem: Problem) -> tuple[Any, Any]:
    """Output and log-sum-exp by PyTorch, computed in float64."""
    wide = (tensor.double() for tensor in tensors(problem))
    return ragged_attention(*wide, *starts(problem), problem.causal, problem.scale)


def arguments(problem: Problem) -> tuple[tuple[Any, ...], tuple[Any, Any]]:
    """What a launcher of csrc/flash is called with, and the outputs among it, full of NaN."""
    q, k, v = tensors(problem)
    out = cuda.poisoned(*q.shape, dtype=q.dtype)
    lse = cuda.poisoned(*q.shape[:2])
    starts_q = starts_k = tables = lengths = None
    keys, block_size, max_blocks = len(k), 0, 0
    if len(problem.lengths) > 1 or problem.block_size:
        starts_q, starts_k = starts(problem)
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
    for number, start in enumerate(starts(problem)[1][:-1].tolist()):
        for j in range(problem.lengths[number][1]):
            if j % size == 0:
                tables[number, j // size] = order.pop()
            for pool, rows in zip(pools, (k, v), strict=True):
                pool[tables[number, j // size], j % size] = rows[start + j]
    return tables, *pools


def operator_by(rung: str) -> Callable[[Path], Callable[..., Any]]:
    """For `fit`: the operator `paged_attention` by a learner's file in the place of a rung."""

    def fit(file: Path) -> Callable[..., Any]:
        from yaie.ops.cuda.flash import Sequences

        mine = cuda.operator_by(f"yaie.ops.cuda.flash:{rung}")(file)

        def paged_attention(q, key_pool, value_pool, tables, lengths, begin, scale):
            sequences = Sequences(begin, None, tables, lengths)
            return mine(q, key_pool, value_pool, True, scale, sequences)

        return paged_attention

    return fit


def see_attention(
    see: Observer, path: Path, name: str, case: KernelCase, explain: cuda.Explain, because: str
) -> Report:
    """Launch a rung, and note its output and log-sum-exp."""
    problem = case.problem
    given, (out, lse) = arguments(problem)
    report = cuda.run(see, path, f"{name}_{problem.suffix}", *given, explain=explain, **case.how)
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
        because = cuda.unwritten(got) or f"{NOT_A_NUMBER} {because}"
    tolerance = TOLERANCE[problem.suffix]
    see.close(what, got, want.to(got.dtype), because, rtol=tolerance, atol=tolerance)


def see_loads(see: Observer, report: Report, names: Sequence[str], most: int, because: str) -> None:
    """Note how often warps have loaded from tensors, which should be `most` at most."""
    for name in names:
        loads = cuda.requests(report, name=name, kind="load")
        see.at_most(f"the warps' number of loads of {name}", loads, most, because)


def draw_rung(path: Path, name: str, problem: Problem) -> Any:
    """What each line of a rung costs."""
    return cuda.draw_lines(path, f"{name}_{problem.suffix}", *arguments(problem)[0])
