"""10.2: rows in Q8_0 by a vector, read as they are stored."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from yaie.course.core import native
from yaie.course.core.cuda import poisoned, unwritten
from yaie.course.core.observe import Case, Observer

# rows, groups of a row, threads
SHAPES = ((1, 1, 1), (1, 3, 1), (4, 2, 1), (3, 2, 1), (7, 5, 1), (9, 2, 2), (5, 18, 3))
WHOLE = "Each weight is a byte from -128 to 127 times the scale of its group."
ONCE = "Each number of a group is needed once, its scale at most once per vector."
VECTORS = "The check has LANES = 4: a group takes 8 loads, and at most 8 of its scale."


def cases() -> Iterator[Case]:
    for rows, groups, threads in SHAPES:
        yield case(rows, groups, threads)
    yield case(2, 2, 1, ", the scales subnormal", scales=lambda s: s * 2**-24 * 9)
    yield case(2, 2, 1, ", all bytes -128", numbers=lambda n: n * 0 - 128)
    yield case(8, 18, 2, ", and its loads", costs=True)


def case(rows: int, groups: int, threads: int, words: str = "", **data: Any) -> Case:
    name = f"{rows} × {32 * groups}, {threads} thread{'s' * (threads > 1)}{words}"
    return Case(name, shape=(rows, groups, threads), **{"costs": False, **data})


def observe(path: Path, case: Case, see: Observer) -> None:
    rows, groups, threads = case.shape
    generator = torch.Generator().manual_seed(rows + groups)
    scales = 0.02 * (0.2 + torch.rand(rows, groups, 1, generator=generator))
    scales[..., ::2] *= -1
    scales = getattr(case, "scales", lambda s: s)(scales).half()
    numbers = torch.randint(-127, 128, (rows, groups, 32), generator=generator)
    numbers = getattr(case, "numbers", lambda n: n)(numbers).to(torch.int8)
    weights = torch.cat([scales.view(torch.uint8), numbers.view(torch.uint8)], dim=2)
    x, out = torch.randn(32 * groups, generator=generator), poisoned(rows)
    traffic = native.run(see, path, "q8_0_product", weights, x, out, rows, 32 * groups, threads)
    want = (scales.double() * numbers.double()).flatten(1) @ x.double()
    close = {"rtol": 1e-4, "atol": 1e-4 * float(want.abs().max())}
    see.close("out", out, want.float(), unwritten(out, WHOLE), **close)
    if case.costs:
        found, most = traffic["weights"], rows * groups
        see.at_most("bytes loaded of weights", found.loaded, most * (32 + 8 * 2), ONCE)
        see.at_most("loads of weights", found.loads, most * (8 + 8), VECTORS)
