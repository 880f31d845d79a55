"""26.1: the mask of a tile and its weights as an operand, in the first rung for Hopper."""

import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from yaie.course.core.cuda import KernelCase, in_every_order
from yaie.course.core.cuda_text import first_error
from yaie.course.core.observe import Found, Observer
from yaie.course.exercises.nb18.attention import Problem, see_attention
from yaie.course.lessons.data_nb26 import with_kernel
from yaie.emulator import CompileError

NAME = "flash_tma"
SMALL = (
    Problem(((1, 1),), suffix="f16"),
    Problem(((3, 16),), suffix="f16"),
    Problem(((20, 40),), dim=16, suffix="f16"),
    Problem(((64, 64),), dim=16, causal=True, suffix="f16"),
)
OTHERS = (
    Problem(((70, 130),), dim=64, causal=True, suffix="f16"),
    Problem(((3, 300),), dim=24, suffix="f16"),
    Problem(((10, 5),), dim=16, causal=True, suffix="f16"),
    Problem(((5, 33), (0, 3), (34, 40)), heads=2, dim=40, causal=True, suffix="f16"),
    Problem(((20, 90),), dim=136, causal=True, suffix="f16"),
)

BECAUSE = (
    "scores[i] is in row half i / 2 % 2 and in column i / 4 * 8 + lane % 4 * 2 + i % 2 of the "
    "tile. Two neighbors become one register, in the same order."
)
EXPLAIN = {"uninitialized": "pack gives each of the KEYS / 16 × 4 registers a value."}


def cases() -> Iterator[KernelCase]:
    planned = [KernelCase(str(p), problem=p) for p in (*SMALL, *OTHERS)]
    yield from in_every_order(*planned, orders=("forward",))
    yield from in_every_order(*planned[2:4], orders=("reverse", "random"))


def observe(path: Path, case: KernelCase, see: Observer) -> None:
    whole = Path(_home().name, path.name)  # the same for all cases: it is compiled once
    whole.write_text(with_kernel(path), encoding="utf-8")
    try:
        see_attention(see, whole, NAME, case, EXPLAIN, BECAUSE)
    except CompileError as error:
        said = first_error(str(error).replace(str(whole), path.name))
        see.found(Found("compiler"), "it does not compile", said)


@cache
def _home() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory()  # as long as the process
