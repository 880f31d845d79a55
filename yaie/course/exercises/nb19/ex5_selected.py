"""19.5: decode over the tokens that an index list names."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from yaie.build.dtypes import SUFFIXES
from yaie.course.core.cuda import KernelCase, draw_lines, in_every_order, reserved, run
from yaie.course.core.observe import Observer
from yaie.course.exercises.nb19 import paged
from yaie.course.exercises.nb19.ex2_grouped import EXPLAIN as AS_IN_RUNG_2
from yaie.course.exercises.nb19.ex2_grouped import FAR

NAME = "paged_selected"
LONG = 1 << 30  # entries of a row: the third begins past what 32 bits hold
BECAUSE = (
    "Query t sees the tokens at positions selected[t, 0] to selected[t, counts[t] - 1] of its "
    "sequence, each once, and no others."
)
EXPLAIN = AS_IN_RUNG_2 | {
    "out_of_bounds": (
        "Row t of selected begins at t * most, and has counts[t] valid entries. An entry is a "
        "position in the sequence; find_slot(context, position, paged.block_size) is its slot."
    ),
    "time_limit": (
        "Walk over the counts[token] valid entries of a row, not over all `most`, and move on in "
        "every iteration."
    ),
}


def batch_of(
    contexts: Sequence[int], counts: Sequence[int], most: int = 0, queries: int = 1, **sizes: Any
) -> tuple[paged.Batch, Any, Any, Any]:
    """A batch, the selection, its counts, and where the queries of each sequence begin.

    Every sequence has `queries` queries, and `counts` has one number per query.
    """
    whole = paged.batch_of(contexts, **sizes)
    spread = sizes.get("spread", 1.0)
    return select(whole, counts, most, queries, spread)


def select(
    whole: paged.Batch, counts: Sequence[int], most: int = 0, queries: int = 1, spread: float = 1.0
) -> tuple[paged.Batch, Any, Any, Any]:
    """The same over a selection of a batch's tokens, of one query or several per sequence."""
    generator = torch.Generator().manual_seed(sum(counts))
    tokens, most = len(counts), most or max(counts)
    if most < LONG:
        selected = torch.full((tokens, most), -1, dtype=torch.int32)
    else:
        selected = reserved(tokens * most, torch.int32).view(tokens, most)
    keys, values = [], []
    for token, count in enumerate(counts):
        sequence = token // queries
        chosen = torch.randperm(len(whole.keys[sequence]), generator=generator)[:count]
        selected[token, :count] = chosen.int()
        keys.append(whole.keys[sequence][chosen])
        values.append(whole.values[sequence][chosen])
    q = whole.tensors[0]
    q = torch.randn(tokens, *q.shape[1:], generator=generator).to(q.dtype) * spread
    starts = torch.arange(tokens // queries + 1, dtype=torch.int32) * queries
    batch = paged.Batch((q, *whole.tensors[1:]), whole.scale, keys, values)
    return batch, selected, torch.tensor(list(counts), dtype=torch.int32), starts


def planned(words: str, contexts: Sequence[int], counts: Sequence[int], **how: Any) -> KernelCase:
    """A case of `batch_of`."""
    return KernelCase(words, make=partial(batch_of, contexts, counts, **how), because="")


def cases() -> Iterator[KernelCase]:
    yield planned("1 of 1 token", (1,), (1,), heads=1)
    yield planned("3 of 20 tokens", (20,), (3,), heads=1)
    yield from in_every_order(
        planned("16 of 21 and 5 of 9 tokens", (21, 9), (16, 5)),
        planned("40 of 70 and 9 of 30 tokens", (70, 30), (40, 9)),
    )
    yield planned("none of 7, and 6 of 9 tokens", (7, 9), (0, 6))
    yield planned("2 of 9 tokens in rows of 12 entries", (9, 9), (2, 2), most=12)
    yield planned("3 queries of each of 2 sequences", (20, 12), (9, 8, 7, 2, 1, 6), queries=3)
    yield planned("4 query heads for 2 KV heads", (21, 9), (8, 3), heads=4, kv_heads=2)
    yield planned("12 query heads for 1 KV head, 8 at a time", (21,), (9,), heads=12)
    yield planned("heads of 128 in blocks of 16", (40,), (13,), heads=3, dim=128, block_size=16)
    yield planned("scores of several hundred", (50,), (20,), spread=300.0)
    yield KernelCase(
        "a block that begins at element 2³¹ of the pools", make=lambda: select(paged.far(), (3,)),
        because=FAR, how=paged.FAR_RUN,
    )  # fmt: skip
    yield KernelCase(
        "rows of 2³⁰ entries", make=partial(batch_of, (9,), (2, 3, 1), most=LONG, queries=3),
        because="A row may begin past element 2³¹ of `selected`: compute where in int64_t.",
        how=paged.FAR_RUN,
    )  # fmt: skip
    for dtype in ("float16", "bfloat16"):
        yield planned(dtype, (60, 3), (17, 3), heads=4, dtype=dtype)


def observe(path: Path, case: KernelCase, see: Observer) -> None:
    batch, selected, counts, starts = case.make()
    out, lse, given = paged.arguments(batch)
    given[5] = starts
    name, chosen = f"{NAME}_{SUFFIXES[batch.dtype]}", (selected, counts, selected.shape[1])
    run(see, path, name, *given, *chosen, explain=EXPLAIN, **case.how)
    paged.see_result(see, batch, out, lse, case.because or BECAUSE)


def draw(path: Path) -> Any:
    """What each line costs a warp."""
    batch, selected, counts, starts = batch_of(
        (100,), (60,), heads=4, dim=64, block_size=16, dtype="float16"
    )
    arguments = paged.arguments(batch)[2]
    arguments[5] = starts
    return draw_lines(path, f"{NAME}_f16", *arguments, selected, counts, selected.shape[1])
