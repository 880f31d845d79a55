"""Exercises of notebook 10: a vector, a row, and two operators in one kernel, in Triton."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from yaie.course.checks.nb10.add import check_add, draw_add
from yaie.course.checks.nb10.norm import check_add_rms_norm, draw_norm
from yaie.course.checks.nb10.softmax import check_softmax, draw_softmax
from yaie.course.core.manifest import Exercise

NOTEBOOK = "10_first_triton_kernels"


def add_rms_norm_with(kernel: Any) -> Callable[..., Any]:
    """The operator, by the learner's kernel."""
    from yaie.ops.triton.norm import add_rms_norm

    return lambda *arguments: add_rms_norm(*arguments, kernel)


EXERCISES = [
    Exercise(
        id="10.1",
        notebook=NOTEBOOK,
        slug="add",
        title="Add two vectors, a block a program",
        target="yaie.ops.triton.elementwise:add_kernel",
        task=(
            "Write the kernel. Which elements are this program's block, which of them exist, load "
            "x and y there, store the sum. `size` is any number, `BLOCK` a power of two, and the "
            "last block may stick out."
        ),
        difficulty=1,
        minutes=10,
        hints=(
            "Every program runs the same lines on a block of its own. It works out the numbers of "
            "all its elements at once, as a block of integers, and loads and stores by adding "
            "them to a pointer.",
            "Before program p there are p whole blocks. The lane with offset o takes part if "
            "element o exists, in both loads and in the store.",
            "Five lines:\n"
            "    offsets = tl.program_id(0) * ... + tl.arange(0, ...)\n"
            "    inside = ...\n"
            "    x = tl.load(x_ptr + offsets, mask=...)\n"
            "    y = ...\n"
            "    tl.store(out_ptr + ..., ..., mask=...)",
        ),
        proves=(
            "Ten launches, of 1 to 100,003 elements, compute every element once, and no program "
            "touched what is not there."
        ),
        check=check_add,
        picture=draw_add,
    ),
    Exercise(
        id="10.2",
        notebook=NOTEBOOK,
        slug="softmax",
        title="Softmax of rows, read once",
        target="yaie.ops.triton.norm:softmax_kernel",
        task=(
            "Write the kernel for rows that fit in one block. Each row is loaded once and stored "
            "once; maximum, exponentials and sum stay in registers. There may be fewer programs "
            "than rows. A row of -inf alone gives zeros (exercise 07.3). What you need besides "
            '10.1: `tl.num_programs(0)`, `tl.max`, `tl.sum`, `tl.exp`, `tl.where`, `float("-inf")`.'
        ),
        difficulty=2,
        minutes=20,
        hints=(
            "A block is longer than its row, unless the row's length is a power of two. Ask of "
            "each step (maximum, exponential, sum) what a lane beyond the end must hold so that "
            "it changes nothing. One value serves all three.",
            "A lane that holds -inf never is the maximum, and its exponential is 0. The two "
            "places where a row of -inf alone goes wrong are -inf - -inf and 0 / 0. Row r begins "
            "at element r × columns; program p takes the rows p, p + programs, p + 2 programs.",
            "A loop over rows around the lines for one row:\n"
            "    for row in tl.range(..., rows, ..., num_stages=STAGES):\n"
            "        x = tl.load(x_ptr + row * ... + offsets, mask=..., other=...).to(tl.float32)\n"
            "        highest = tl.max(x)\n"
            "        highest = tl.where(highest == ..., 0.0, highest)\n"
            "        weights = ...\n"
            "        total = ...\n"
            "        tl.store(..., weights / tl.where(total == 0.0, ..., total), mask=...)",
        ),
        proves=(
            "Ten shapes, among them 37 rows of 781, match a softmax in float64, with -inf and "
            "large scores in them, and every score was loaded once."
        ),
        check=check_softmax,
        picture=draw_softmax,
    ),
    Exercise(
        id="10.3",
        notebook=NOTEBOOK,
        slug="add_rms_norm",
        title="RMSNorm, fused with the addition before it",
        target="yaie.ops.triton.norm:add_rms_norm_kernel",
        task=(
            "A layer's output is added to the residual, and the sum is normalized for the next "
            "layer. Write the kernel that does both: it stores the sum as `total`, and "
            "total / sqrt(mean(total²) + eps) × weight as `out`, and loads x and the residual "
            "once. `tl.rsqrt(v)` is 1 / sqrt(v). The dtype behind a pointer is "
            "`total_ptr.dtype.element_ty`."
        ),
        difficulty=2,
        minutes=15,
        hints=(
            "It is the loop of 10.2 with another row in it. The sum of a row's squares is all "
            "that has to be known before the first result, and the row is in registers by then.",
            "The mean is over `size` elements, not over BLOCK lanes; lanes beyond the end must add "
            "nothing to the sum of squares. What is normalized should be what was stored: round "
            "the sum to the dtype of total first, then go on in float32.",
            "For each row, with `weight` loaded once before the loop:\n"
            "    x = tl.load(..., mask=..., other=...).to(tl.float32)\n"
            "    residual = ...\n"
            "    rounded = (x + residual).to(total_ptr.dtype.element_ty)\n"
            "    tl.store(total_ptr + ..., rounded, mask=...)\n"
            "    total = rounded.to(tl.float32)\n"
            "    scale = tl.rsqrt(tl.sum(...) / ... + eps)\n"
            "    tl.store(out_ptr + ..., ..., mask=...)",
        ),
        proves=(
            "Nine shapes in two precisions match float64, both results are stored once, and "
            "nothing was loaded twice."
        ),
        check=check_add_rms_norm,
        picture=draw_norm,
        operator="add_rms_norm",
        fit=add_rms_norm_with,
    ),
]
