"""11.1: what the programs of `add_kernel` load and store."""

from collections.abc import Iterator
from typing import Any

import torch

from yaie.course import viz
from yaie.course.core.observe import Case, Observer
from yaie.course.core.triton import Access, Trace, launch, run
from yaie.course.exercises.nb11.tensors import poisoned, randn, see_loaded, see_stored_once

SIZES = [(100, 32), (1, 8), (31, 32), (32, 32), (33, 32), (1000, 64), (1823, 256), (100_003, 2048)]


def cases() -> Iterator[Case]:
    for size, block in SIZES:
        yield launched(size, block)
    yield launched(1000, 128, dtype="float16")
    yield launched(20, 8, programs=5)  # two programs too many, which do nothing


def launched(size: int, block: int, programs: int = 0, dtype: str = "float32") -> Case:
    programs = programs or -(-size // block)
    kind = "" if dtype == "float32" else f" of {dtype}"
    name = f"size = {size:,}{kind}, BLOCK = {block:,}, a grid of {programs:,}"
    return Case(name, size=size, block=block, programs=programs, dtype=dtype)


def observe(kernel: Any, case: Case, see: Observer) -> None:
    dtype = getattr(torch, case.dtype)
    x, y = randn(case.size, seed=1, dtype=dtype), randn(case.size, seed=2, dtype=dtype)
    out, want = poisoned(case.size, dtype=dtype), x + y
    see.picture(lambda: viz.draw_written(out, want, str(case)))
    arguments = {"x": x, "y": y, "out": out, "size": case.size}
    with see.call("the launch"):
        trace = run(see, kernel, (case.programs,), arguments, beyond, BLOCK=case.block)
    see.equal("out", out, want, missing(out, case.block, trace) or "out is the sum of x and y.")
    see_stored_once(see, trace, "out")
    see_own_blocks(see, trace, case.block)
    for name in ("x", "y"):
        why = "A program needs the elements of its own block only."
        see_loaded(see, trace, name, x.nbytes, why)


def see_own_blocks(see: Observer, trace: Trace, block: int) -> None:
    """Note the first element that a program stores outside of its own block."""
    problem, strayed = "", -1
    for access in trace.of("out", "store"):
        taken = access.elements[access.mask]
        others = taken[taken // block != access.program[0]]
        if others.size and not problem:
            strayed = int(others.ravel()[0])
            problem = f"has out[{strayed:,}] from program {access.program[0]}"
    why = (
        f"Program p computes the {block} elements from p × {block} on. They are neighbors, "
        "so a GPU loads and stores them together."
    )
    see.note("what is stored", strayed, problem, why)


def beyond(access: Access) -> str:
    where = "tl.load" if access.kind == "load" else "tl.store"
    return (
        "All blocks have the same size, and the last one reaches past the end. Nothing crashed "
        "here, nor need anything crash on a GPU: the memory belongs to another tensor. Give "
        f"{where} a mask that is true for the lanes whose element exists."
    )


def missing(out: Any, block: int, trace: Trace) -> str:
    """What the program did that should have stored the first element that is missing."""
    if not bool(out.isnan().any()):
        return ""
    element = int(out.isnan().nonzero()[0])
    number = element // block
    first = number * block
    should = f"Program {number} should store the elements from {first} to {first + block - 1}"
    stores = [access for access in trace.of("out", "store") if access.program[0] == number]
    if not stores:
        return f"{should}, and it stores nothing."
    lanes, taken = stores[0].elements.ravel(), int(stores[0].mask.sum())
    return f"{should}. Its {lanes.size} lanes begin at {lanes[0]:,}, and {taken} take part."


def draw(kernel: Any) -> Any:
    """The programs of a small launch on their tensor."""
    x, y, out = randn(100, seed=1), randn(100, seed=2), poisoned(100)
    arguments = {"x": x, "y": y, "out": out, "size": 100}
    trace = launch(kernel, (4,), arguments, BLOCK=32)
    return viz.draw_programs(viz.programs_of(trace, "out", "store"))
