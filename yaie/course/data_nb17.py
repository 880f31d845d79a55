"""What notebook 17 counts and shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from yaie.course.paths import ROOT

KEPT = ROOT / "notebooks" / "data" / "17_flash_h200.json"


def tiles_brought(path: Path, tiles: int = 4) -> tuple[list[tuple[int, int, int]], int, int]:
    """How many tiles of keys a `shared_tile.cu` brings for each tile of causal queries.

    Each tile of queries is launched alone, with the keys up to its last query's own, and the rows
    of k that are asked for are counted.

    Returns:
        For each tile of queries its first row, how many tiles of keys all of its rows see whole,
        and how many were brought; then how many queries and keys there are.
    """
    from yaie.course.checks.nb14.common import report_of
    from yaie.course.checks.nb17.common import Problem, arguments, requests
    from yaie.course.checks.nb17.tile import HEIGHT, KEYS, NAME

    size = tiles * HEIGHT
    rows = []
    for number in range(tiles):
        end = (number + 1) * HEIGHT
        given_arguments, _ = arguments(Problem(((HEIGHT, end),), dim=32, causal=True))
        brought = requests(report_of(path, f"{NAME}_f32", *given_arguments), "k")
        rows.append((number * HEIGHT, (number * HEIGHT + 1) // KEYS, -(-brought // KEYS)))
    return rows, size, size


def kept(path: Path = KEPT) -> dict[str, Any] | None:
    """The kept figures of the rungs; None if there are none yet."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
