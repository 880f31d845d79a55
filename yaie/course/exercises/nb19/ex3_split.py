"""19.3: which keys a split has, and how what the splits leave is merged."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from yaie.course.core import cuda
from yaie.course.core.cuda import KernelCase
from yaie.course.core.observe import Observer
from yaie.course.exercises.nb19 import paged

fit = cuda.operator_by("yaie.ops.cuda.paged:split")
NAME = "paged_split"

SHARE = (
    "It is the sum of the parts by their shares, and the share of a split is exp(its lse − the lse "
    "of all)."
)
MERGED = (
    "lse is the largest of the splits' log-sum-exps plus the natural logarithm of the sum of the "
    "weights."
)
OVERFLOW = (
    "exp overflows in float32 from 89 on, and an lse can be larger than that: subtract the largest "
    "lse before exp."
)
FAR = 2**23 + 2**10  # rows of 256, so the last begins past element 2³¹, and in split 1 past 2³²
BITS = "The offset of a row in parts and in paged.out needs 64 bits: an int ends at 2³¹ - 1."
EXPLAIN = {
    "out_of_bounds": (
        "Row `row` of split s is number s * rows + row of parts and of part_lse, and has "
        f"paged.head_dim numbers in parts. {paged.OUTSIDE}"
    ),
    "divergent_barrier": (
        "A thread block has keys or it has none: all of its threads return, or none."
    ),
    "race": "Each element of out belongs to one thread, and lse[row] to thread 0.",
}


def cases() -> Iterator[KernelCase]:
    yield paged.planned("9 tokens, 1 split", (9,), splits=(1, 9))
    yield from cuda.in_every_order(
        paged.planned("24 tokens, 2 splits of 12", (24,), splits=(2, 12)),
        paged.planned("20 and 9 tokens, 3 splits of 8", (20, 9), splits=(3, 8)),
    )
    yield paged.planned("17 tokens, 4 splits of 5", (17,), splits=(4, 5))
    yield paged.planned("0, 30 and 3 tokens, 4 splits of 8", (0, 30, 3), splits=(4, 8))
    yield paged.planned("40 tokens, 3 splits of 8, the last of 24", (40,), splits=(3, 8))
    yield paged.planned("5 tokens, 6 splits of 1", (5,), splits=(6, 1))
    yield paged.planned("heads of 200, more than threads that merge", (9,), dim=200, splits=(2, 5))
    words = "4 query heads of 64 for 2 KV heads"
    yield paged.planned(words, (33,), heads=4, kv_heads=2, dim=64, splits=(3, 16))
    words = "scores of several hundred"
    yield paged.planned(words, (50, 70), spread=300.0, splits=(3, 25), because=OVERFLOW)
    yield paged.planned("every lse around -200", splits=(2, 5), make=low)
    for dtype in ("float16", "bfloat16"):
        yield paged.planned(dtype, (60, 0, 3), heads=4, dtype=dtype, splits=(4, 16))
    last = {"order": "reverse", "most_blocks": 1, "checked": False}  # checks would copy all rows
    words = f"the last of {FAR:,} rows of 256, 2 splits"
    yield KernelCase(words, make=last_row, how=last)


def observe(path: Path, case: KernelCase, see: Observer) -> None:
    if case.make is last_row:
        observe_far(path, case, see)
        return
    splits, part = case.splits
    batch = case.make()
    shape = batch.tensors[0].shape
    parts, part_lse = cuda.poisoned(splits, *shape), cuda.poisoned(splits, *shape[:2])
    extra = (parts, part_lse, part, splits)
    out, lse, _ = paged.call(see, path, NAME, case, batch, EXPLAIN, extra)
    see_parts(see, batch, part_lse, splits, part)
    paged.see_result(see, batch, out, lse, case.because or SHARE, MERGED)


def low() -> paged.Batch:
    """9 tokens whose scores all lie around -200, where exp is 0 in float32."""
    batch = paged.batch_of((9,), heads=1)
    q = batch.tensors[0][0, 0]
    paged.place(batch, batch.keys[0] - 200 / batch.scale * q / (q @ q))
    return batch


def last_row() -> paged.Batch:
    """The keys and the query of the last row."""
    return paged.batch_of((8,), heads=1, dim=256, dtype="float16")


def observe_far(path: Path, case: KernelCase, see: Observer) -> None:
    """Only the last thread block of either kernel runs, on its split and its row: what split 0
    leaves for this row is written here. The other rows take no memory."""
    batch, part = case.make(), 4
    q, *_, tables, _ = batch.tensors
    dim, starts = q.shape[-1], torch.tensor([0, FAR], dtype=torch.int32)
    out, parts = cuda.reserved(FAR * dim, q.dtype), cuda.reserved(2 * FAR * dim, torch.float32)
    lse, part_lse = (cuda.reserved(n * FAR, torch.float32) for n in (1, 2))
    first, first_lse = paged.attend(batch, 0, part)
    out[-dim:] = lse[-1] = float("nan")
    parts.view(-1, dim)[FAR - 1], part_lse[FAR - 1] = first[0, 0].float(), first_lse.float()
    sizes = FAR, 1, 1, 1, dim, batch.tensors[1].shape[1], tables.shape[1], 0  # one q for all
    given = *batch.tensors, starts, out, lse, batch.scale, *sizes, parts, part_lse, part, 2
    cuda.run(see, path, f"{NAME}_f16", *given, explain=EXPLAIN, **case.how)
    paged.see_result(see, batch, out[-dim:].view(q.shape), lse[-1:].view(1, 1), BITS, MERGED)


def ends(length: int, splits: int, part: int) -> list[tuple[int, int]]:
    """The keys of each split, from and to."""
    cut = [(s * part, min((s + 1) * part, length)) for s in range(splits)]
    return [*cut[:-1], (cut[-1][0], length)]


def see_parts(see: Observer, batch: paged.Batch, part_lse: Any, splits: int, part: int) -> None:
    """Note the log-sum-exps that splits have left: they say which keys each has seen."""
    for i, keys in enumerate(batch.keys):
        for s, (begin, end) in enumerate(ends(len(keys), splits, part)):
            if begin < end:
                want = paged.attend(batch, begin, end)[1][i].float()
                name = f"part_lse of split {s} of {len(keys)} tokens"
                has = f"It has the keys {begin} to {end - 1}."
                see.close(name, part_lse[s, i], want, has, rtol=1e-3, atol=1e-3)


def draw(path: Path) -> Any:
    """The partial states of one query head, and what they were merged to."""
    from yaie.course.viz.steps import MergeNode, draw_merge

    batch = paged.batch_of((44,), heads=1, dim=16)
    splits, part = 4, 12
    shape = batch.tensors[0].shape
    parts, part_lse = torch.zeros(splits, *shape), torch.zeros(splits, *shape[:2])
    out, lse, given = paged.arguments(batch)
    cuda.compiled(path).paged_split_f32(*given, parts, part_lse, part, splits)
    leaves = tuple(
        MergeNode(f"keys {begin}–{end - 1}", float(part_lse[s, 0, 0]), float(parts[s, 0, 0, 0]))
        for s, (begin, end) in enumerate(ends(44, splits, part))
    )
    return draw_merge(MergeNode("merged", float(lse[0, 0]), float(out[0, 0, 0]), leaves))
