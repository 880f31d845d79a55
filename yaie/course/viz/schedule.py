"""Schedules as Gantt charts: what each step computes, which requests wait or are preempted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from matplotlib.figure import Figure
from matplotlib.patches import Polygon

from yaie.course.viz import style
from yaie.course.viz.page import Grid, Page, Sheet

MARGIN = 0.12
BUDGET_HEIGHT = 0.62
FREE_HEIGHT = 0.36
EVERY = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)  # steps from one number to the next
LOOKS = {
    "prefill": {"face": style.tint(style.ORANGE, 0.75), "radius": 0.02},
    "decode": {"face": style.tint(style.BLUE, 0.75), "radius": 0.02},
    "idle": {"face": style.WASH, "edge": style.FAINT, "line": 0.0, "hatch": "////"},
}


@dataclass(frozen=True)
class StepRecord:
    """What a scheduler's step did.

    Attributes:
        work: (request id, kind, tokens) for each request in the batch. Kinds: "prefill",
            "decode", and "idle" for a place in the batch that is held and does nothing.
        preempted, finished: ids of the requests that were preempted, or were done.
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
    steps: Sequence[StepRecord],
    token_budget: int | None = None,
    arrivals: Mapping[str, int] | None = None,
    num_steps: int | None = None,
    request_ids: Sequence[str] | None = None,
) -> Figure:
    """Draw one row for each request, one column for each step, and the tokens of each step below.

    Args:
        steps: what each step did.
        token_budget: tokens that a step may compute at most: a line across the bars.
        arrivals: the step at which each request arrives; 0 by default.
        num_steps, request_ids: how many columns and which rows to leave room for: by default
            those of `steps`. A slider over a growing schedule wants all of them from the start.
    """
    return draw_schedules({"": steps}, token_budget, arrivals, num_steps, request_ids)


def draw_schedules(
    schedules: Mapping[str, Sequence[StepRecord]],
    token_budget: int | None = None,
    arrivals: Mapping[str, int] | None = None,
    num_steps: int | None = None,
    request_ids: Sequence[str] | None = None,
) -> Figure:
    """Draw several schedules of the same requests below each other, on one scale of steps."""
    style.check_some(schedules, "schedules")
    ids = list(request_ids) if request_ids is not None else _request_ids(schedules)
    columns = max(1, num_steps or max(len(steps) for steps in schedules.values()))
    arrivals = arrivals or {}
    chart = _Chart(ids, columns, list(schedules.values()), arrivals, token_budget)
    key = _key(schedules, ids, arrivals)
    key_widths = [0.26 + style.text_width(WORDS[mark], style.SMALL) for mark in key]
    places = style.flow(key_widths, chart.width - chart.left - MARGIN)
    key_height = 0.1 + 0.22 * (1 + places[-1][1]) if places else 0.0
    heads = [0.3 if name else 0.0 for name in schedules]
    height = sum(heads) + chart.height * len(schedules) + key_height + MARGIN
    page = Page(chart.width, height)
    y = MARGIN
    for (name, steps), head in zip(schedules.items(), heads, strict=True):
        if name:
            page.put(MARGIN, y + 0.12, name, 9.5, weight="bold")
            x = MARGIN + style.text_width(name, 9.5, "bold") + 0.2
            page.note(x, y + 0.12, _summary(steps))
        chart.draw(page, steps, y + head)
        y += head + chart.height
    for mark, (x, line) in zip(key, places, strict=True):
        _draw_key(page, chart.left + x, y + 0.16 + 0.22 * line, mark)
    for name, steps in schedules.items():
        page.say(f"{name or 'Schedule'}: {style.count(len(ids), 'request')}, {_in_words(steps)}")
    if token_budget:
        page.say(f"The budget is {style.count(token_budget, 'token')} per step")
    return page.figure


def _request_ids(schedules: Mapping[str, Sequence[StepRecord]]) -> list[str]:
    steps = chain(*schedules.values())
    return list(dict.fromkeys(name for step in steps for name, _, _ in step.work))


