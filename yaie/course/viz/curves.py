"""Curves, stairs and columns over a scale: costs, bytes, times, warps, lengths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FixedLocator, MaxNLocator, NullFormatter, NullLocator

from yaie.course.viz import style
from yaie.course.viz.page import Page, Place
from yaie.course.viz.style import (
    BLUE,
    BODY,
    INK,
    MUTED,
    ORANGE,
    SMALL,
    VERMILION,
    WASH,
    WIDTH,
    series_color,
    tint,
)

# ---------------------------------------------------------------------------------- growth

MARGIN = 0.12


def draw_growth(
    panels: Mapping[str, Mapping[str, Sequence[float]]],
    xlabel: str = "token generated",
    log: bool = False,
    at: Place | None = None,
) -> Figure:
    """Draw counted costs step by step, such as FLOPs and bytes with and without a cache.

    Args:
        panels: title → name of a curve → its value at each step.
        log: a logarithmic scale upwards.
    """
    if not panels:
        raise ValueError("panels must hold at least one panel, got none")
    names = [name for curves in panels.values() for name in curves]
    label_width = max(style.text_width(name) for name in names) + 0.15
    pitch = (WIDTH - 2 * MARGIN) / len(panels)
    page = Page(WIDTH, 3.0, at)
    for i, (title, curves) in enumerate(panels.items()):
        x = MARGIN + i * pitch
        page.put(x, 0.17, title, 9.5, weight="bold")
        ax = page.chart(x + 0.55, 0.4, pitch - 0.75 - label_width, 2.1)
        for number, values in enumerate(curves.values()):
            color = series_color(number)
            ax.plot(range(1, len(values) + 1), values, color=color, lw=2.0)
        if log:
            ax.set_yscale("log")
        else:
            ax.set_ylim(bottom=0)
            ax.yaxis.set_major_locator(MaxNLocator(nbins=5))
        ax.yaxis.set_major_formatter(EngFormatter(sep=" "))
        ax.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
        ax.margins(x=0.0)
        ax.grid(axis="y", color=WASH, lw=0.8)
        ax.set_axisbelow(True)
        ax.label_scales(x=xlabel)
        _label_ends(ax, curves)
    write = EngFormatter(sep=" ", places=1)
    for title, curves in panels.items():
        each = (f"{name} from {write(v[0])} to {write(v[-1])}" for name, v in curves.items())
        page.say(f"{title}: {'; '.join(each)}")
    length = max(len(values) for curves in panels.values() for values in curves.values())
    page.say(f"Along the page: {xlabel}, 1 to {length}")
    return page.figure


def _label_ends(ax: Axes, curves: Mapping[str, Sequence[float]]) -> None:
    """Write each curve's name at its end, moved apart where they would touch."""
    ends = []
    for number, (name, values) in enumerate(curves.items()):
        height = ax.transAxes.inverted().transform(ax.transData.transform((1, values[-1])))[1]
        ends.append([height, name, series_color(number)])
    ends.sort(key=lambda end: end[0])
    lowest = -1.0
    for end in ends:
        end[0] = lowest = max(end[0], lowest + 0.085)
    for height, name, color in ends:
        ax.put(1.03, height, name, color=color, transform=ax.transAxes, clip_on=False)


# ---------------------------------------------------------------------------------- tile bytes

WIDE_MARGIN = 0.14


def draw_tile_bytes(
    counted: Mapping[int, int],
    curves: Mapping[str, Mapping[int, float]],
    levels: Mapping[str, float],
    xlabel: str = "queries in a tile",
    at: Place | None = None,
) -> Figure:
    """Draw counted bytes as points, formulas as lines and constants as levels, both scales log.

    Args:
        counted: size of a tile → bytes.
        curves: name → size of a tile → bytes.
        levels: name → bytes, a horizontal line.
    """
    if not counted:
        raise ValueError("counted must hold at least one point, got none")
    page = Page(7.4, 3.5, at)
    page.put(WIDE_MARGIN, 0.17, "bytes read and written", 9.5, weight="bold")
    ax = page.chart(0.85, 0.4, 4.3, 2.55)
    ax.set(xscale="log", yscale="log")
    sizes = sorted(counted)
    for number, (name, points) in enumerate(curves.items()):
        _line(ax, sorted(points), [points[s] for s in sorted(points)], name, series_color(number))
    for name, level in levels.items():
        ax.axhline(level, color=MUTED, lw=1.2, ls="--")
        ax.put(1.03, level, name, color=MUTED, transform=ax.get_yaxis_transform(), clip_on=False)
    ax.plot(sizes, [counted[s] for s in sizes], "o", color=VERMILION, ms=6)
    ax.xaxis.set_major_locator(FixedLocator(sizes))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xticklabels([str(size) for size in sizes])
    ax.yaxis.set_major_formatter(EngFormatter(unit="B", sep=" "))
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.grid(axis="y", color=WASH, lw=0.8)
    ax.label_scales(x=xlabel)
    page.put(5.3, 0.17, "● counted", BODY, VERMILION, weight="bold")
    write = EngFormatter(unit="B", sep=" ", places=1)
    page.say(
        f"Bytes read and written against {xlabel}; counted: "
        + style.some((f"{size}, {write(counted[size])}" for size in sizes), 12)
    )
    for name, points in curves.items():
        low, high = min(points), max(points)
        page.say(f"{name}: from {write(points[low])} at {low} to {write(points[high])} at {high}")
    for name, level in levels.items():
        page.say(f"{name}: {write(level)}")
    return page.figure


