"""12.1: the tiles that `matmul_kernel` stores, its steps along k, and the product."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import torch

from yaie.course import viz
from yaie.course.core.observe import Case, Observer
from yaie.course.core.triton import Access, InterpreterBuilder, Trace, can_watch, launch, see_strays
from yaie.course.exercises.nb11.tensors import poisoned, randn, see_stored_once, spaced
from yaie.course.lessons.tile_order import grouped

BLOCK = 16  # of all three axes, unless a case says otherwise


def cases() -> Iterator[Case]:
    yield product(48, 32, 32)
    yield product(32, 32, 40)  # a tail of k
    yield product(40, 24, 32)  # tiles that reach past the edge
    yield product(1, 1, 1)
    yield product(7, 50, 33)
    yield product(65, 33, 17, blocks=(32, 16, 16), group=2)
    yield product(30, 70, 50, blocks=(16, 32, 64), group=8)
    yield product(16, 16, 2048, group=1, dtype="float16")


def product(
    m: int,
    n: int,
    k: int,
    blocks: tuple[int, int, int] = (BLOCK,) * 3,
    group: int = 2,
    dtype: str = "float32",
) -> Case:
    kind = "" if dtype == "float32" else f" in {dtype}"
    tile = " × ".join(map(str, blocks))
    name = f"a product with m, n, k = {m}, {n}, {k:,}{kind}, blocks {tile}, GROUP = {group}"
    return Case(name, sizes=(m, n, k), blocks=blocks, group=group, dtype=dtype)


def observe(kernel: Any, case: Case, see: Observer) -> None:
    a, b, c = inputs(case)
    with see.call("the launch"), precisions() as used:
        trace = multiply(kernel, a, b, c, case.blocks, case.group)
    want = (a.double() @ b.double()).to(c.dtype)
    rtol, atol = (1e-4, 1e-4) if case.dtype == "float32" else (1e-3, 0.0)
    see_tiles(see, trace, case)
    if trace.strays or not bool(c.double().isclose(want.double(), rtol, atol).all()):
        see_steps(see, trace, case)  # another order of steps may be right, too
    see_strays(see, trace, lambda access: beyond(access, *case.sizes))
    why = f"Each element is the sum of {case.sizes[2]:,} products, a row of a with a column of b."
    if case.dtype == "float16":
        why += (
            " Numbers of the size of 512 are 0.5 apart in float16: sum in float32, and round "
            "once, at the store."
        )
    see.close("c", c, want, why, rtol=rtol, atol=atol)
    see_stored_once(see, trace, "c")
    why = "On a GPU tl.dot rounds float32 inputs to TF32, unless it is told otherwise."
    see.equal("the input_precision of tl.dot", sorted(used), ["IEEE"], why)


@contextmanager
def precisions() -> Iterator[set[str]]:
    """Record the input precisions of the `tl.dot` inside, of which the interpreter has only one."""
    used: set[str] = set()
    if not can_watch():
        yield used
        return
    plain = InterpreterBuilder.create_dot

    def recorded(builder: Any, a: Any, b: Any, total: Any, precision: Any, *more: Any) -> Any:
        used.add(getattr(precision, "name", str(precision)))
        return plain(builder, a, b, total, precision, *more)

    with patch.object(InterpreterBuilder, "create_dot", recorded):
        yield used


def inputs(case: Case) -> tuple[Any, Any, Any]:
    """a, b and an output. In float16 they are positive, so that the sum becomes large."""
    m, n, k = case.sizes
    if case.dtype == "float32":
        return randn(m, k, seed=1), randn(k, n, seed=2), poisoned(m, n)
    generator = torch.Generator().manual_seed(3)
    a, b = (torch.rand(shape, generator=generator).half() for shape in ((m, k), (k, n)))
    return spaced(a), spaced(b), poisoned(m, n, dtype=torch.float16)


def multiply(
    kernel: Any, a: Any, b: Any, c: Any, blocks: tuple[int, int, int], group: int
) -> Trace:
    (m, k), n = a.shape, b.shape[1]
    programs = -(-m // blocks[0]) * -(-n // blocks[1])
    arguments = {"a": a, "b": b, "c": c, "m": m, "n": n, "k": k}
    named = dict(zip(("BLOCK_M", "BLOCK_N", "BLOCK_K"), blocks, strict=True))
    return launch(kernel, (programs,), arguments, **named, GROUP=group, PRECISION="ieee")


def see_tiles(see: Observer, trace: Trace, case: Case) -> None:
    """Each program stores the tile that `grouped_tile` gives it."""
    (m, n, _), blocks = case.sizes, case.blocks
    order = grouped(-(-m // blocks[0]), -(-n // blocks[1]), case.group)
    want = [(tile_m * blocks[0], tile_n * blocks[1]) for tile_m, tile_n in order]
    firsts = {x.program[0]: int(x.elements.ravel()[0]) for x in trace.of("c", "store")}
    got = [divmod(firsts[p], n) if p in firsts else None for p in range(len(want))]
    wrong = [p for p, begin in enumerate(got) if begin != want[p]]
    problem = why = ""
    if wrong:
        p = wrong[0]
        problem = f"of c that program {p} stores {begins(got[p])}, expected {begins(want[p])}"
        why = f"`grouped_tile` gives it tile number {order[p][0]} of the rows and {order[p][1]} of "
        why += "the columns."
    see.note("the tile", got, problem, why)


def begins(first: tuple[int, int] | None) -> str:
    return f"begins at row {first[0]}, column {first[1]}" if first else "does not exist"


def see_steps(see: Observer, trace: Trace, case: Case) -> None:
    """From row to row, and from one iteration to the next, addresses grow as they have to."""
    (m, n, k), block_k = case.sizes, case.blocks[2]
    for name, width, letter in (("a", k, "k"), ("b", n, "n"), ("c", n, "n")):
        steps = set()
        for access in trace.of(name):
            if min(m, n, k) > 1 and access.elements.ndim == 2:
                (first, *_), (below, *_) = access.elements[:2]
                steps |= {int(below - first)} if below > first else set()
        problem = f"is {min(steps - {width})} elements on" if steps - {width} else ""
        why = f"A row of {name} has {letter} = {width} elements."
        see.note(f"in {name}, the row below", sorted(steps), problem, why)
    for name, step, words in (("a", block_k, "columns"), ("b", block_k * n, "rows")):
        loads = [x.elements.ravel()[0] for x in trace.of(name, "load") if not any(x.program)]
        steps = {int(now - before) for before, now in pairwise(loads)}
        wrong = sorted(steps - {step}) if k > block_k else []
        problem = f"is {wrong[0]} elements on" if wrong else ""
        why = f"The next BLOCK_K {words} of {name} begin {step} elements on."
        what = f"in {name}, what program 0 loads in the next iteration"
        see.note(what, sorted(steps), problem, why)


def beyond(access: Access, m: int, n: int, k: int) -> str:
    if access.kind == "store":
        return "Tiles at the edge reach past c: the store needs a mask, rows < m and columns < n."
    along = access.elements.shape[-1 if access.name == "a" else 0]
    if k % along and access.stray.sum() < along * BLOCK:
        return (
            f"{k} is not a multiple of BLOCK_K = {along}: in the last iteration only k - start "
            "steps of the tile exist. Mask the others, in a and in b, as 0, so that their products "
            "are 0."
        )
    which = "rows beyond m" if access.name == "a" else "columns beyond n"
    return (
        f"Tiles at the edge reach past {access.name}: {which} do not exist. Mask them, or let "
        "them wrap around with %, since what they give is not stored."
    )


def draw(kernel: Any) -> Any:
    """Some steps of the programs of a small product."""
    from yaie.course.viz.tile_order import draw_product, record_product

    case = product(40, 56, 40)
    trace = multiply(kernel, *inputs(case), case.blocks, case.group)
    steps = record_product(trace, 40, 56, 40)
    titles = [f"step {number}" for number in range(len(steps))]
    return viz.film_strip(steps, draw_product, titles, frames=[0, 2, len(steps) // 2])