def _waiting_steps(name: str, steps: Sequence[StepRecord], arrival: int) -> list[int]:
    """The steps in which a request is there and not in the batch."""
    busy = [any(entry[0] == name for entry in step.work) for step in steps]
    ends = [i for i, step in enumerate(steps) if name in step.finished]
    end = ends[0] + 1 if ends else len(steps)
    return [i for i in range(arrival, end) if not busy[i]]


def _summary(steps: Sequence[StepRecord]) -> str:
    places = sum(len(step.work) for step in steps)
    busy = sum(kind != "idle" for step in steps for _, kind, _ in step.work)
    words = style.count(len(steps), "step")
    if busy < places:
        words += f";  {places - busy} of {places} places in the batch idle"
    return words


def _in_words(steps: Sequence[StepRecord]) -> str:
    """What a schedule did, for readers who cannot see it."""
    tokens = [step.num_tokens for step in steps]
    words = (
        f"{_summary(steps)}; {sum(tokens):,} tokens, at most {max(tokens, default=0):,} per step"
    )
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
        schedules: Sequence[Sequence[StepRecord]],
        arrivals: Mapping[str, int],
        budget: int | None,
    ) -> None:
        self.ids, self.columns, self.arrivals, self.budget = list(ids), columns, arrivals, budget
        steps = list(chain(*schedules))
        self.most_tokens = max([1, budget or 0, *(step.num_tokens for step in steps)])
        self.most_free = max((step.free_blocks or 0 for step in steps), default=0)
        names = [style.text_width(style.printable(name)) for name in ids]
        self.label_width = min(1.6, max(names, default=0.0))
        self.left, right = MARGIN + max(self.label_width + 0.12, 0.75), 0.75
        self.cell = min(0.34, (style.WIDTH - self.left - right) / columns)
        self.row = 0.26 if len(ids) <= 12 else 0.2
        self.width = max(self.left + columns * self.cell + right, 4.6)
        self.height = self.row * len(ids) + 0.5 + BUDGET_HEIGHT
        if self.most_free:
            self.height += FREE_HEIGHT + 0.12

    def draw(self, page: Page, steps: Sequence[StepRecord], top: float) -> None:
        gap = min(0.03, self.cell * 0.15)
        grid = page.grid(self.left, top + 0.02, self.cell, self.row, gap, 0.05)
        row_of = {name: row for row, name in enumerate(self.ids)}
        for name, row in row_of.items():
            grid.name(row, style.shorten(style.printable(name), self.label_width), style.BODY)
            ends, y = [grid.x(0), grid.x(self.columns)], grid.y(row + 1) - 0.02
            page.plot(ends, [y, y], color=style.WASH, lw=0.8)
            for index in _waiting_steps(name, steps, self.arrivals.get(name, 0)):
                _draw_wait(page.ax, grid.x(index), grid.x(index + 1), grid.middle(row))
        for index, step in enumerate(steps):
            for name, kind, tokens in step.work:
                if name in row_of:
                    words = str(tokens) if kind == "prefill" else ""
                    look = {"size": 7, **LOOKS[kind]}
                    grid.bar(row_of[name], index, index + 1, text=words, **look)
            for name in set(step.preempted) & set(row_of):
                _draw_preemption(page.ax, grid.x(index), grid.middle(row_of[name]), self.row)
            for name in set(step.finished) & set(row_of):
                _draw_finish(page.ax, grid.x(index + 1) + 0.035, grid.middle(row_of[name]))
        bottom = grid.y(len(self.ids)) + 0.14 + BUDGET_HEIGHT
        self._draw_budget(page, steps, bottom, gap)
        if self.most_free:
            bottom += FREE_HEIGHT + 0.12
            self._draw_free_blocks(page, steps, bottom)
        every = next((n for n in EVERY if n * self.cell >= 0.28), self.columns)
        for index in range(0, self.columns, every):
            page.put(grid.x(index + 0.46), bottom + 0.11, str(index), 7, style.MUTED, "center")
        page.put(self.left - 0.1, bottom + 0.11, "step", 7, style.MUTED, "right")

    def _draw_lane(self, page: Page, words: Sequence[str], bottom: float, height: float) -> Grid:
        """A line to stand on, with words beside it; return a grid of steps from the line up."""
        for line, shift in zip(words, (-0.07, 0.07), strict=True):
            page.note(self.left - 0.1, bottom - height / 2 + shift, line, "right")
        grid = page.grid(self.left, bottom, self.cell, -height)
        page.plot([grid.x(0), grid.x(self.columns)], [bottom] * 2, color=style.FAINT, lw=1.0)
        return grid

    def _draw_budget(
        self, page: Page, steps: Sequence[StepRecord], bottom: float, gap: float
    ) -> None:
        """Bars of prefill and decode tokens for each step, under the line of the budget."""
        grid = self._draw_lane(page, ("tokens", "per step"), bottom, BUDGET_HEIGHT)
        for index, step in enumerate(steps):
            end = 0.0
            for kind in ("decode", "prefill"):
                begin, tokens = end, sum(entry[2] for entry in step.work if entry[1] == kind)
                end += tokens / self.most_tokens
                span = (index, index + 1 - gap / self.cell)
                grid.area((begin, end), span, LOOKS[kind]["face"])
        limit = self.budget or self.most_tokens
        y, ends = grid.y(limit / self.most_tokens), [grid.x(0), grid.x(self.columns)]
        page.plot(ends, [y, y], color=style.INK, lw=0.9, ls="-" if self.budget else (0, (1, 3)))
        page.note(ends[1] + 0.06, y, f"budget {limit}" if self.budget else str(limit))

    def _draw_free_blocks(self, page: Page, steps: Sequence[StepRecord], bottom: float) -> None:
        """The free blocks after each step, as a surface on a scale of its own."""
        grid = self._draw_lane(page, ("free", "blocks"), bottom, FREE_HEIGHT)
        points = [(i, s.free_blocks) for i, s in enumerate(steps) if s.free_blocks is not None]
        if not points:
            page.put(self.left, grid.y(0.5), "not recorded", 7, style.MUTED)
            return
        xs = [grid.x(index + shift) for index, _ in points for shift in (0, 1)]
        ys = [grid.y(free / self.most_free) for _, free in points for _ in (0, 1)]
        page.ax.fill_between(xs, ys, bottom, color=style.tint(style.GREEN, 0.3), linewidth=0.0)
        page.plot(xs, ys, color=style.GREEN, lw=1.4)
        page.put(xs[-1] + 0.06, ys[-1], str(points[-1][1]), style.SMALL, style.GREEN)


