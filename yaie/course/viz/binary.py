"""A fat binary: the pieces of one shared object, and which of them a card takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from yaie.course.viz import style

MARGIN = 0.14
WHOLE, LEAST = 9.4, 0.5  # inches of all pieces, and of the smallest
TOP, HEIGHT = 0.62, 0.62
CARDS, CARD_HEIGHT = 1.95, 0.5


@dataclass(frozen=True)
class Piece:
    """A part of the file.

    Attributes:
        name: such as "sm_80".
        size: bytes.
        kind: "code" for one architecture, "PTX", or "host".
    """

    name: str
    size: int
    kind: str = "code"


COLORS = {"code": style.BLUE, "PTX": style.ORANGE, "host": style.FAINT}


def draw_binary(
    pieces: Sequence[Piece],
    cards: Mapping[str, str | None],
    title: str = "",
    at: style.Place | None = None,
) -> Figure:
    """Draw the pieces side by side, the larger the wider, and the cards below.

    Args:
        cards: the name of each card -> the piece that it runs; None if it can run none.
    """
    names = {piece.name for piece in pieces}
    for card, piece in cards.items():
        if piece is not None and piece not in names:
            raise ValueError(f"{card} takes {piece!r}, which is none of {sorted(names)}")
    page = style.Page(style.WIDTH - 0.3, CARDS + CARD_HEIGHT + MARGIN, at)
    style.put(page.ax, MARGIN, 0.2, title, style.BODY, weight="bold")
    room = WHOLE - LEAST * len(pieces)
    total = sum(piece.size for piece in pieces)
    x, middle = MARGIN, {}
    for piece in pieces:
        width = LEAST + room * piece.size / total
        color = COLORS[piece.kind]
        style.box(page.ax, x + 0.01, TOP, width - 0.02, HEIGHT, style.tint(color, 0.5), color)
        middle[piece.name] = x + width / 2
        label = style.shorten(piece.name, max(width - 0.08, 0.3), style.SMALL)
        style.put(page.ax, x + width / 2, TOP + 0.23, label, style.SMALL, ha="center")
        size = f"{piece.size / 1000:.1f} kB"
        style.put(page.ax, x + width / 2, TOP + 0.43, size, style.SMALL, style.MUTED, "center")
        x += width
    step = WHOLE / max(len(cards), 1)
    for i, (card, piece) in enumerate(cards.items()):
        left = MARGIN + i * step + 0.05
        color = style.VERMILION if piece is None else style.MUTED
        style.box(page.ax, left, CARDS, step - 0.1, CARD_HEIGHT, style.WASH, color, 0.8)
        center = left + step / 2 - 0.05
        says = {True: "runs none of it", False: f"runs {piece}"}[piece is None]
        compiled = any(p.name == piece and p.kind == "PTX" for p in pieces)
        says = "compiles the PTX" if compiled else says
        style.put(page.ax, center, CARDS + 0.17, card, style.SMALL, ha="center")
        style.put(page.ax, center, CARDS + 0.36, says, style.SMALL, color, "center")
        if piece is not None:
            page.ax.plot([middle[piece], center], [TOP + HEIGHT + 0.03, CARDS - 0.03],
                         color=style.MUTED, lw=1.0)  # fmt: skip
    sizes = (f"{piece.name} {piece.size / 1000:.1f} kB" for piece in pieces)
    runs = (f"{card} {piece or 'none of it'}" for card, piece in cards.items())
    page.say(f"{title}: {style.some(sizes)}. What each card runs: {style.some(runs)}")
    return page.figure
