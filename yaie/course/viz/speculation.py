"""Speculative decoding: what each pass of the model was given, and what it left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import takewhile

from matplotlib.figure import Figure

from yaie.course.viz import style

MARGIN = 0.12
LINE, HIGH, GAP = 0.36, 0.26, 0.06
WIDEST = 1.4


def draw_speculation(
    rounds: Sequence[tuple[Sequence, Sequence]],
    decode: Callable[[list], str] = lambda ids: str(ids[0]),
    max_rounds: int = 24,
    at: style.Place | None = None,
) -> Figure:
    """Draw passes, one a line: the drafted tokens that were kept, those that were not, and the
    model's own choice.

    Args:
        rounds: `(draft, accepted)` of each pass.
        decode: the text of `[token]`.
    """
    shown = list(rounds[:max_rounds])
    more = len(rounds) - len(shown)
    page = style.Page(style.WIDTH, 0.55 + (len(shown) + bool(more)) * LINE + 0.1, at)
    x = MARGIN
    for name, color in (
        ("drafted and kept", style.GREEN),
        ("drafted in vain", style.FAINT),
        ("the model's own", style.BLUE),
    ):
        style.box(page.ax, x, 0.1, 0.2, 0.18, face=style.tint(color, 0.45), edge=color)
        style.put(page.ax, x + 0.28, 0.2, name, style.SMALL, color=style.MUTED)
        x += 0.28 + style.text_width(name, style.SMALL) + 0.3
    for number, (draft, accepted) in enumerate(shown):
        y = 0.45 + number * LINE
        style.put(page.ax, MARGIN, y + HIGH / 2, f"pass {number + 1}", color=style.MUTED)
        pairs = zip(draft, accepted, strict=False)
        kept = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        x = 1.0
        for token in accepted[:kept]:
            x = _token(page, x, y, decode([token]), style.GREEN)
        for token in accepted[kept:]:
            x = _token(page, x, y, decode([token]), style.BLUE)
        x += 0.15
        for token in draft[kept:]:
            x = _token(page, x, y, decode([token]), style.FAINT)
    if more:
        y = 0.45 + len(shown) * LINE
        style.put(page.ax, MARGIN, y + HIGH / 2, f"and {more} more", color=style.MUTED)
    kept = [
        sum(
            1
            for _ in takewhile(lambda pair: pair[0] == pair[1], zip(draft, accepted, strict=False))
        )
        for draft, accepted in rounds
    ]
    page.say(
        f"Passes of the model: {len(rounds)}, for {sum(len(a) for _, a in rounds)} tokens; "
        f"{sum(kept)} of {sum(len(d) for d, _ in rounds)} drafted tokens were kept, by pass: "
        f"{style.some(kept, 24)}"
    )
    return page.figure


def _token(page, x: float, y: float, text: str, color) -> float:
    text = style.shorten(style.token_label(text), WIDEST)
    width = style.text_width(text) + 0.14
    if x + width > style.WIDTH - MARGIN:
        return x
    style.box(page.ax, x, y, width, HIGH, face=style.tint(color, 0.45), edge=color, line=0.8)
    ink = style.MUTED if color == style.FAINT else style.INK
    style.put(page.ax, x + width / 2, y + HIGH / 2 + 0.01, text, color=ink, ha="center")
    return x + width + GAP
