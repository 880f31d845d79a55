"""A step of a ladder: see `yaie.course.lessons.ladders`."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from yaie.bench.cases import Case, Prepare
from yaie.ops.cuda.flash import Sequences

BF16, F32 = torch.bfloat16, torch.float32


@dataclass(frozen=True)
class Step:
    """A case of a ladder.

    Attributes:
        place: where its rows stand in the record.
        about: what stands beside its rows; None if they stand there alone.
        against: name of a ratio -> the libraries of which the fastest counts.
        rounds: of alternating order.
        graphs: calls in a CUDA graph.
        in_a_row: whether calls are timed back to back, in microseconds.
    """

    case: Case
    place: tuple[str, str]
    dtype: torch.dtype = BF16
    about: dict[str, Any] | None = field(default_factory=dict)
    against: dict[str, tuple[str, ...]] = field(default_factory=dict)
    rounds: int = 4
    graphs: int = 1
    in_a_row: bool = False


def wrapped(function: Callable[..., object]) -> Prepare:
    """A function of a case's arguments as a `Prepare`."""
    return lambda *arguments: lambda: function(*arguments)


def ragged(functions: dict[str, Callable[..., object]]) -> dict[str, Prepare]:
    """Rungs of flash attention as a case of `prefill` calls them."""

    def rung(function: Callable[..., object]) -> Prepare:
        return wrapped(
            lambda q, k, v, starts_q, starts_k, causal, scale: function(
                q, k, v, causal, scale, Sequences(starts_q, starts_k)
            )
        )

    return {name: rung(function) for name, function in functions.items()}
