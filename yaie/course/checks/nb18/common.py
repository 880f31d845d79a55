"""What the checks of notebook 18 share: a paged cache with others' tokens in it, and an oracle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from yaie.course.core.cuda import launch
from yaie.course.core.expect import close, fail, true

NO_BLOCK = 1 << 30  # what stands in a table behind the end of a context
ROUNDING = {"float32": 1e-4, "float16": 2e-3, "bfloat16": 1.6e-2}
SUFFIXES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}
Mistakes = Sequence[tuple[Any, str]]


@dataclass(frozen=True)
class Batch:
    """Sequences of one query each.

    Attributes:
        tensors: q, both pools, block tables and context lengths.
        scale: of the scores.
    """

    tensors: tuple[Any, ...]
    scale: float
    keys: list[Any] = field(default_factory=list)  # of each sequence, `[context, KV heads, dim]`
    values: list[Any] = field(default_factory=list)

    @property
    def group(self) -> int:
        """Query heads that share a KV head."""
        return self.tensors[0].shape[1] // self.tensors[1].shape[2]

    def scores(self, sequence: int, head: int) -> Any:
        """Of one query head, in float64."""
        keys = self.keys[sequence][:, head // self.group].double()
        return keys @ self.tensors[0][sequence, head].double() * self.scale


def batch_of(
    contexts: Sequence[int], heads: int = 2, kv_heads: int = 1, dim: int = 32, block_size: int = 4,
    dtype: str = "float32", spread: float = 1.0, shared: int = 0, seed: int = 0,
) -> Batch:  # fmt: skip
    """Contexts in blocks that lie anywhere; in all other slots are tokens of other requests.

    The first `shared` blocks of all tables are the same. `spread` makes queries larger.
    """
    import torch

    generator = torch.Generator().manual_seed(seed + sum(contexts))
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
    return Batch((q, *pools, tables, lengths), dim**-0.5, *found)


def oracle(batch: Batch, dtype: Any = None) -> tuple[Any, Any]:
    """Output and log-sum-exp in float64, a head at a time; then in float32 or `dtype`."""
    import torch

    q = batch.tensors[0]
    out, lse = torch.zeros(q.shape).double(), torch.full(q.shape[:2], -torch.inf).double()
    for i in range(len(q)):
        for head in range(q.shape[1] if len(batch.keys[i]) else 0):
            scores = batch.scores(i, head)
            lse[i, head] = torch.logsumexp(scores, 0)
            values = batch.values[i][:, head // batch.group].double()
            out[i, head] = torch.softmax(scores, 0) @ values
    return out.to(dtype or q.dtype), lse.float()


def arguments(batch: Batch) -> tuple[Any, Any, list[Any]]:
    """Outputs that hold NaN, and what a launcher takes."""
    import torch

    q, key_pool, _, tables, lengths = batch.tensors
    out, lse = torch.full_like(q, torch.nan), torch.full(q.shape[:2], torch.nan)
    tokens, heads, dim = q.shape
    sizes = tokens, len(lengths), heads, key_pool.shape[2], dim, key_pool.shape[1], tables.shape[1]
    return out, lse, [*batch.tensors, None, out, lse, batch.scale, *sizes, heads * dim]


def call(
    path: Path, name: str, batch: Batch, extra: Sequence[Any] = (),
    explain: Mapping[str, Any] | None = None, order: str = "forward", checked: bool = True,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """Run a rung on a batch: output, log-sum-exp, and the report of a checked run."""
    out, lse, given = arguments(batch)
    suffix = SUFFIXES[str(batch.tensors[0].dtype).removeprefix("torch.")]
    report = launch(
        path, f"{name}_{suffix}", *given, *extra, explain=explain, order=order, checked=checked
    )
    return out, lse, report


def compare(
    batch: Batch, out: Any, lse: Any, because: str = "", out_mistakes: Mistakes = (),
    lse_mistakes: Mistakes = (), scored: bool = False,
) -> None:  # fmt: skip
    """Compare both results with the oracle, and tell the mistake that gives what came.

    Args:
        scored: whether the kernel has been seen to write its output, so that NaN is a result.
    """
    import torch

    want_out, want_lse = oracle(batch)
    rounding = ROUNDING[str(out.dtype).removeprefix("torch.")]
    tolerance = {"rtol": rounding, "atol": rounding / 4}
    empty = torch.tensor([not len(keys) for keys in batch.keys])
    nothing = "Who sees no key gets zeros and −inf: nothing may be divided by a sum of 0."
    for i in empty.nonzero().flatten().tolist():
        context = f"of sequence {i}, whose context is 0"
        if bool(torch.isnan(out[i]).any()) or bool(out[i].any()):
            close(out[i], want_out[i], f"out {context},", because=nothing, **tolerance)
        true(bool((lse[i] == -torch.inf).all()), f"lse {context}, is {lse[i].tolist()}. {nothing}")
    if bool(torch.isnan(out).all()):
        told = because if scored else "It was there before: nobody has written it."
        fail(f"All of out is NaN. {told}")
    out_mistakes = [(wrong, told) for wrong, told in out_mistakes if bool(wrong.any())]
    close(out, want_out, "out", because=because, mistakes=out_mistakes, **tolerance)
    for found in (lse - want_lse)[~empty].flatten()[:1]:
        if bool((abs(lse - want_lse - found)[~empty] < 1e-4).all()) and found > 0.05:
            times = float(found.exp())
            if abs(times - round(times)) < 1e-2:
                fail(
                    f"out is right, and lse is too large everywhere by {float(found):.4f}, the "
                    f"logarithm of {times:.0f}: each key was counted {times:.0f} times. Softmax "
                    "does not notice, merging would."
                )
    close(lse, want_lse, "lse", mistakes=lse_mistakes, rtol=1e-4, atol=1e-4)


def lse_mistakes(batch: Batch) -> list[tuple[Any, str]]:
    """What lse is often taken for."""
    import torch

    _, lse = oracle(batch)
    best = torch.full_like(lse, -torch.inf)
    for i in range(len(lse)):
        for head in range(lse.shape[1] if len(batch.keys[i]) else 0):
            best[i, head] = batch.scores(i, head).max()
    return [
        (best, "That is the maximum alone: lse = best + log(total)."),
        (lse - best, "That is the logarithm of the sum alone, which is relative to the maximum: "
         "add the maximum."),
        (best + (lse - best) / torch.tensor(2.0).log(), "The logarithm is to base 2: logf is the "
         "natural one."),
        ((lse - best).exp(), "That is the sum: lse is the maximum plus its logarithm."),
    ]  # fmt: skip


def outside(name: str) -> str:
    """What an access outside of an argument comes from; "" is far from all of them."""
    if name == "block_tables":
        return "Key j is in the block that entry j / block_size of the table names: see find_slot."
    if name in ("out", "lse"):
        return "Row r of out has head_dim numbers from r * head_dim on, and lse has one at r."
    return (
        "The table's entries behind the context's end name no block, and are not to be used: is "
        "every key below the end before its slot is looked up?"
    )


def drawn_access(access: Any) -> Any:
    from yaie.course.viz.access import draw_access

    return partial(draw_access, access)
