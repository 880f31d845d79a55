"""The check of the vector addition: every element once, and nothing past the end."""

from __future__ import annotations

from typing import Any

from yaie.course.checks.nb10.common import poisoned, randn, read_once, written_once
from yaie.course.expect import CheckFailed, equal, fail, given

SIZES = [(100, 32), (1, 8), (31, 32), (32, 32), (33, 32), (1000, 64), (1823, 256), (100_003, 2048)]


def check_add(kernel: Any) -> None:
    import torch

    for size, block in SIZES:
        add_once(kernel, size, block)
    add_once(kernel, 1000, 128, dtype=torch.float16)
    add_once(kernel, 20, 8, programs=5)  # two programs too many, which do nothing


def add_once(
    kernel: Any, size: int, block: int, programs: int | None = None, dtype: Any = None
) -> Any:
    """Launch it with a program for each block; returns what its programs did."""
    from yaie.course.triton import launch

    x, y = randn(size, seed=1, dtype=dtype), randn(size, seed=2, dtype=dtype)
    out = poisoned(size, dtype=dtype)
    programs = programs or -(-size // block)
    kind = "" if dtype is None else f" of {str(dtype).removeprefix('torch.')}"
    call = f"size = {size:,}{kind}, BLOCK = {block:,}, a grid of {programs:,}"
    arguments = {"x": x, "y": y, "out": out, "size": size}
    with given(call):
        try:
            trace = launch(kernel, (programs,), arguments, told_bound, BLOCK=block)
            compare(out, x, y, block)
            written_once(trace, "out")
        except CheckFailed as failed:
            failed.picture = lambda: draw_written(out, x + y, call)
            raise
        for name in ("x", "y"):
            read_once(trace, name, x.nbytes, "A program needs the elements of its own block.")
    return trace


def told_bound(access: Any) -> str:
    beyond = access.elements[access.stray]
    if beyond.min() < 0:
        return "The offsets are negative. Program p begins at element p × BLOCK."
    if beyond.size == 1 and beyond[0] == access.num_elements and access.mask.sum() > 1:
        return (
            f"The last element is [{access.num_elements - 1}]: a mask of `offsets <= size` lets "
            "one lane too many in."
        )
    where = "tl.load" if access.kind == "load" else "tl.store"
    return (
        "Blocks are all of one size, and the last one sticks out. Nothing crashed here, and "
        f"nothing need crash on a GPU: it is somebody else's memory. Give {where} a mask that is "
        "true for the lanes whose element exists."
    )


def compare(out: Any, x: Any, y: Any, block: int) -> None:
    want = x + y
    missing = out.isnan()
    because = "out is the sum of x and y."
    if missing.all():
        because = "It was NaN before the launch: no program has stored anything there."
    elif missing.any():
        first = int(missing.nonzero()[0])
        because = f"From element {first:,} on there is an element that no program has stored."
        if first == block and missing[first:].all():
            because = (
                f"Only the first {block} elements were stored, by every program: the offsets do "
                "not depend on `tl.program_id(0)`."
            )
        elif first < block + len(x) // block + 1:
            because = (
                "Programs overlap: program p has the elements from p × BLOCK on, so before it lie "
                "p whole blocks."
            )
    equal(
        out,
        want,
        "out",
        because=because,
        mistakes=[(x - y, "That is the difference."), (x * y, "That is the product.")],
    )
    if out.dtype != want.dtype:
        fail(f"out has dtype {out.dtype}, expected {want.dtype}")


def draw_written(out: Any, want: Any, title: str) -> Any:
    from yaie.viz.grid import draw_written

    return draw_written(out, want, title)


def draw_add(kernel: Any) -> Any:
    """The programs of a small launch on their tensor."""
    from yaie.viz.programs import draw_programs, programs_of

    return draw_programs(programs_of(add_once(kernel, 100, 32), "out", "store"))