def _line(ax, sizes: Sequence[int], values: Sequence[float], name: str, color: str) -> None:
    ax.plot(sizes, values, color=color, lw=1.8)
    ax.put(1.03, values[-1], name, color=color, transform=ax.get_yaxis_transform(), clip_on=False)


# ---------------------------------------------------------------------------------- batch times

LABELS = 2.6  # inches right of the lines, for their names


def draw_batch_times(
    title: str, times: Mapping[str, Mapping[int, float]], at: Place | None = None
) -> Figure:
    """Draw microseconds against the batch, both on logarithmic scales.

    Args:
        title: what was measured, on which machine and when.
        times: way -> batch -> milliseconds.
    """
    if not any(times.values()):
        raise ValueError("times must hold at least one time, got none")
    page = Page(WIDTH, 3.6, at)
    page.put(0.14, 0.17, title, weight="bold")
    ax = page.chart(0.75, 0.4, WIDTH - 0.9 - LABELS, 2.65)
    ends = []
    for number, (name, by_batch) in enumerate(times.items()):
        batches = sorted(by_batch)
        color = series_color(number)
        values = [1e3 * by_batch[batch] for batch in batches]
        ax.plot(batches, values, color=color, lw=2.0, marker="o", ms=3.5)
        ends.append((values[-1], name, color))
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    every = sorted({batch for by_batch in times.values() for batch in by_batch})
    ax.set_xticks(every, [str(batch) for batch in every])
    ax.minorticks_off()
    ax.grid(axis="y", color=WASH, lw=0.8)
    ax.set_axisbelow(True)
    for set_label, words in ((ax.set_xlabel, "requests"), (ax.set_ylabel, "µs")):
        set_label(words, fontsize=SMALL, color=MUTED, fontfamily=style.FONT)
    _name_lines(page, ax, ends)
    page.say(f"{title}, time against requests")
    for name, by_batch in times.items():
        page.say(f"{name}: {style.trend([(b, 1e3 * by_batch[b]) for b in sorted(by_batch)], 'µs')}")
    return page.figure


def _name_lines(page: Page, ax, ends: Sequence[tuple[float, str, str]]) -> None:
    """Write each line's name right of its end, moved apart where they would touch."""
    x, low = WIDTH - LABELS, 0.4 + 2.65
    scale = ax.get_yaxis().get_transform()
    bottom, top = (scale.transform([limit])[0] for limit in ax.get_ylim())
    before = low + 1.0
    for value, name, color in sorted(ends):
        y = low - 2.65 * (scale.transform([value])[0] - bottom) / (top - bottom)
        y = min(y, before - 0.17)
        before = y
        page.put(x, y, f"{name}, {value:,.{1 if value < 100 else 0}f} µs", SMALL, color)


# ---------------------------------------------------------------------------------- occupancy

LEFT, TOP, HEIGHT, BOTTOM = 0.6, 0.5, 1.9, 0.6  # inches