# ---------------------------------------------------------------------------------- marks


def _draw_wait(ax: Sheet, x0: float, x1: float, y: float) -> None:
    ax.plot([x0, x1], [y, y], color=style.MUTED, lw=1.0, ls=(0, (1, 2)))


def _draw_preemption(ax: Sheet, x: float, middle: float, height: float) -> None:
    ends = [middle - height / 2, middle + height / 2]
    ax.plot([x - 0.01] * 2, ends, color=style.VERMILION, lw=2.4, zorder=5)
    flag = [(x, middle - 0.06), (x + 0.1, middle), (x, middle + 0.06)]
    ax.add_artist(Polygon(flag, color=style.VERMILION, zorder=5))


def _draw_finish(ax: Sheet, x: float, middle: float) -> None:
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
    schedules: Mapping[str, Sequence[StepRecord]], ids: Sequence[str], arrivals: Mapping[str, int]
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


def _draw_key(page: Page, x: float, middle: float, mark: str) -> None:
    if mark == "waiting":
        _draw_wait(page.ax, x, x + 0.2, middle)
    elif mark == "preempted":
        _draw_preemption(page.ax, x + 0.08, middle, 0.2)
    elif mark == "finished":
        _draw_finish(page.ax, x + 0.07, middle)
    else:
        page.grid(x, middle - 0.08, 0.2, 0.16).cell(0, 0, **LOOKS[mark])
    page.note(x + 0.26, middle, WORDS[mark])
