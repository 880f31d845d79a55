"""13.4: `merge_kernel` beside a merge in float64, with tensors too large for 32-bit indices."""

import math
from collections.abc import Iterator
from typing import Any

import torch

from yaie.course.core.observe import Case, Observer
from yaie.course.core.triton import Access, launch, run, triton
from yaie.course.exercises.nb11.tensors import among, poisoned, see_stored_once, spaced
from yaie.course.exercises.nb13.kernels import operator_by

fit = operator_by("merge_kernel")
INF = math.inf


def cases() -> Iterator[Case]:
    """`parts` and `lse` by hand, or the shape [splits, rows, head_dim] of random ones."""
    name = "one row, two splits: outputs [1, 0] and [0, 2], sums 2 and 6"
    sums = [[math.log(2.0)], [math.log(6.0)]]
    yield Case(name, parts=[[[1.0, 0.0]], [[0.0, 2.0]]], lse=sums)
    for splits, rows, head_dim in ((2, 3, 4), (4, 5, 16), (8, 2, 5), (16, 1, 80), (1, 2, 8)):
        name = f"{splits} splits of {rows} rows, head_dim {head_dim}"
        yield Case(name, shape=(splits, rows, head_dim))
    name = "log-sum-exps of 900 and 900, and of -900 and -901"
    lse = [[900.0, -900.0], [900.0, -901.0]]
    yield Case(name, parts=[[[1.0], [1.0]], [[3.0], [3.0]]], lse=lse)
    name = "four splits, of which row 0 needs one, row 1 two and row 2 none"
    nothing = [0.0, 0.0]
    parts = [
        [[1.0, 2.0], [3.0, 4.0], nothing],
        [nothing, [5.0, 6.0], nothing],
        *[[nothing] * 3] * 2,
    ]
    lse = [[0.5, 0.7, -INF], [-INF, 0.1, -INF], [-INF] * 3, [-INF] * 3]
    yield Case(name, parts=parts, lse=lse)
    yield Case("4 splits of 3 rows, head_dim 8, out in float16", shape=(4, 3, 8), dtype="float16")
    name = "outputs of 1,000.3 and -1,000, equal log-sum-exps, out in float16"
    parts = [[[1000.3, -1000.0]], [[-1000.0, 1000.3]]]
    yield Case(name, parts=parts, lse=[[0.0], [0.0]], dtype="float16")
    name = "2 splits of 8,388,608 rows, head_dim 256: split 1 begins at element 2³¹ of parts"
    yield Case(name, shape=(2, 1, 256), num_rows=1 << 23)
    name = "4 splits of 1,073,741,824 rows, head_dim 1: split 2 begins at element 2³¹ of part_lse"
    yield Case(name, shape=(4, 1, 1), num_rows=1 << 30)
    name = "row 8,388,608, the last one, with head_dim 256: it begins at element 2³¹ of out"
    yield Case(name, shape=(1, 1, 256), num_rows=(1 << 23) + 1, first=1 << 23)


def observe(merge_kernel: Any, case: Case, see: Observer) -> None:
    if hasattr(case, "shape"):
        generator = torch.Generator().manual_seed(case.shape[0])
        parts = torch.randn(case.shape, generator=generator)
        lse = torch.randn(case.shape[:2], generator=generator) * 3
    else:
        parts, lse = torch.tensor(case.parts), torch.tensor(case.lse)
    splits, rows, head_dim = parts.shape
    num_rows, first = getattr(case, "num_rows", rows), getattr(case, "first", 0)
    dtype = getattr(torch, getattr(case, "dtype", "float32"))
    results = (
        torch.full((1, rows, head_dim), torch.nan, dtype=dtype),
        torch.full((1, rows), torch.nan),
    )
    place = spaced if num_rows == rows else lambda x: among(x, num_rows, first)
    placed = [place(x) for x in (parts, lse, *results)]
    placed[2:] = placed[2][0], placed[3][0]
    arguments = dict(zip(("parts", "part_lse", "out", "lse"), placed, strict=True))
    arguments["num_rows"] = num_rows
    constants = {"SPLITS": splits, "HEAD_DIM": head_dim, "DIM": triton.next_power_of_2(head_dim)}
    with see.call("the launch"):
        trace = run(see, merge_kernel, (rows,), arguments, beyond, first=first, **constants)
    out, out_lse = (x[first : first + rows] for x in placed[2:])
    shares = lse.double().softmax(dim=0).nan_to_num(0.0)
    want = (parts.double() * shares.unsqueeze(-1)).sum(dim=0).to(dtype)
    why = "Each split counts by its share, exp(lse of the split) over the sum of all."
    rtol, atol = (1e-4, 1e-5) if dtype == torch.float32 else (2e-3, 1e-3)
    see.close("out", out, want, why, rtol=rtol, atol=atol)
    why = "It is the logarithm of the sum of exp(lse) over the splits."
    see.close("lse", out_lse, lse.double().logsumexp(dim=0).float(), why)
    for name in ("out", "lse"):
        see_stored_once(see, trace, name)


def beyond(access: Access) -> str:
    if access.name in ("parts", "part_lse"):
        return (
            "Split s of row r has its log-sum-exp at s × num_rows + r, and its output at that "
            "times HEAD_DIM, which may not fit in 32 bits. DIM may be more than HEAD_DIM: mask the "
            "lanes beyond."
        )
    return "DIM may be more than HEAD_DIM: mask the lanes beyond, in the store as well."


def draw(merge_kernel: Any) -> Any:
    """Four splits of 32 keys, one of them beyond the context, merged by the learner's kernel."""
    from yaie.course.viz.steps import MergeNode, draw_merge

    generator = torch.Generator().manual_seed(7)
    scores = torch.randn(26, generator=generator) * 2
    values = torch.randn(26, generator=generator)
    parts, lse = torch.zeros(4, 1, 1), torch.full((4, 1), -INF)
    leaves = []
    for split in range(4):
        columns = slice(split * 8, min(split * 8 + 8, 26))
        parts[split] = scores[columns].softmax(0) @ values[columns]
        lse[split] = scores[columns].logsumexp(0)
        words = f"keys {columns.start}-{columns.stop - 1}"
        leaves.append(MergeNode(words, lse[split].item(), parts[split].item()))
    out, out_lse = poisoned(1, 1), poisoned(1)
    arguments = {"parts": parts, "part_lse": lse, "out": out, "lse": out_lse, "num_rows": 1}
    launch(merge_kernel, (1,), arguments, SPLITS=4, HEAD_DIM=1, DIM=1)
    return draw_merge(MergeNode("keys 0-25", out_lse.item(), out.item(), tuple(leaves)))
