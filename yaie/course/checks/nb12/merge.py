"""The check of the kernel that merges the splits of a context."""

from __future__ import annotations

import math
from typing import Any

from yaie.course.checks.nb10.common import poisoned, spaced, written_once
from yaie.course.core.expect import close, fail, given

NAN = (
    "Where no split saw anything every log-sum-exp is -inf, and so is their maximum; -inf - -inf "
    "is NaN, and so is 0 / 0. Take off a maximum that is at least LOWEST, and divide by the total "
    "only where it is not 0."
)
SHAPES = {
    ValueError: "The weights are [SPLITS], the parts [SPLITS, DIM]: `weights[:, None]`. The "
    "outputs are summed over the splits, axis 0.",
}


def check_merge(merge_kernel: Any) -> None:
    import torch

    halves(merge_kernel)
    for splits, rows, head_dim in ((2, 3, 4), (4, 5, 16), (8, 2, 5), (16, 1, 80), (1, 2, 8)):
        random_parts(merge_kernel, splits, rows, head_dim)
    large(merge_kernel)
    empty_parts(merge_kernel)
    random_parts(merge_kernel, 4, 3, 8, dtype=torch.float16)


def merge(merge_kernel: Any, parts: Any, lse: Any, dtype: Any = None) -> tuple[Any, Any]:
    """Launch the learner's kernel with a program for each row."""
    from yaie.course.core.triton import launch, triton

    splits, rows, head_dim = parts.shape
    out, out_lse = poisoned(rows, head_dim, dtype=dtype), poisoned(rows)
    arguments = {
        "parts": spaced(parts), "part_lse": spaced(lse), "out": out, "lse": out_lse,
        "num_rows": rows,
    }  # fmt: skip
    dim = triton.next_power_of_2(head_dim)
    trace = launch(
        merge_kernel, (rows,), arguments, told_bound, SPLITS=splits, HEAD_DIM=head_dim, DIM=dim
    )
    if bool(out.isnan().any()) and not trace.of("out", "store"):
        fail("out was never stored: program r stores row r of it.")
    if not trace.of("lse", "store"):
        fail("lse was never stored: it is a result as well.")
    for name in ("out", "lse"):
        written_once(trace, name)
    return out, out_lse


def told_bound(access: Any) -> str:
    if access.name in ("parts", "part_lse"):
        return (
            "Split s of row r has its log-sum-exp at s × num_rows + r, and its output at that "
            "times HEAD_DIM. DIM may be more than HEAD_DIM: mask the lanes beyond."
        )
    return "DIM may be more than HEAD_DIM: mask the lanes beyond, in the store as well."


def exact(parts: Any, lse: Any) -> tuple[Any, Any]:
    """The merge in float64, by its text."""
    parts, lse = parts.double(), lse.double()
    shares = lse.softmax(dim=0).nan_to_num(0.0)
    return (parts * shares.unsqueeze(-1)).sum(dim=0), lse.logsumexp(dim=0)


def compare(got: tuple[Any, Any], parts: Any, lse: Any) -> None:
    want_out, want_lse = exact(parts, lse)
    if bool(got[0].isnan().any()) or bool(got[1].isnan().any()):
        fail(f"the result has a NaN. {NAN}")
    wide, sums = parts.double(), lse.double()
    top = sums.amax(dim=0)
    relative = (sums - top).exp()

    def weighted(weights: Any) -> Any:
        return (wide * weights.unsqueeze(-1)).sum(dim=0)

    powers = (sums - top).exp2()
    splits, rows = sums.shape
    turned = exact(wide.reshape(rows, splits, -1).transpose(0, 1), sums.reshape(rows, -1).T)
    wrong = [
        (wide.mean(dim=0), "All splits count alike here, whatever their sums. Weight each by "
         "exp(lse of the split - maximum)."),
        (wide.sum(dim=0), "The parts were added as they are: each was divided by its own sum."),
        (turned[0], "The splits of a row do not lie side by side: entry (s, row) of [SPLITS, rows] "
         "is at s × num_rows + row."),
        (weighted(relative), "The weights are relative to the largest log-sum-exp, and nothing "
         "was divided by their sum."),
        (weighted(powers / powers.sum(dim=0)), "These are powers of 2. The log-sum-exps are "
         "natural: tl.exp."),
        (weighted(sums / sums.sum(dim=0)), "The parts were weighted by the log-sum-exps. Their "
         "exponentials are the sums that the parts were divided by."),
    ]  # fmt: skip
    rtol, atol = (1e-4, 1e-5) if got[0].itemsize == 4 else (2e-3, 1e-3)
    close(
        got[0],
        want_out.to(got[0].dtype),
        "out",
        because="Each split counts by its share, exp(lse of the split) over the sum of all.",
        mistakes=[(x.to(got[0].dtype), text) for x, text in wrong],
        rtol=rtol,
        atol=atol,
    )
    close(
        got[1],
        want_lse.float(),
        "lse",
        because="It is the logarithm of the sum of exp(lse) over the splits.",
        mistakes=[
            (top.float(), "That is the largest of them, not the logarithm of their sum."),
            (relative.sum(dim=0).log().float(), "The maximum, which was taken off, is missing."),
            ((top + relative.sum(dim=0).log2()).float(), "A logarithm to base 2 was added to a "
             "natural one: tl.log."),
            ((top + relative.sum(dim=0)).float(), "The sum was added itself; its logarithm was "
             "not taken."),
            (sums.sum(dim=0).float(), "The log-sum-exps were added. The sums behind them add up."),
        ],
    )  # fmt: skip


