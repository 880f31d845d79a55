"""How long requests become, and what a fixed reservation for each would hold."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from yaie.course.viz import style

MARGIN = 0.12


def draw_lengths(
    prompts: Sequence[int],
    answers: Sequence[int],
    reserved: int,
    at: style.Place | None = None,
) -> Figure:
    """Draw a bar for each request, shortest first: its prompt, its answer, and what stays empty.

    Args:
        prompts, answers: tokens of each request.
        reserved: tokens that are set aside for every request.
    """
    if len(prompts) != len(answers):
        raise ValueError(f"answers must be {len(prompts)}, as prompts are, got {len(answers)}")
    pairs = sorted(zip(prompts, answers, strict=True), key=sum)
    page = style.Page(style.WIDTH, 2.9, at)
    key = ((style.BLUE, 0.75, "prompt"), (style.ORANGE, 0.75, "answer"))
    x = MARGIN + 0.5
    for color, strength, words in (*key, (style.INK, 0.1, f"reserved ({reserved:,}), empty")):
        style.box(page.ax, x, 0.1, 0.16, 0.16, style.tint(color, strength), radius=0.02)
        style.put(page.ax, x + 0.22, 0.19, words, style.SMALL, style.MUTED)
        x += 0.5 + style.text_width(words, style.SMALL)
    ax = style.plain(page.axes(MARGIN + 0.5, 0.4, style.WIDTH - 2 * MARGIN - 0.6, 2.05), left=True)
    places = range(1, len(pairs) + 1)
    ax.bar(places, [reserved] * len(pairs), 0.8, color=style.tint(style.INK, 0.1))
    ax.bar(places, [p for p, _ in pairs], 0.8, color=style.tint(style.BLUE, 0.75))
    ax.bar(places, [a for _, a in pairs], 0.8, [p for p, _ in pairs],
           color=style.tint(style.ORANGE, 0.75))  # fmt: skip
    ax.set(xlim=(0.3, len(pairs) + 0.7), ylim=(0, reserved))
    ax.set_ylabel("tokens", fontsize=style.SMALL, color=style.MUTED, fontfamily=style.FONT)
    words = f"{len(pairs)} requests, shortest first"
    ax.set_xlabel(words, fontsize=style.SMALL, color=style.MUTED, fontfamily=style.FONT)
    totals = [sum(pair) for pair in pairs]
    used = sum(totals) / reserved / len(totals)
    page.say(
        f"{style.count(len(pairs), 'request')}, prompt and answer together from {min(totals):,} to "
        f"{max(totals):,} tokens; {reserved:,} are reserved for each, {used:.0%} of which are used"
    )
    return page.figure
