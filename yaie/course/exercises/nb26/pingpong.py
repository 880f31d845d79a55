"""What 26.2 runs: the last rung, and what its consumers do in which order."""

from __future__ import annotations

from pathlib import Path

from yaie.course.core import cuda
from yaie.course.core.cuda import KernelCase
from yaie.course.core.observe import Found, Observer
from yaie.course.exercises.nb18.attention import Problem, see_attention
from yaie.course.lessons.data_nb26 import Event, events
from yaie.emulator import KernelError

NAME = "flash_pingpong"
TILES = 3  # of keys, where consumers are followed


def see_pingpong(
    see: Observer, path: Path, case: KernelCase, explain: cuda.Explain, because: str
) -> None:
    """Launch the last rung, checked."""
    see_attention(see, path, NAME, case, explain, because)


def followed(see: Observer, path: Path, case: KernelCase, explain: cuda.Explain) -> list[Event]:
    """What the consumers do; an error ends the case."""
    try:
        return events(path, TILES, case.head_dim, case.how["order"])
    except KernelError as error:
        told = {**cuda.EXPLAIN, **explain}
        kind = next((k for k in told if k.replace("_", " ") in str(error)), "error")
        see.found(Found(kind), str(error), told.get(kind, ""))
        return []


def batches(*problems: Problem) -> list[KernelCase]:
    return [KernelCase(str(problem), problem=problem, head_dim=None) for problem in problems]


def traced(head_dim: int, consumers: int) -> KernelCase:
    words = f"{consumers} consumers (head_dim {head_dim}), {TILES} tiles of keys"
    return KernelCase(words, problem=None, head_dim=head_dim, consumers=consumers)
