"""A tile of attention: two products side by side, and what a warp and a lane hold of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from yaie.course.viz import style

MARGIN = 0.16
GAP = 0.3
SIDE = 1.25  # inches of head_dim, and of the longer one of rows and keys

Cell = tuple[int, int]


@dataclass(frozen=True)
class TileOwners:
    """Who holds what while a tile of keys is taken in.

    Attributes:
        name: of the rung.
        rows, keys, dims: queries of the tile of queries, keys of the tile of keys, head_dim.
        warps: (first row, rows) of each warp.
        warp: the one that is marked.
        scores, sums: (row, key) and (row, element) of the scores and of the output that the
            marked lane of the marked warp holds in registers.
        shared: the names of what lies in shared memory, of "q", "k", "v"; the rest is read from
            global memory into registers.
        reads_k, reads_v: rows of k (keys) and elements of v that the marked lane reads.
    """

    name: str
    rows: int
    keys: int
    dims: int
    warps: tuple[tuple[int, int], ...]
    warp: int
    scores: tuple[Cell, ...]
    sums: tuple[Cell, ...]
    shared: str
    reads_k: tuple[int, ...]
    reads_v: tuple[int, ...]


def draw_tile_owners(state: TileOwners, at: style.Place | None = None) -> Figure:
    """Draw scores = q kᵀ and out += weights v, each product with its factors beside and above."""
    unit, thin = SIDE / max(state.rows, state.keys), SIDE / state.dims
    height, width = state.rows * unit, state.keys * unit
    q_x, s_x = MARGIN, MARGIN + SIDE + GAP
    o_x, bottom = s_x + max(width, 0.62) + GAP, 0.5 + SIDE + GAP
    page = style.Page(o_x + SIDE + MARGIN, bottom + height + 0.5, at)
    ax = page.ax
    style.put(ax, MARGIN, 0.18, state.name, style.BODY, weight="bold")
    first, count = state.warps[state.warp]
    boxes = {
        "q": (q_x, bottom, SIDE, height, "q"),
        "k": (s_x, bottom - GAP - SIDE, width, SIDE, "k, transposed"),
        "v": (o_x, bottom - GAP - width, SIDE, width, "v"),
        "s": (s_x, bottom, width, height, "scores"),
        "o": (o_x, bottom, SIDE, height, "out"),
    }
    for key, (x, y, w, h, title) in boxes.items():
        face = style.tint(style.GREEN if key in state.shared else style.SKY, 0.16)
        face = style.WASH if key in "qkv" and key not in state.shared else face
        ax.add_artist(Rectangle((x, y), w, h, facecolor=face, edgecolor=style.MUTED, lw=0.7))
        style.put(ax, x, y - 0.09, title, style.SMALL, weight="bold")
    for row, rows in state.warps[1:]:
        for key in "qso":
            x, y, w, *_ = boxes[key]
            ax.plot([x, x + w], [y + row * unit] * 2, color=style.FAINT, lw=0.5)
        del rows
    mark = style.tint(style.ORANGE, 0.55)
    for key in "qso":
        x, y, w, *_ = boxes[key]
        color = mark if key == "q" else style.tint(style.BLUE, 0.3)
        ax.add_artist(Rectangle((x, y + first * unit), w, count * unit, facecolor=color))
    x, y, *_ = boxes["k"]
    for key in state.reads_k:
        ax.add_artist(Rectangle((x + key * unit, y), unit, SIDE, facecolor=mark))
    x, y, *_ = boxes["v"]
    for d in state.reads_v:
        ax.add_artist(Rectangle((x + d * thin, y), thin, width, facecolor=mark))
    for key, cells, across in (("s", state.scores, unit), ("o", state.sums, thin)):
        x, y, *_ = boxes[key]
        for row, column in cells:
            place = (x + column * across, y + row * unit)
            ax.add_artist(Rectangle(place, across, unit, facecolor=style.BLUE))
    _legend(page, state, bottom + height + 0.2)
    page.say(
        f"{state.name}: scores of {state.rows} queries and {state.keys} keys, head_dim "
        f"{state.dims}; {style.some(state.shared) or 'nothing'} in shared memory"
    )
    page.say(
        f"Warp {state.warp} has {style.count(count, 'row')}, one of its lanes "
        f"{style.count(len(state.scores), 'score')} and {style.count(len(state.sums), 'element')} "
        f"of out; it reads {style.count(len(state.reads_k), 'key')}, and {len(state.reads_v)} of "
        f"the {state.dims} elements of each value"
    )
    return page.figure


def _legend(page: style.Page, state: TileOwners, y: float) -> None:
    """What the colors mean, as far as they occur."""
    kinds: Sequence[tuple[object, str]] = (
        *([(style.tint(style.GREEN, 0.16), "shared memory")] if state.shared else []),
        *([(style.WASH, "global memory")] if len(state.shared) < 3 else []),
        (style.tint(style.BLUE, 0.3), f"registers of warp {state.warp}"),
        (style.BLUE, "of one lane"),
        (style.tint(style.ORANGE, 0.55), "read for it"),
    )
    x = MARGIN
    for color, words in kinds:
        length = 0.26 + style.text_width(words, style.SMALL)
        if x + length > page.width:
            x, y = MARGIN, y + 0.2
        ax = page.ax
        box = Rectangle((x, y - 0.07), 0.13, 0.13, facecolor=color, edgecolor=style.MUTED, lw=0.4)
        ax.add_artist(box)
        style.put(ax, x + 0.18, y, words, style.SMALL)
        x += length + 0.12
