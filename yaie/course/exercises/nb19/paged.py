"""What the exercises of notebook 19 share: a paged cache with others' tokens in it, an oracle."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from yaie.build.dtypes import ROUNDING, SUFFIXES
from yaie.course.core.cuda import Explain, KernelCase, draw_lines, poisoned, reserved, run
from yaie.course.core.observe import Observer
from yaie.ops.reference.attention import attention

FAR_RUN = {"checked": False, "most_blocks": 64}  # more than its grid has: see `cuda.run`
NO_BLOCK = 1 << 30  # what a table holds past the end of a context
TOLERANCE = {**ROUNDING, "float32": 1e-4}

OUTSIDE = (
    "Key j is in the block that entry j / block_size of the table names; find_slot computes where. "
    "Entries past the end of the context name no block and may not be used. Row r of out begins "
    "at r * head_dim, and lse has one number per row."
)
OVERFLOW = (
    "exp overflows in float32 from 89 on, and exp(score - maximum) is never above 1: subtract the "
    "maximum before exp."
)
NATURAL = "lse is the maximum of the scores plus the natural logarithm of the sum."
EMPTY = "A context of 0 gives zeros and -inf: nothing may be divided by a sum of 0."


@dataclass(frozen=True)
class Batch:
    """Sequences of one query each.

    Attributes:
        tensors: q, both pools, block tables and context lengths.
        scale: of the scores.
        keys, values: of each sequence, `[context, KV heads, dim]`.
    """

    tensors: tuple[Any, ...]
    scale: float
    keys: list[Any] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)

    @property
    def dtype(self) -> str:
        """Its name."""
        return str(self.tensors[0].dtype).removeprefix("torch.")


def batch_of(
    contexts: Sequence[int], heads: int = 2, kv_heads: int = 1, dim: int = 32, block_size: int = 4,
    dtype: str = "float32", spread: float = 1.0, shared: int = 0, scale: float | None = None,
) -> Batch:  # fmt: skip
    """Contexts in blocks that lie anywhere; in all other slots are tokens of other requests.

    The first `shared` blocks of all tables are the same. `spread` makes queries larger, and
    `scale` is that of the scores, if not 1 / sqrt(dim).
    """
    generator = torch.Generator().manual_seed(sum(contexts))
    needed = [-(-context // block_size) for context in contexts]
    num_blocks = shared + sum(need - shared for need in needed) + 2
    free = torch.randperm(num_blocks, generator=generator).int()
    common, free = free[:shared], free[shared:]
    tables = torch.full((len(contexts), max(needed, default=0) + 2), NO_BLOCK, dtype=torch.int32)
    pools = [
        torch.randn(num_blocks, block_size, kv_heads, dim, generator=generator).to(
            getattr(torch, dtype)
        )
        for _ in range(2)
    ]
    pools[1] += 0.5  # so that a mean of values is not 0
    for row, need in zip(tables, needed, strict=True):
        row[:need] = torch.cat([common, free[: need - shared]])
        free = free[need - shared :]
    found: tuple[list[Any], list[Any]] = ([], [])
    for row, need, context in zip(tables, needed, contexts, strict=True):
        for which, pool in zip(found, pools, strict=True):
            which.append(pool[row[:need].long()].flatten(0, 1)[:context])
    q = torch.randn(len(contexts), heads, dim, generator=generator) * spread
    q = q.to(getattr(torch, dtype))
    lengths = torch.tensor(list(contexts), dtype=torch.int32)
    return Batch((q, *pools, tables, lengths), scale or dim**-0.5, *found)


def far() -> Batch:
    """4 tokens in a block that begins at element 2³¹ of both pools, which take no memory."""
    near = batch_of((4,), dtype="float16")
    q, key_pool, value_pool, tables, lengths = near.tensors
    last = (1 << 31) // key_pool[0].numel()
    pools = []
    for pool in (key_pool, value_pool):
        large = reserved((last + 1) * pool[0].numel(), pool.dtype)
        pools.append(large.view(last + 1, *pool.shape[1:]))
        pools[-1][last] = pool[tables[0, 0]]
    tables = torch.full_like(tables, NO_BLOCK)
    tables[0, 0] = last
    return Batch((q, *pools, tables, lengths), near.scale, near.keys, near.values)


def place(batch: Batch, keys: Any) -> None:
    """Write other keys to the only sequence of a batch."""
    pool, table = batch.tensors[1], batch.tensors[3][0]
    for key in range(len(keys)):
        pool[table[key // pool.shape[1]], key % pool.shape[1]] = keys[key]
    batch.keys[0] = keys


def attend(batch: Batch, begin: int = 0, end: int | None = None) -> tuple[Any, Any]:
    """Output and log-sum-exp over some keys of every sequence by PyTorch, in float64."""
    states = [
        attention(*(x.double() for x in (q, keys[begin:end], values[begin:end])), scale=batch.scale)
        for q, keys, values in zip(batch.tensors[0].split(1), batch.keys, batch.values, strict=True)
    ]
    out, lse = zip(*states, strict=True)
    return torch.cat(out), torch.cat(lse)


def arguments(batch: Batch) -> tuple[Any, Any, list[Any]]:
    """Outputs that hold NaN, and what a launcher takes."""
    q, key_pool, _, tables, lengths = batch.tensors
    out, lse = poisoned(*q.shape, dtype=q.dtype), poisoned(*q.shape[:2])
    tokens, heads, dim = q.shape
    sizes = tokens, len(lengths), heads, key_pool.shape[2], dim, key_pool.shape[1], tables.shape[1]
    return out, lse, [*batch.tensors, None, out, lse, batch.scale, *sizes, heads * dim]


def call(
    see: Observer, path: Path, name: str, case: KernelCase, batch: Batch, explain: Explain,
    extra: Sequence[Any] = (),
) -> tuple[Any, Any, Any]:  # fmt: skip
    """Run a rung on a batch: output, log-sum-exp, and the report of a checked run."""
    out, lse, given = arguments(batch)
    launcher = f"{name}_{SUFFIXES[batch.dtype]}"
    report = run(see, path, launcher, *given, *extra, explain=explain, **case.how)
    return out, lse, report


def see_result(
    see: Observer, batch: Batch, out: Any, lse: Any, because: str, natural: str = NATURAL
) -> None:
    """Note output and log-sum-exp beside those of attention in float64."""
    want, want_lse = attend(batch)
    rounding = TOLERANCE[batch.dtype]
    if not all(map(len, batch.keys)):
        because = f"{EMPTY} {because}"
    want = want.to(batch.tensors[0].dtype)
    see.close("out", out, want, because, rtol=rounding, atol=rounding / 4)
    see.close("lse", lse, want_lse.float(), natural, rtol=1e-4, atol=1e-4)


def planned(
    words: str, contexts: Sequence[int] = (), *, because: str = "",
    make: Callable[[], Batch] | None = None, costs: bool = False,
    splits: tuple[int, int] = (1, 1), **sizes: Any,
) -> KernelCase:  # fmt: skip
    """A case whose batch is `batch_of(contexts, **sizes)`, unless `make` makes another.

    A checked run of the batch that is `far` would copy all of its pools.
    """
    how = FAR_RUN if make is far else {}
    make = make or partial(batch_of, contexts, **sizes)
    return KernelCase(words, make=make, because=because, costs=costs, splits=splits, how=how)


def draw_rung(path: Path, name: str, batch: Batch) -> Any:
    """What each line of a rung costs a warp."""
    return draw_lines(path, f"{name}_{SUFFIXES[batch.dtype]}", *arguments(batch)[2])
