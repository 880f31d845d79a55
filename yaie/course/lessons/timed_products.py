"""Times of calls on this CPU whose results are compared with float64 first."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from yaie.bench.protocol import CpuClock, relative_error, running_order

Record = dict[str, Any]


def checked(name: str, call: Callable[[], object], out: torch.Tensor, want: torch.Tensor) -> float:
    """The relative error of what a call writes to `out`."""
    call()
    error = relative_error(out, want)
    if not error < 1e-4:
        raise RuntimeError(f"{name}: relative error {error:.1e}, so it was not timed")
    return error


def timed(
    calls: Mapping[str, Callable[[], object]], rows: Mapping[str, Record], rounds: int
) -> list[Record]:
    """The rows with `ms` of their call, and `gb_s` for their `bytes`."""
    took = fastest(calls, rounds)
    return [
        {**row, "ms": took[key], "gb_s": row["bytes"] / took[key] / 1e6}
        for key, row in rows.items()
    ]


def compared(
    calls: Mapping[str, Callable[[], object]],
    out: torch.Tensor,
    want: torch.Tensor,
    nbytes: int,
    rounds: int,
) -> list[Record]:
    """A row for each of several ways to write `want` to `out`, for which `nbytes` must move."""
    rows = {}
    for name, call in calls.items():
        out.fill_(torch.nan)
        error = checked(name, call, out, want)
        rows[name] = {"name": name, "bytes": nbytes, "error": error}
    return timed(calls, rows, rounds)


def fastest(calls: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Milliseconds of the fastest call, of three in each round."""
    clock, took = CpuClock(), dict.fromkeys(calls, math.inf)
    for name in running_order(list(calls), rounds):
        took[name] = min(took[name], *clock.times(calls[name], 3))
    return took
