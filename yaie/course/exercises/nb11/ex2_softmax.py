"""11.2: `softmax_kernel` beside a softmax in float64, and how often it loads a score."""

import math
from collections.abc import Iterator
from typing import Any

from yaie.course import viz
from yaie.course.core.observe import Case, Observer
from yaie.course.core.triton import launch, run, triton
from yaie.course.exercises.nb11.tensors import (
    beyond_a_row,
    from_row,
    poisoned,
    randn,
    see_loaded,
    see_rows_begin,
    see_stored_once,
    spaced,
)


def cases() -> Iterator[Case]:
    """`scores` makes the input: torch is not imported before it is called."""
    yield rows_of("4 rows of 6 scores, all of them below 0", 4, lambda: randn(4, 6) - 5.0)
    yield rows_of("5 rows of 7 scores", 2, lambda: randn(5, 7, seed=1))
    yield rows_of("3 rows of 13 scores up to 1,000", 3, lambda: randn(3, 13, seed=2) * 300.0)
    for columns in (4, 5):  # of 4, no lane is masked
        name = f"3 rows of {columns} scores around -1e31"
        yield rows_of(name, 3, lambda n=columns: randn(3, n, seed=7) * 1e30 - 1e31)
    yield rows_of("4 rows in which some scores are -inf, and one has no other", 4, hidden)
    for shape, programs in (((1, 1), 1), ((3, 16), 3), ((2, 17), 2), ((1, 33), 4), ((37, 781), 5)):
        name = f"{shape[0]} rows of {shape[1]} scores"
        yield rows_of(name, programs, lambda shape=shape: randn(*shape, seed=3))
    yield rows_of("4 rows of 1,000 scores in float16", 4, lambda: randn(4, 1000, seed=4).half())
    name = "row 524,288, the last one, of 4,096 scores: it begins at element 2³¹"
    yield Case(name, scores=lambda: randn(1, 4096, seed=6), programs=1, first=1 << 19)


def rows_of(what: str, programs: int, scores: Any) -> Case:
    return Case(f"{what}, a grid of {programs}", scores=scores, programs=programs)


def hidden() -> Any:
    x = randn(4, 6, seed=5)
    x[0, 3:] = x[1, 0] = x[2] = -math.inf
    return x


def observe(kernel: Any, case: Case, see: Observer) -> None:
    x = spaced(case.scores())
    rows, columns = x.shape
    out = poisoned(rows, columns, dtype=x.dtype)
    first = getattr(case, "first", 0)  # of the rows, and of the programs that run
    arguments = {"x": from_row(first, x), "out": from_row(first, out)}
    arguments |= {"rows": first + rows, "columns": columns}
    out = arguments["out"][first:]
    constants = {"BLOCK": triton.next_power_of_2(columns), "STAGES": 1}
    with see.call("the launch"):
        trace = run(
            see, kernel, (case.programs,), arguments, beyond_a_row, first=first, **constants
        )
    see_rows_begin(see, trace, "x", columns)
    want = x.double().softmax(dim=-1).nan_to_num(0.0).to(x.dtype)
    why = (
        f"Each row: exp(score - maximum), divided by the row's sum of these, in float32. "
        f"{case.programs} programs share the {rows} rows."
    )
    rtol, atol = (1e-4, 1e-6) if x.itemsize == 4 else (1e-3, 1e-7)
    see.close("out", out, want, why, rtol=rtol, atol=atol)
    see_stored_once(see, trace, "out")
    see_loaded(see, trace, "x", x.nbytes, "A row fits in one block, so one load of it is enough.")


def draw(kernel: Any) -> Any:
    """Seven rows of 5 by three programs."""
    x, out = randn(7, 5, seed=6), poisoned(7, 5)
    arguments = {"x": x, "out": out, "rows": 7, "columns": 5}
    trace = launch(kernel, (3,), arguments, BLOCK=8, STAGES=1)
    return viz.draw_programs(viz.programs_of(trace, "out", "store"))
