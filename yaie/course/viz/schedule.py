"""Schedules as Gantt charts: who is computed in which step, who waits, who is put out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Polygon

from yaie.course.viz import style
from yaie.course.viz.page import Page, Place

MARGIN = 0.12
BUDGET_HEIGHT = 0.62
FREE_HEIGHT = 0.36
PREFILL, DECODE = style.ORANGE, style.BLUE


@dataclass(frozen=True)
class Step:
    """One step of a scheduler.

    Attributes:
        work: (request id, kind, tokens) for each request in the batch. Kinds: "prefill",
            "decode", and "idle" for a place in the batch that is held and does nothing.
        preempted, finished: ids of the requests that were put out of, or left, the batch.
        free_blocks: free KV blocks after the step.
    """

    work: tuple[tuple[str, str, int], ...] = ()
    preempted: tuple[str, ...] = ()
    finished: tuple[str, ...] = ()
    free_blocks: int | None = None

    def __post_init__(self) -> None:
        for entry in self.work:
            if len(entry) != 3 or entry[1] not in ("prefill", "decode", "idle"):
                raise ValueError(
                    'work must hold (request id, "prefill" | "decode" | "idle", tokens), '
                    f"got {entry!r}"
                )
        if self.free_blocks is not None and self.free_blocks < 0:
            raise ValueError(f"free_blocks must not be negative, got {self.free_blocks}")

    @property
    def num_tokens(self) -> int:
        """Tokens computed in the step."""
        return sum(tokens for _, kind, tokens in self.work if kind != "idle")


def draw_schedule(
    steps: Sequence[Step],
    token_budget: int | None = None,
    arrivals: Mapping[str, int] | None = None,
    num_steps: int | None = None,
    request_ids: Sequence[str] | None = None,
    at: Place | None = None,
) -> Figure:
    """Draw one row for each request, one column for each step, and the tokens of each step below.

    Args:
        steps: what each step did.
        token_budget: tokens that a step may compute at most: a line across the bars.
        arrivals: the step at which each request arrives; 0 unless told.
        num_steps, request_ids: how many columns and which rows to leave room for: by default
            those of `steps`. A slider over a growing schedule wants all of them from the start.
    """
    return draw_schedules({"": steps}, token_budget, arrivals, num_steps, request_ids, at)


def draw_schedules(
    schedules: Mapping[str, Sequence[Step]],
    token_budget: int | None = None,
    arrivals: Mapping[str, int] | None = None,
    num_steps: int | None = None,
    request_ids: Sequence[str] | None = None,
    at: Place | None = None,
) -> Figure:
    """Draw several schedules of the same requests below each other, on one scale of steps."""
    if not schedules:
        raise ValueError("schedules must name at least one schedule, got none")
    ids = list(request_ids) if request_ids is not None else _request_ids(schedules)
    columns = max(1, num_steps or max(len(steps) for steps in schedules.values()))
    most = max((s.num_tokens for steps in schedules.values() for s in steps), default=0)
    free = [s.free_blocks for steps in schedules.values() for s in steps if s.free_blocks]
    chart = _Chart(
        ids,
        columns,
        max(most, token_budget or 0, 1),
        arrivals or {},
        token_budget,
        max(free, default=0),
    )
    key = _key(schedules, ids, arrivals or {})
    key_widths = [0.26 + style.text_width(WORDS[mark], style.SMALL) for mark in key]
    places = style.flow(key_widths, chart.width - chart.left - MARGIN)
    key_height = 0.1 + 0.22 * (1 + places[-1][1]) if places else 0.0
    heights = [chart.height + (0.3 if name else 0.0) for name in schedules]
    page = Page(chart.width, sum(heights) + key_height + MARGIN, at)
    y = MARGIN
    for (name, steps), height in zip(schedules.items(), heights, strict=True):
        if name:
            page.put(MARGIN, y + 0.12, name, 9.5, weight="bold")
            words = _summary(steps)
            x = MARGIN + style.text_width(name, 9.5, "bold") + 0.2
            page.note(x, y + 0.12, words)
        chart.draw(page.ax, steps, y + (0.3 if name else 0.0))
        y += height
    for mark, (x, line) in zip(key, places, strict=True):
        _draw_key(page.ax, chart.left + x, y + 0.16 + 0.22 * line, mark)
    for name, steps in schedules.items():
        page.say(f"{name or 'Schedule'}: {style.count(len(ids), 'request')}, {_in_words(steps)}")
    if token_budget:
        page.say(f"The budget is {style.count(token_budget, 'token')} a step")
    return page.figure


def _request_ids(schedules: Mapping[str, Sequence[Step]]) -> list[str]:
    ids: dict[str, None] = {}
    for steps in schedules.values():
        for step in steps:
            ids.update((entry[0], None) for entry in step.work)
    return list(ids)


def _waiting_steps(name: str, steps: Sequence[Step], arrival: int) -> list[int]:
    """The steps in which a request is there and not in the batch."""
    busy = [any(entry[0] == name for entry in step.work) for step in steps]
    ends = [i for i, step in enumerate(steps) if name in step.finished]
    end = ends[0] + 1 if ends else len(steps)
    return [i for i in range(arrival, end) if not busy[i]]


def _summary(steps: Sequence[Step]) -> str:
    places = sum(len(step.work) for step in steps)
    busy = sum(kind != "idle" for step in steps for _, kind, _ in step.work)
    words = style.count(len(steps), "step")
    if busy < places:
        words += f";  {places - busy} of {places} places in the batch idle"
    return words


def _in_words(steps: Sequence[Step]) -> str:
    """What a schedule did, for readers who cannot see it."""
    tokens = [step.num_tokens for step in steps]
    words = f"{_summary(steps)}; {sum(tokens):,} tokens, at most {max(tokens, default=0):,} a step"
    for what in ("preempted", "finished"):
        found = [f"{name} {i}" for i, step in enumerate(steps) for name in getattr(step, what)]
        if found:
            words += f"; {what} in step: {style.some(found)}"
    return words


# ---------------------------------------------------------------------------------- the chart


class _Chart:
    """Where rows and columns are, and how one schedule is drawn into them."""

    def __init__(
        self,
        ids: Sequence[str],
        columns: int,
        most_tokens: int,
        arrivals: Mapping[str, int],
        budget: int | None,
        most_free: int,
    ) -> None:
        self.most_free = most_free
        self.ids, self.arrivals, self.budget = list(ids), arrivals, budget
        self.columns, self.most_tokens = columns, most_tokens
        names = [style.text_width(style.printable(name)) for name in ids]
        self.label_width = min(1.6, max(names, default=0.0))
        self.left = MARGIN + max(self.label_width + 0.12, 0.75)
        self.right = 0.75
        self.cell = min(0.34, (style.WIDTH - self.left - self.right) / columns)
        self.row = 0.26 if len(ids) <= 12 else 0.2
        self.width = max(self.left + columns * self.cell + self.right, 4.6)
        self.rows_height = self.row * len(ids)
        self.height = self.rows_height + 0.16 + BUDGET_HEIGHT + 0.34
        if most_free:
            self.height += FREE_HEIGHT + 0.12

    def draw(self, ax: Axes, steps: Sequence[Step], top: float) -> None:
        self._draw_grid(ax, top)
        row_of = {name: top + i * self.row for i, name in enumerate(self.ids)}
        for name, y in row_of.items():
            self._draw_waiting(ax, name, steps, y)
        for index, step in enumerate(steps):
            for name, kind, tokens in step.work:
                if name in row_of:
                    self._draw_cell(ax, index, row_of[name], kind, tokens)
            for name in step.preempted:
                if name in row_of:
                    _draw_preemption(ax, self._x(index), row_of[name] + self.row / 2, self.row)
            for name in step.finished:
                if name in row_of:
                    _draw_finish(ax, self._x(index + 1) + 0.035, row_of[name] + self.row / 2)
        self._draw_budget(ax, steps, top + self.rows_height + 0.16)

    def _x(self, index: float) -> float:
        return self.left + index * self.cell

    def _draw_grid(self, ax: Axes, top: float) -> None:
        for i, name in enumerate(self.ids):
            y = top + i * self.row
            shown = style.shorten(style.printable(name), self.label_width)
            ax.put(self.left - 0.1, y + self.row / 2, shown, ha="right")
            ax.plot(
                [self.left, self._x(self.columns)], [y + self.row] * 2, color=style.WASH, lw=0.8
            )

    def _draw_waiting(self, ax: Axes, name: str, steps: Sequence[Step], y: float) -> None:
        """A thin line through the steps in which a request is there and not in the batch."""
        middle = y + self.row / 2
        for index in _waiting_steps(name, steps, self.arrivals.get(name, 0)):
            _draw_wait(ax, self._x(index), self._x(index + 1), middle)

    def _draw_cell(self, ax: Axes, index: int, y: float, kind: str, tokens: int) -> None:
        gap = min(0.03, self.cell * 0.15)
        x, width = self._x(index), self.cell - gap
        _draw_place(ax, x, y + 0.02, width, self.row - 0.05, kind)
        if kind == "prefill" and style.text_width(str(tokens), 7) + 0.04 < width:
            ax.put(x + width / 2, y + self.row / 2, str(tokens), 7, ha="center")

    def _draw_budget(self, ax: Axes, steps: Sequence[Step], top: float) -> None:
        """Bars of prefill and decode tokens for each step, under the line of the budget."""
        bottom = top + BUDGET_HEIGHT
        scale = BUDGET_HEIGHT / self.most_tokens
        gap = min(0.03, self.cell * 0.15)
        for index, step in enumerate(steps):
            y = bottom
            for kind, color in (("decode", DECODE), ("prefill", PREFILL)):
                tokens = sum(entry[2] for entry in step.work if entry[1] == kind)
                height = tokens * scale
                corner = self._x(index), y - height
                ax.box(*corner, self.cell - gap, height, style.tint(color, 0.75), radius=0.0)
                y -= height
        end = self._x(self.columns)
        ax.plot([self.left, end], [bottom] * 2, color=style.FAINT, lw=1.0)
        self._label_lane(ax, ("tokens", "a step"), bottom - BUDGET_HEIGHT / 2)
        limit = self.budget or self.most_tokens
        y = bottom - limit * scale
        ax.plot(
            [self.left, end],
            [y] * 2,
            color=style.INK,
            lw=0.9,
            ls="solid" if self.budget else (0, (1, 3)),
        )
        words = f"budget {limit}" if self.budget else f"{limit}"
        ax.note(end + 0.06, y, words)
        if self.most_free:
            bottom += FREE_HEIGHT + 0.12
            self._draw_free_blocks(ax, steps, bottom)
        self._draw_axis(ax, bottom + 0.11)

    def _label_lane(self, ax: Axes, lines: tuple[str, str], middle: float) -> None:
        for line, y in zip(lines, (middle - 0.07, middle + 0.07), strict=True):
            ax.note(self.left - 0.1, y, line, "right")

    def _draw_axis(self, ax: Axes, y: float) -> None:
        choices = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
        every = next((n for n in choices if n * self.cell >= 0.28), self.columns)
        for index in range(0, self.columns, every):
            middle = self._x(index) + self.cell * 0.46
            ax.put(middle, y, str(index), 7, style.MUTED, "center")
        ax.put(self.left - 0.1, y, "step", 7, style.MUTED, "right")

    def _draw_free_blocks(self, ax: Axes, steps: Sequence[Step], bottom: float) -> None:
        """The free blocks after each step, as a surface on a scale of its own."""
        points = [(i, s.free_blocks) for i, s in enumerate(steps) if s.free_blocks is not None]
        self._label_lane(ax, ("free", "blocks"), bottom - FREE_HEIGHT / 2)
        ax.plot([self.left, self._x(self.columns)], [bottom] * 2, color=style.FAINT, lw=1.0)
        if not points:
            ax.put(self.left, bottom - FREE_HEIGHT / 2, "not recorded", 7, style.MUTED)
            return
        xs = [self._x(index + shift) for index, _ in points for shift in (0, 1)]
        ys = [bottom - free / self.most_free * FREE_HEIGHT for _, free in points for _ in (0, 1)]
        ax.fill_between(xs, ys, bottom, color=style.tint(style.GREEN, 0.3), linewidth=0.0)
        ax.plot(xs, ys, color=style.GREEN, lw=1.4)
        ax.put(xs[-1] + 0.06, ys[-1], str(points[-1][1]), style.SMALL, style.GREEN)


# ---------------------------------------------------------------------------------- marks


def _draw_place(ax: Axes, x: float, y: float, width: float, height: float, kind: str) -> None:
    if kind == "idle":
        look = {"facecolor": style.WASH, "edgecolor": style.FAINT, "hatch": "////"}
        ax.rect(x, y, width, height, linewidth=0.0, **look)
    else:
        color = PREFILL if kind == "prefill" else DECODE
        ax.box(x, y, width, height, style.tint(color, 0.75), radius=0.02)


def _draw_wait(ax: Axes, x0: float, x1: float, y: float) -> None:
    ax.plot([x0, x1], [y, y], color=style.MUTED, lw=1.0, ls=(0, (1, 2)))


def _draw_preemption(ax: Axes, x: float, middle: float, height: float) -> None:
    ends = [middle - height / 2, middle + height / 2]
    ax.plot([x - 0.01] * 2, ends, color=style.VERMILION, lw=2.4, zorder=5)
    flag = [(x, middle - 0.06), (x + 0.1, middle), (x, middle + 0.06)]
    ax.add_artist(Polygon(flag, color=style.VERMILION, zorder=5))


def _draw_finish(ax: Axes, x: float, middle: float) -> None:
    xs, ys = [x, x + 0.03, x + 0.085], [middle, middle + 0.04, middle - 0.05]
    ax.plot(xs, ys, color=style.GREEN, lw=2.0, zorder=5, solid_capstyle="round")


WORDS = {
    "prefill": "prefill (tokens)",
    "decode": "decode (1 token)",
    "idle": "place held, nothing to do",
    "waiting": "waiting",
    "preempted": "preempted",
    "finished": "finished",
}


def _key(
    schedules: Mapping[str, Sequence[Step]], ids: Sequence[str], arrivals: Mapping[str, int]
) -> list[str]:
    """The marks that the schedules use."""
    steps = [step for schedule in schedules.values() for step in schedule]
    used = {kind for step in steps for _, kind, _ in step.work}
    if any(_waiting_steps(i, s, arrivals.get(i, 0)) for s in schedules.values() for i in ids):
        used.add("waiting")
    if any(step.preempted for step in steps):
        used.add("preempted")
    if any(step.finished for step in steps):
        used.add("finished")
    return [mark for mark in WORDS if mark in used]


def _draw_key(ax: Axes, x: float, middle: float, mark: str) -> None:
    if mark == "waiting":
        _draw_wait(ax, x, x + 0.2, middle)
    elif mark == "preempted":
        _draw_preemption(ax, x + 0.08, middle, 0.2)
    elif mark == "finished":
        _draw_finish(ax, x + 0.07, middle)
    else:
        _draw_place(ax, x, middle - 0.08, 0.2, 0.16, mark)
    ax.note(x + 0.26, middle, WORDS[mark])