def draw_occupancy(
    panels: Mapping[str, Sequence[tuple[float, int]]], most: int = 64, at: Place | None = None
) -> Figure:
    """Draw stairs: resident warps of a multiprocessor over what a thread block takes.

    Args:
        panels: what grows → (how much of it, resident warps) in ascending order.
        most: warps that the multiprocessor can hold.
    """
    if not panels:
        raise ValueError("panels must hold at least one panel, got none")
    page = Page(WIDTH, TOP + HEIGHT + BOTTOM, at)
    pitch = WIDTH / len(panels)
    for number, (name, steps) in enumerate(panels.items()):
        ax = page.chart(number * pitch + LEFT, TOP, pitch - LEFT - 0.3, HEIGHT)
        amounts, warps = zip(*steps, strict=True)
        color = series_color(number)
        ax.fill_between(amounts, warps, step="post", color=tint(color, 0.3), lw=0)
        ax.step(amounts, warps, where="post", color=color, lw=1.6)
        ax.set(xlim=(amounts[0], amounts[-1]), ylim=(0, most * 1.03))
        ax.set_yticks([0, most // 4, most // 2, 3 * most // 4, most])
        ax.grid(axis="y", color=WASH, lw=0.8)
        ax.set_axisbelow(True)
        ax.label_scales(x=name)
        page.put(number * pitch + 0.15, 0.22, "resident warps", weight="bold")
    for name, steps in panels.items():
        page.say(f"Resident warps against {name}, in stairs: {style.trend(steps)}")
    return page.figure


# ---------------------------------------------------------------------------------- number line

LINE_MARGIN, HEAD, LINE, PITCH = 0.2, 0.36, 0.5, 1.0


def draw_number_line(
    numbers: Sequence[float], ends: Sequence[float], title: str = "", at: Place | None = None
) -> Figure:
    """Draw a line from 0 to each of `ends`, one below the other, with a stroke for each number."""
    if not numbers or not ends:
        raise ValueError("numbers and ends must hold at least one number each")
    page = Page(WIDTH - 1.0, HEAD + PITCH * len(ends), at)
    page.put(LINE_MARGIN, 0.17, title, weight="bold")
    within = (f"{sum(number <= end for number in numbers)} up to {end:g}" for end in ends)
    page.say(f"{title}: from {min(numbers):g} to {max(numbers):g}, {style.some(within)}")
    for i, end in enumerate(ends):
        shown = [number for number in numbers if number <= end]
        y = HEAD + PITCH * i
        ax = page.chart(LINE_MARGIN, y, page.width - 2 * LINE_MARGIN, LINE, left=False)
        ax.eventplot(shown, lineoffsets=0, linelengths=1, linewidths=0.9, color=BLUE)
        ax.set(xlim=(0, end * 1.01), ylim=(-0.5, 0.5))
    return page.figure


# ---------------------------------------------------------------------------------- lengths


def draw_lengths(
    prompts: Sequence[int], answers: Sequence[int], reserved: int, at: Place | None = None
) -> Figure:
    """Draw a bar for each request, shortest first: its prompt, its answer, and what stays empty.

    Args:
        prompts, answers: tokens of each request.
        reserved: tokens that are set aside for every request.
    """
    if len(prompts) != len(answers):
        raise ValueError(f"answers must be {len(prompts)}, as prompts are, got {len(answers)}")
    pairs = sorted(zip(prompts, answers, strict=True), key=sum)
    page = Page(WIDTH, 2.9, at)
    key = ((BLUE, 0.75, "prompt"), (ORANGE, 0.75, "answer"))
    x = MARGIN + 0.5
    for color, strength, words in (*key, (INK, 0.1, f"reserved ({reserved:,}), empty")):
        page.box(x, 0.1, 0.16, 0.16, tint(color, strength), radius=0.02)
        page.note(x + 0.22, 0.19, words)
        x += 0.5 + style.text_width(words, SMALL)
    ax = page.chart(MARGIN + 0.5, 0.4, WIDTH - 2 * MARGIN - 0.6, 2.05, left=True)
    places = range(1, len(pairs) + 1)
    ax.bar(places, [reserved] * len(pairs), 0.8, color=tint(INK, 0.1))
    ax.bar(places, [p for p, _ in pairs], 0.8, color=tint(BLUE, 0.75))
    ax.bar(places, [a for _, a in pairs], 0.8, [p for p, _ in pairs], color=tint(ORANGE, 0.75))
    ax.set(xlim=(0.3, len(pairs) + 0.7), ylim=(0, reserved))
    ax.label_scales(x=f"{len(pairs)} requests, shortest first", y="tokens")
    totals = [sum(pair) for pair in pairs]
    used = sum(totals) / reserved / len(totals)
    page.say(
        f"{style.count(len(pairs), 'request')}, prompt and answer together from {min(totals):,} to "
        f"{max(totals):,} tokens; {reserved:,} are reserved for each, {used:.0%} of which are used"
    )
    return page.figure