def halves(merge_kernel: Any) -> None:
    """A split with the sum 2 and one with the sum 6: a quarter and three quarters."""
    import torch

    parts = torch.tensor([[[1.0, 0.0]], [[0.0, 2.0]]])
    lse = torch.tensor([[math.log(2.0)], [math.log(6.0)]])
    with given("one row, two splits: outputs [1, 0] and [0, 2], sums 2 and 6", SHAPES):
        compare(merge(merge_kernel, parts, lse), parts, lse)


def random_parts(
    merge_kernel: Any, splits: int, rows: int, head_dim: int, dtype: Any = None
) -> None:
    import torch

    generator = torch.Generator().manual_seed(splits)
    parts = torch.randn(splits, rows, head_dim, generator=generator)
    lse = torch.randn(splits, rows, generator=generator) * 3
    kind = "" if dtype is None else ", out in float16"
    with given(f"{splits} splits of {rows} rows, head_dim {head_dim}{kind}", SHAPES):
        compare(merge(merge_kernel, parts, lse, dtype), parts, lse)


def large(merge_kernel: Any) -> None:
    import torch

    parts = torch.tensor([[[1.0], [1.0]], [[3.0], [3.0]]])
    lse = torch.tensor([[900.0, -900.0], [900.0, -901.0]])
    with given("log-sum-exps of 900 and 900, and of -900 and -901", SHAPES):
        got = merge(merge_kernel, parts, lse)
        if not all(bool(x.isfinite().all()) for x in got):
            fail(
                "something overflowed: exp(900) is infinite in float32, and exp(-900) is 0. Take "
                "exponentials of differences from the largest log-sum-exp."
            )
        compare(got, parts, lse)


def empty_parts(merge_kernel: Any) -> None:
    """Splits beyond a short context, and a row that has no context at all."""
    import torch

    inf = -math.inf
    parts = torch.zeros(4, 3, 2)
    parts[0, :2] = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    parts[1, 1] = torch.tensor([5.0, 6.0])
    lse = torch.tensor([[0.5, 0.7, inf], [inf, 0.1, inf], [inf, inf, inf], [inf, inf, inf]])
    with given("four splits of which row 0 needs one, row 1 two and row 2 none", SHAPES):
        compare(merge(merge_kernel, parts, lse), parts, lse)


def draw_merged(merge_kernel: Any) -> Any:
    """Four splits of 32 keys, one of them beyond the context, merged by the learner's kernel."""
    import torch

    from yaie.course.viz.merge import MergeNode, draw_merge

    generator = torch.Generator().manual_seed(7)
    scores = torch.randn(26, generator=generator) * 2
    values = torch.randn(26, generator=generator)
    parts, lse = torch.zeros(4, 1, 1), torch.full((4, 1), -math.inf)
    leaves = []
    for split in range(4):
        columns = slice(split * 8, min(split * 8 + 8, 26))
        parts[split] = scores[columns].softmax(0) @ values[columns]
        lse[split] = scores[columns].logsumexp(0)
        words = f"keys {columns.start}-{columns.stop - 1}"
        leaves.append(MergeNode(words, lse[split].item(), parts[split].item()))
    out, out_lse = merge(merge_kernel, parts, lse)
    return draw_merge(MergeNode("keys 0-25", out_lse.item(), out.item(), tuple(leaves)))
