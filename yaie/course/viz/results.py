"""Recorded measurements of kernels and builds, as rows of bars or shades."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from yaie.course.viz import style
from yaie.course.viz.page import Page, Place

# ---------------------------------------------------------------------------------- ladder

MARGIN = 0.14
LEFT, BARS, RIGHT = 3.0, 4.4, 2.0
ROW = 0.28


@dataclass(frozen=True)
class Rung:
    """One kernel.

    Attributes:
        name: what it is called.
        share: of the ceiling that it reaches.
        figure: what is written beside the bar, such as "456 TFLOP/s".
        ours: whether it is one of the course's kernels; the others are gray.
    """

    name: str
    share: float
    figure: str
    ours: bool = True


def draw_ladder(
    rungs: Sequence[Rung], ceiling: str, title: str = "", at: Place | None = None
) -> Figure:
    """Draw a bar for each rung, from the first to the last, against a ceiling of 1."""
    if not rungs:
        raise ValueError("rungs must have at least one, got none")
    full = max(1.0, *(rung.share for rung in rungs))
    page = Page(LEFT + BARS + RIGHT, 0.5 + ROW * len(rungs) + MARGIN, at)
    page.put(MARGIN, 0.2, title, style.SMALL, weight="bold")
    edge = LEFT + BARS / full
    page.note(edge, 0.36, ceiling, "center")
    page.plot([edge] * 2, [0.44, page.height - 0.08], color=style.FAINT, lw=0.8, zorder=0)
    for i, rung in enumerate(rungs):
        y = 0.5 + i * ROW
        middle = y + (ROW - 0.07) / 2
        color = style.BLUE if rung.ours else style.FAINT
        width = max(BARS * rung.share / full, 0.012)
        page.rect(LEFT, y, width, ROW - 0.07, color)
        name = style.shorten(rung.name, LEFT - 0.2, style.SMALL)
        page.put(LEFT - 0.1, middle, name, style.SMALL, ha="right")
        words = (
            f"{rung.figure}, {rung.share:.1%}"
            if rung.share < 0.1
            else (f"{rung.figure}, {rung.share:.0%}")
        )
        page.put(LEFT + max(width, BARS / full) + 0.1, middle, words, style.SMALL)
    each = (f"{rung.name} {rung.share:.1%} ({rung.figure.strip()})" for rung in rungs)
    page.say(f"{title}, shares of {ceiling}: {style.some(each, 12)}")
    return page.figure


# ---------------------------------------------------------------------------------- bench

BENCH_MARGIN = 0.12
BENCH_LEFT = 2.4  # inches, where the bars begin
BENCH_BARS = 5.0  # inches for the whole ceiling
BENCH_ROW, HEAD = 0.24, 0.3


def draw_bench(
    record: Mapping[str, Any], operators: Sequence[str], at: Place | None = None
) -> Figure:
    """Draw a bar for each way to compute some operators; the engine's own are blue.

    Args:
        record: the content of a file that `yaie bench kernels --output FILE` wrote.
        operators: which, in this order. Ways without a time are left out.
    """
    chosen = [r for name in operators for r in record["results"] if r["operator"] == name]
    cases: dict[str, list[Mapping[str, Any]]] = {}
    for row in chosen:
        if row.get("ms") is not None:
            cases.setdefault(f"{row['operator']}, {row['shape']}, {row['dtype']}", []).append(row)
    if not cases:
        raise ValueError(f"record must have times of {' or '.join(operators)}, got none")
    height = 0.42 + sum(HEAD + BENCH_ROW * len(ways) for ways in cases.values()) + 0.1
    page = Page(9.2, height, at)
    gpu = record["machine"].get("gpu") or record["machine"]["processor"]
    words = f"{gpu}, {record['date']}, torch {record['versions']['torch']}"
    page.put(BENCH_MARGIN, 0.17, words, weight="bold")
    page.note(BENCH_LEFT + BENCH_BARS, 0.17, "the ceiling", "center")
    page.plot(
        [BENCH_LEFT + BENCH_BARS] * 2, [0.3, height - 0.08], color=style.FAINT, lw=0.8, zorder=0
    )
    y = 0.36
    for title, ways in cases.items():
        page.put(BENCH_MARGIN, y + 0.17, title, style.SMALL, weight="bold")
        y += HEAD
        for row in ways:
            color = style.BLUE if row["ours"] else style.FAINT
            page.rect(BENCH_LEFT, y, BENCH_BARS * row["fraction"], BENCH_ROW - 0.06, color)
            middle = y + (BENCH_ROW - 0.06) / 2
            page.put(BENCH_LEFT - 0.1, middle, row["who"], style.SMALL, ha="right")
            words = f"{row['ms']:#.3g} ms, {row['fraction']:.0%}"
            page.put(BENCH_LEFT + 1.08 * BENCH_BARS, middle, words, style.SMALL)
            y += BENCH_ROW
    page.say(f"The share of the ceiling that each way reaches on {gpu}, {record['date']}")
    for title, ways in cases.items():
        best = {row["ours"]: row for row in sorted(ways, key=lambda row: row["fraction"])}
        said = (
            f"of {'ours' if ours else 'others'} {best[ours]['who']} {best[ours]['fraction']:.0%} "
            f"({best[ours]['ms']:#.3g} ms)"
            for ours in (True, False)
            if ours in best
        )
        page.say(f"{title}: best {style.some(said)}")
    return page.figure


# ---------------------------------------------------------------------------------- builds

BUILDS_LEFT, BUILDS_BARS, BUILDS_RIGHT = 4.0, 3.8, 2.0
BUILDS_ROW, BUILDS_HEAD = 0.3, 0.62


@dataclass(frozen=True)
class Build:
    """One way.

    Attributes:
        way: what it is called.
        seconds: that it takes.
        size: bytes of what was built; None if that is no file.
        ours: whether the course builds so; the others are gray.
    """

    way: str
    seconds: float
    size: int | None = None
    ours: bool = False


def draw_builds(builds: Sequence[Build], title: str = "", at: Place | None = None) -> Figure:
    """Draw a bar for each way on a logarithmic scale of seconds."""
    if not builds:
        raise ValueError("builds must have at least one, got none")
    seconds = [build.seconds for build in builds]
    low, high = math.floor(math.log10(min(seconds))), math.ceil(math.log10(max(seconds)))
    page = Page(
        BUILDS_LEFT + BUILDS_BARS + BUILDS_RIGHT,
        BUILDS_HEAD + BUILDS_ROW * len(builds) + MARGIN,
        at,
    )
    page.put(MARGIN, 0.2, title, style.SMALL, weight="bold")

    def place(value: float) -> float:
        return BUILDS_LEFT + BUILDS_BARS * (math.log10(value) - low) / max(high - low, 1)

    for power in range(low, high + 1):
        x = place(10.0**power)
        page.plot(
            [x, x], [BUILDS_HEAD - 0.06, page.height - 0.1], color=style.WASH, lw=0.9, zorder=0
        )
        page.note(x, BUILDS_HEAD - 0.17, f"{10.0**power:g} s", "center")
    for i, build in enumerate(builds):
        y = BUILDS_HEAD + i * BUILDS_ROW
        middle = y + (BUILDS_ROW - 0.08) / 2
        color = style.BLUE if build.ours else style.FAINT
        width = max(place(build.seconds) - BUILDS_LEFT, 0.02)
        page.rect(BUILDS_LEFT, y, width, BUILDS_ROW - 0.08, color)
        name = style.shorten(build.way, BUILDS_LEFT - 0.3, style.SMALL)
        page.put(BUILDS_LEFT - 0.1, middle, name, style.SMALL, ha="right")
        size = "" if build.size is None else f", {build.size / 1000:,.0f} kB"
        words = f"{build.seconds:.3g} s{size}"
        page.put(BUILDS_LEFT + width + 0.1, middle, words, style.SMALL)
    page.say(f"{title}, seconds of each way to build")
    each = (
        f"{build.way} {build.seconds:.3g} s"
        + ("" if build.size is None else f" ({build.size / 1000:,.0f} kB)")
        for build in builds
    )
    page.say(style.some(each, 12))
    return page.figure


# ---------------------------------------------------------------------------------- backends

BACKENDS_MARGIN = 0.12
BACKENDS_LEFT = 2.1  # inches for the operators' names
BACKENDS_ROW, COLUMN = 0.27, 1.9
BACKENDS_HEAD = 0.34


def draw_backends(table: Sequence, only: Sequence[str] = (), at: Place | None = None) -> Figure:
    """Draw a row for each operator and a column for each back end of `yaie.kernel_info()`.

    Full color: asked first; pale: could compute it; white: cannot here, and why not. Nothing: the
    operator has no such back end.

    Args:
        table: entries with `operator`, `backend`, `how`, `available` and `chosen`.
        only: the operators to draw, in this order; all if empty.
    """
    operators = list(only) or list(dict.fromkeys(entry.operator for entry in table))
    entries = [entry for entry in table if entry.operator in operators]
    if not entries:
        raise ValueError(f"only must name operators of the table, got {list(only)}")
    columns = list(dict.fromkeys(entry.backend for entry in entries))
    width = BACKENDS_LEFT + len(columns) * COLUMN + BACKENDS_MARGIN
    page = Page(width, BACKENDS_HEAD + len(operators) * BACKENDS_ROW + 0.12, at)
    for i, name in enumerate(columns):
        x = BACKENDS_LEFT + (i + 0.5) * COLUMN
        page.put(x, BACKENDS_HEAD / 2, name, ha="center", weight="bold")
    for row, name in enumerate(operators):
        y = BACKENDS_HEAD + (row + 0.5) * BACKENDS_ROW
        page.put(BACKENDS_LEFT - 0.12, y, name, ha="right")
    for entry in entries:
        _cell(page, operators.index(entry.operator), columns.index(entry.backend), entry)
    page.say(f"A table of {style.count(len(operators), 'operator')} and who can compute them here")
    for name in columns:
        own = [entry for entry in entries if entry.backend == name]
        first = [entry.operator for entry in own if entry.chosen]
        more = sum(entry.available and not entry.chosen for entry in own)
        cannot = sum(not entry.available for entry in own)
        page.say(
            f"{name} is asked first for {style.some(first, 4) or 'none'}, could compute {more} "
            f"more, and cannot compute {cannot}"
        )
    return page.figure


def _cell(page: Page, row: int, column: int, entry) -> None:
    x, y = BACKENDS_LEFT + column * COLUMN, BACKENDS_HEAD + row * BACKENDS_ROW
    surface = style.PAPER
    if entry.available:
        surface = style.tint(style.BLUE, 0.5 if entry.chosen else 0.12)
    edge = style.BLUE if entry.chosen else style.FAINT
    words = style.shorten(entry.how, COLUMN - 0.16, style.SMALL)
    color = style.INK if entry.available else style.MUTED
    corner = x, y + 0.02
    page.cell(
        *corner, COLUMN - 0.06, BACKENDS_ROW - 0.04, words, surface, edge, 0.8, 0.03, color=color
    )


# ---------------------------------------------------------------------------------- profile

PROFILE_MARGIN, PROFILE_LEFT = 0.14, 2.2
PROFILE_ROW, PROFILE_HEAD = 0.3, 0.66
WORDS = 1.9  # inches of what is said at the end of a row


def draw_profile(
    rows: Mapping[str, Mapping[str, float]],
    columns: Mapping[str, str],
    said: Sequence[str] = (),
    apart: Sequence[str] = (),
    title: str = "",
    at: Place | None = None,
) -> Figure:
    """Draw a row for each kernel and a column for each part, in percent of what it can do.

    Args:
        rows: kernel -> key -> percent.
        columns: key -> heading.
        said: for each row, what is concluded.
        apart: keys of columns that are no part of a GPU; they are blue.
    """
    if said and len(said) != len(rows):
        raise ValueError(f"said must have one text for each of {len(rows)} rows, got {len(said)}")
    end = WORDS if said else 0.3
    page = Page(style.WIDTH, PROFILE_HEAD + PROFILE_ROW * len(rows) + PROFILE_MARGIN, at)
    cell = (page.width - PROFILE_LEFT - end) / len(columns)
    page.put(PROFILE_MARGIN, 0.2, title, style.SMALL, weight="bold")
    for j, heading in enumerate(columns.values()):
        x = PROFILE_LEFT + (j + 0.5) * cell
        page.note(x, PROFILE_HEAD - 0.16, heading, "center")
    for i, (kernel, values) in enumerate(rows.items()):
        y = PROFILE_HEAD + i * PROFILE_ROW
        middle = y + (PROFILE_ROW - 0.04) / 2
        name = style.shorten(kernel, PROFILE_LEFT - 0.3, style.SMALL)
        page.put(PROFILE_LEFT - 0.1, middle, name, style.SMALL, ha="right")
        for j, key in enumerate(columns):
            share = min(max(values[key] / 100, 0.0), 1.0)
            x = PROFILE_LEFT + j * cell
            color = style.BLUE if key in apart else style.VERMILION
            face = style.tint(color, 0.04 + 0.8 * share**1.5)
            page.box(x + 0.02, y, cell - 0.04, PROFILE_ROW - 0.04, face, radius=0.03)
            ink = style.PAPER if share > 0.85 else style.INK
            page.put(x + cell / 2, middle, f"{values[key]:.0f} %", style.SMALL, ink, "center")
        if said:
            page.put(page.width - end + 0.12, middle, said[i], style.SMALL)
    page.say(title)
    for i, (kernel, values) in enumerate(rows.items()):
        each = (f"{heading} {values[key]:.0f} %" for key, heading in columns.items())
        page.say(f"{kernel}: {style.some(each)}{f'; {said[i]}' if said else ''}")
    return page.figure
