"""A tile in shared memory: which bank each word lies in, and which words one warp asks for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from matplotlib.figure import Figure

from yaie.course.viz import style

BANKS, WORD = 32, 4  # how many; bytes that each gives at a time
CELL = 0.13
LEFT, TOP, RIGHT = 0.3, 0.5, 0.08
TALLY = 0.5  # the height of the longest bar below the tile


@dataclass(frozen=True)
class TileAccess:
    """What one warp asks of a two-dimensional array of 4-byte words in shared memory.

    Attributes:
        offsets: for each lane the byte that it touches, such as `worst` of a report's access.
        pitch: words from one row of the array to the next.
        rows: of the array. `columns` of each row are in use, the rest is padding.
    """

    offsets: Mapping[int, int]
    pitch: int
    rows: int = 32
    columns: int = 32

    @property
    def words(self) -> list[int]:
        """The words that are asked for, each once."""
        return sorted({offset // WORD for offset in self.offsets.values()})

    @property
    def wavefronts(self) -> int:
        """The most words that lie in one bank: they come one after the other."""
        return max(Counter(word % BANKS for word in self.words).values())


def draw_tile_banks(state: TileAccess, at: style.Place | None = None) -> Figure:
    """Draw the array with a shade for each bank, the words asked for, and how many a bank gives."""
    if not state.offsets:
        raise ValueError("state must have an access of at least one lane, got none")
    if max(state.words) >= state.rows * state.pitch:
        raise ValueError(f"word {max(state.words)} is past {state.rows} rows of {state.pitch}")
    width = LEFT + max(state.pitch, BANKS) * CELL + RIGHT
    below = TOP + state.rows * CELL
    page = style.Page(width, below + TALLY + 0.62, at)
    _draw_words(page, state)
    _draw_tally(page, state, below + 0.16)
    words = style.count(state.wavefronts, "word")
    page.say(
        f"An array of {state.rows} rows of {state.pitch} words in shared memory; of the "
        f"{len(state.words)} words that a warp asks for, {words} in the fullest of {BANKS} banks: "
        f"{style.count(state.wavefronts, 'wavefront')}"
    )
    return page.figure


def _draw_words(page: style.Page, state: TileAccess) -> None:
    asked, color = set(state.words), _color(state)
    style.put(page.ax, LEFT, 0.2, f"rows of {state.pitch} words", style.SMALL, style.MUTED)
    for column in range(0, state.pitch, 4):
        style.put(page.ax, LEFT + (column + 0.5) * CELL, TOP - 0.1, str(column), 5.5, style.MUTED,
                  "center")  # fmt: skip
    for row in range(state.rows):
        y = TOP + row * CELL
        if row % 4 == 0:
            style.put(page.ax, LEFT - 0.06, y + CELL / 2, str(row), 5.5, style.MUTED, "right")
        for column in range(state.pitch):
            word = row * state.pitch + column
            bank = word % BANKS
            used = column < state.columns
            face = style.tint(style.BLUE, 0.04 + 0.5 * bank / (BANKS - 1)) if used else style.PAPER
            edge = "none" if used else style.FAINT
            x = LEFT + column * CELL
            if word in asked:
                face = color
            style.box(page.ax, x, y, CELL - 0.01, CELL - 0.01, face, edge, 0.5, 0.0)
            if word in asked:
                style.put(page.ax, x + CELL / 2 - 0.005, y + CELL / 2, str(bank), 4.8, style.PAPER,
                          "center", weight="bold")  # fmt: skip


def _draw_tally(page: style.Page, state: TileAccess, top: float) -> None:
    """A bar for each bank: the words that it has to give."""
    counts = Counter(word % BANKS for word in state.words)
    most = state.wavefronts
    for bank in range(BANKS):
        x = LEFT + bank * CELL
        height = TALLY * counts[bank] / max(most, 4)
        style.box(page.ax, x, top, CELL - 0.02, 0.02, style.FAINT, radius=0.0)
        if counts[bank]:
            style.box(page.ax, x, top, CELL - 0.02, max(height, 0.04), _color(state), radius=0.01)
    words = f"{style.count(most, 'word')} in the fullest bank: {style.count(most, 'wavefront')}"
    style.put(page.ax, LEFT, top + TALLY + 0.2, words, style.SMALL, _color(state), weight="bold")
    label = f"bank 0 to {BANKS - 1}"
    style.put(page.ax, page.width - RIGHT, top + TALLY + 0.2, label, style.SMALL, style.MUTED,
              "right")  # fmt: skip


def _color(state: TileAccess) -> str:
    return style.VERMILION if state.wavefronts > 1 else style.GREEN
