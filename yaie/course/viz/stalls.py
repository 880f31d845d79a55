"""Schedules along the tokens that they compute: how long a request waits for its next token."""

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise

from matplotlib.figure import Figure

from yaie.course.viz import style
from yaie.course.viz.page import Page
from yaie.course.viz.schedule import LOOKS, StepRecord

LEFT, TOP, ROW, BLOCK = 1.0, 0.45, 0.3, 1.15  # inches


def draw_stalls(schedules: Mapping[str, Sequence[StepRecord]], request: str) -> Figure:
    """Draw each step as wide as its tokens, and the longest pause of a request that decodes.

    Args:
        schedules: name -> steps.
        request: whose tokens are marked; it has at least two in each schedule.
    """
    style.check_some(schedules, "schedules")
    longest = max(sum(step.num_tokens for step in steps) for steps in schedules.values())
    page = Page(style.WIDTH, BLOCK * len(schedules) + 0.5)
    scale = (page.width - LEFT - 0.2) / max(longest, 1)
    for index, (name, steps) in enumerate(schedules.items()):
        ends = list(accumulate((step.num_tokens for step in steps), initial=0))
        tokens = [ends[i + 1] for i, step in enumerate(steps) if _decodes(step, request)]
        if len(tokens) < 2:
            raise ValueError(f"request must have two tokens in {name!r}, got {len(tokens)}")
        y = BLOCK * index + 0.2
        page.put(0.12, y, name, weight="bold")
        grid = page.grid(LEFT, y + TOP - 0.25, scale, ROW, gap_below=0.06)
        for lane, words in enumerate(("steps", f"tokens of {request}")):
            page.put(0.12, grid.middle(lane), words, style.SMALL)
            grid.bar(lane, 0, longest, style.WASH)
        for step, begin in zip(steps, ends, strict=False):
            for _, kind, count in (work for work in step.work if work[1] != "idle"):
                grid.bar(0, begin, begin + count, LOOKS[kind]["face"])
                begin += count
        for end in ends[1:]:
            grid.bar(0, end, end, style.PAPER)
        before, after = max(pairwise(tokens), key=lambda pair: pair[1] - pair[0])
        words = f"{after - before} tokens are computed between two of {request}"
        grid.bar(1, before, after, style.VERMILION)
        for token in tokens:
            grid.bar(1, token - 1.5, token, style.INK)
        line = f"longest pause: {words}"
        page.put(LEFT, grid.y(2) + 0.09, line, style.SMALL, style.VERMILION)
        page.say(f"{name}: {style.count(len(steps), 'step')}, {ends[-1]} tokens; at most {words}")
    kinds = {kind: LOOKS[kind]["face"] for kind in ("prefill", "decode")}
    page.legend(LEFT, page.height - 0.2, kinds | {"longest pause": style.VERMILION})
    page.note(LEFT + 3.4, page.height - 0.2, "every step as wide as it has tokens")
    return page.figure


def _decodes(step: StepRecord, request: str) -> bool:
    return any(name == request and kind == "decode" for name, kind, _ in step.work)
