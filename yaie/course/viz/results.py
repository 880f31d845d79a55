"""Recorded measurements of kernels and builds, as rows of bars or shades."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from yaie.course.viz import style
from yaie.course.viz.page import Grid, Page

MARGIN = 0.14


def _bar(
    grid: Grid, row: float, name: str, length: float, ours: bool, words: str, end: float = 0.0
) -> None:
    """One row of a chart: its name, its bar, and right of it (and of `end`) some words."""
    grid.bar(row, 0, length, style.BLUE if ours else style.FAINT)
    grid.name(row, style.shorten(name, grid.left - 0.2, style.SMALL))
    grid.ax.put(grid.x(max(length, end)) + 0.1, grid.middle(row), words, style.SMALL)


SPELLED = {
    r"\bB1\b": lambda found: "1 sequence,",
    r"\bB(\d+)\b": lambda found: f"{found[1]} sequences,",
    r"\bctx(\d+)\b": lambda found: f"contexts of {int(found[1]):,},",
    r"\bH(\d+)\b": lambda found: f"{found[1]} heads,",
    r"\bS(\d+)\b": lambda found: f"{int(found[1]):,} tokens,",
    r"\bheads (\d+)/(\d+)": lambda found: f"{found[1]} query and {found[2]} KV heads,",
    r"\bd(\d+)\b": lambda found: f"head_dim {found[1]},",
}


def spelled(shape: str) -> str:
    """A shape of the kept records in words: "B4 H32 S4096 d128 full" has four sequences.

    What begins otherwise stays as it is, and so does what follows a dot: a GPU may be an H200.
    """
    if not re.match(r"B\d+ (H\d|ctx|skewed)", shape):
        return shape
    shape, dot, machine = shape.partition(" · ")
    for pattern, words in SPELLED.items():
        shape = re.sub(pattern, words, shape)
    return shape.replace(",,", ",").removesuffix(",") + dot + machine


def _ceiling(page: Page, grid: Grid, words: str) -> None:
    """A line at a length of 1."""
    x, ends = grid.x(1), [grid.top - 0.06, page.height - 0.08]
    page.note(x, grid.top - 0.14, words, "center")
    page.plot([x, x], ends, color=style.FAINT, lw=0.8, zorder=0)


# ---------------------------------------------------------------------------------- ladder


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
    rungs: Sequence[Rung],
    ceiling: str,
    title: str = "",
    width: float = 9.4,
    most: float = 1.0,
) -> Figure:
    """Draw a bar for each rung, from the first to the last, against a ceiling of 1.

    Args:
        width: of the picture, in inches; two of 4.7 fit side by side.
        most: the share for which there is room at least, so that several pictures have one scale.
    """
    style.check_some(rungs, "rungs")
    full = max(1.0, most, *(rung.share for rung in rungs))
    page = Page(width, 0.5 + 0.28 * len(rungs) + MARGIN)
    title = spelled(title)
    page.put(MARGIN, 0.2, title, style.SMALL, weight="bold")
    left = min(3.0, 0.3 * width)
    grid = page.grid(left, 0.5, 11 / 16 * (width - left) / full, 0.28, gap_below=0.07)
    _ceiling(page, grid, ceiling)
    for row, rung in enumerate(rungs):
        words = f"{rung.figure}, {rung.share:.{1 if rung.share < 0.1 else 0}%}"
        _bar(grid, row, rung.name, rung.share, rung.ours, words, end=1)
    each = (f"{rung.name} {rung.share:.1%} ({rung.figure.strip()})" for rung in rungs)
    page.say(f"{title}, shares of {ceiling}: {style.some(each, 12)}")
    return page.figure


# ---------------------------------------------------------------------------------- bench


def draw_bench(record: Mapping[str, Any], operators: Sequence[str] = ()) -> Figure:
    """Draw a bar for each way to compute some operators; the engine's own are blue.

    Args:
        record: the content of a file that `yaie bench kernels --output FILE` wrote.
        operators: which, in this order; by default all. Ways without a time are left out.
    """
    operators = operators or [*dict.fromkeys(row["operator"] for row in record["results"])]
    cases: dict[str, list[Mapping[str, Any]]] = {}
    for name in operators:
        for row in record["results"]:
            if row["operator"] == name and row.get("ms") is not None:
                cases.setdefault(f"{name}, {spelled(row['shape'])}, {row['dtype']}", []).append(row)
    if not cases:
        raise ValueError(f"record must have times of {' or '.join(operators)}, got none")
    rows = sum(map(len, cases.values())) + 1.25 * len(cases)
    page = Page(9.2, 0.52 + 0.24 * rows)
    gpu = record["machine"].get("gpu") or record["machine"]["processor"]
    words = f"{gpu}, {record['date']}, torch {record['versions']['torch']}"
    page.put(MARGIN, 0.17, words, weight="bold")
    page.say(f"The share of the ceiling that each way reaches on {gpu}, {record['date']}")
    grid = page.grid(2.4, 0.36, 5.0, 0.24, gap_below=0.06)
    _ceiling(page, grid, "the ceiling")
    at_row = 0.0
    for title, ways in cases.items():
        page.put(MARGIN, grid.y(at_row) + 0.17, title, style.SMALL, weight="bold")
        at_row += 1.25
        for row in ways:
            words = f"{row['ms']:#.3g} ms, {row['fraction']:.0%}"
            _bar(grid, at_row, row["who"], row["fraction"], row["ours"], words, end=1.06)
            at_row += 1
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


@dataclass(frozen=True)
class Build:
    """One way to build.

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


