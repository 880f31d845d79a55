"""The check of the vector addition: every element once, and nothing past the end."""

from __future__ import annotations

from typing import Any

from yaie.course.checks.nb10.common import poisoned, randn, read_once, written_once
from yaie.course.core.expect import CheckFailed, equal, fail, given

SIZES = [(100, 32), (1, 8), (31, 32), (32, 32), (33, 32), (1000, 64), (1823, 256), (100_003, 2048)]

POINTERS = (
    "Pointers are addresses: `x_ptr + offsets` is a block of them, `tl.load(...)` the numbers that "
    "lie there, `tl.store(pointers, values)` puts numbers there."
)


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
    from yaie.course.core.triton import launch

    x, y = randn(size, seed=1, dtype=dtype), randn(size, seed=2, dtype=dtype)
    out = poisoned(size, dtype=dtype)
    programs = programs or -(-size // block)
    kind = "" if dtype is None else f" of {str(dtype).removeprefix('torch.')}"
    call = f"size = {size:,}{kind}, BLOCK = {block:,}, a grid of {programs:,}"
    arguments = {"x": x, "y": y, "out": out, "size": size}
    with given(call, errors={TypeError: POINTERS}):
        try:
            trace = launch(kernel, (programs,), arguments, told_bound, BLOCK=block)
            compare(out, x, y, block, trace)
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


def compare(out: Any, x: Any, y: Any, block: int, trace: Any) -> None:
    want = x + y
    missing = out.isnan()
    because = "out is the sum of x and y."
    if missing.all():
        because = "It was NaN before the launch: no program has stored anything there."
    elif missing.any():
        because = told_missing(int(missing.nonzero()[0]), block, trace)
    equal(
        out,
        want,
        "out",
        because=because,
        mistakes=[(x - y, "That is the difference."), (x * y, "That is the product.")],
    )
    if out.dtype != want.dtype:
        fail(f"out has dtype {out.dtype}, expected {want.dtype}")


def told_missing(element: int, block: int, trace: Any) -> str:
    """What the program did that should have stored an element."""
    program = element // block
    first = program * block
    should = f"Program {program} should have the elements from {first} to {first + block - 1}"
    stores = {access.program[0]: access for access in trace.of("out", "store")}
    if program not in stores:
        return f"{should}, and it stores nothing."
    lanes = stores[program].elements.ravel()
    if program and 0 in stores and (lanes == stores[0].elements.ravel()).all():
        return (
            f"{should}, but has those of program 0: the offsets do not depend on "
            "`tl.program_id(0)`."
        )
    has = f"the elements from {lanes[0]:,} to {lanes[-1]:,}" if lanes.size > 1 else f"{lanes[0]:,}"
    if lanes[0] != first:
        return f"{should}, but has {has}. Before it lie whole blocks: {program} × {block} elements."
    taken = int(stores[program].mask.sum())
    if lanes.size < block:
        return f"{should}, but has {has}. A program has a block, `tl.arange(0, BLOCK)`."
    return f"{should}, but its mask lets only {taken} of {block} lanes take part."


def draw_written(out: Any, want: Any, title: str) -> Any:
    from yaie.course.viz.grid import draw_written

    return draw_written(out, want, title)


def draw_add(kernel: Any) -> Any:
    """The programs of a small launch on their tensor."""
    from yaie.course.viz.programs import draw_programs, programs_of

    return draw_programs(programs_of(add_once(kernel, 100, 32), "out", "store"))