def draw_builds(builds: Sequence[Build], title: str = "") -> Figure:
    """Draw a bar for each way on a logarithmic scale of seconds."""
    style.check_some(builds, "builds")
    seconds = [build.seconds for build in builds]
    low, high = math.floor(math.log10(min(seconds))), math.ceil(math.log10(max(seconds)))
    page = Page(9.8, 0.62 + 0.3 * len(builds) + MARGIN)
    page.put(MARGIN, 0.2, title, style.SMALL, weight="bold")
    page.say(f"{title}, seconds of each way to build")
    grid = page.grid(4.0, 0.62, 3.8 / max(high - low, 1), 0.3, gap_below=0.08)
    for power in range(low, high + 1):
        x = grid.x(power - low)
        page.plot([x, x], [0.56, page.height - 0.1], color=style.WASH, lw=0.9, zorder=0)
        page.note(x, 0.45, f"{10.0**power:g} s", "center")
    said = []
    for row, build in enumerate(builds):
        size = "" if build.size is None else f", {build.size / 1000:,.0f} kB"
        words = f"{build.seconds:.3g} s{size}"
        _bar(grid, row, build.way, math.log10(build.seconds) - low, build.ours, words)
        said.append(f"{build.way} {words}")
    page.say(style.some(said, 12, "; "))
    return page.figure


# ---------------------------------------------------------------------------------- backends


def draw_backends(table: Sequence, only: Sequence[str] = ()) -> Figure:
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
    width = min(1.9, (style.WIDTH - 2.2) / len(columns))
    page = Page(2.2 + len(columns) * width, 0.46 + len(operators) * 0.27)
    grid = page.grid(2.1, 0.36, width, 0.27, 0.06, 0.04)
    for column, name in enumerate(columns):
        page.put(grid.x(column + 0.5), 0.17, name, ha="center", weight="bold")
    for row, name in enumerate(operators):
        grid.name(row, name, style.BODY)
    for entry in entries:
        face = style.tint(style.BLUE, 0.5 if entry.chosen else 0.12)
        grid.cell(
            operators.index(entry.operator),
            columns.index(entry.backend),
            face if entry.available else style.PAPER,
            style.shorten(entry.how, width - 0.16, style.SMALL),
            color=style.INK if entry.available else style.MUTED,
            edge=style.BLUE if entry.chosen else style.FAINT,
            radius=0.03,
        )
    page.say(f"A table of {style.count(len(operators), 'operator')} and their back ends here")
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


# ---------------------------------------------------------------------------------- profile


def draw_profile(
    rows: Mapping[str, Mapping[str, float]],
    columns: Mapping[str, str],
    said: Sequence[str] = (),
    apart: Sequence[str] = (),
    title: str = "",
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
    left, end = 2.2, 1.9 if said else 0.3
    page = Page(style.WIDTH, 0.66 + 0.3 * len(rows) + MARGIN)
    grid = page.grid(left, 0.66, (page.width - left - end) / len(columns), 0.3, 0.04)
    page.put(MARGIN, 0.2, title, style.SMALL, weight="bold")
    page.say(title)
    for column, heading in enumerate(columns.values()):
        grid.head(column, heading, style.SMALL)
    for row, (kernel, values) in enumerate(rows.items()):
        grid.name(row, style.shorten(kernel, left - 0.3, style.SMALL))
        for column, key in enumerate(columns):
            share = min(max(values[key] / 100, 0.0), 1.0)
            color = style.BLUE if key in apart else style.VERMILION
            face = style.tint(color, 0.04 + 0.8 * share**1.5)
            ink = style.ink_on(face)
            grid.cell(row, column, face, f"{values[key]:.0f} %", color=ink, radius=0.03)
        if said:
            page.put(page.width - end + 0.12, grid.middle(row), said[row], style.SMALL)
        each = (f"{heading} {values[key]:.0f} %" for key, heading in columns.items())
        page.say(f"{kernel}: {style.some(each)}{f'; {said[row]}' if said else ''}")
    return page.figure
