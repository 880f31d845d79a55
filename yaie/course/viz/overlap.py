"""Thread blocks that share a multiprocessor: copies, products and exponentials along time."""

from __future__ import annotations

from dataclasses import dataclass

from matplotlib.figure import Figure

from yaie.course.viz import style

MARGIN, LEFT, WIDTH, ROW = 0.16, 1.55, 8.0, 0.24


@dataclass(frozen=True)
class Bar:
    """Something that a thread block does for one of its tiles."""

    block: int
    name: str
    begin: float
    end: float


@dataclass(frozen=True)
class Overlap:
    """What attention in tiles does when, in a model with three numbers.

    Attributes:
        thread_blocks: how many there are on the multiprocessor.
        copies, products, exponentials: in the order in which they begin.
    """

    thread_blocks: int
    copies: tuple[Bar, ...]
    products: tuple[Bar, ...]
    exponentials: tuple[Bar, ...]

    @property
    def end(self) -> float:
        """When the last product is done."""
        return self.products[-1].end

    @property
    def busy(self) -> float:
        """The share of the time in which the tensor cores multiply."""
        return sum(bar.end - bar.begin for bar in self.products) / self.end


def overlap(
    thread_blocks: int,
    tiles: int,
    copy: float = 3.0,
    product: float = 2.0,
    exponential: float = 2.0,
    ahead: bool = True,
) -> Overlap:
    """Run `tiles` tiles of keys in all, dealt out to thread blocks that share the units.

    A tile is a product, its exponentials, another product. The tensor cores do one product at a
    time, the unit for exponentials one tile's; any number of copies can be under way.

    Args:
        copy, product, exponential: how long each takes.
        ahead: whether the next tile is asked for when this one's first product begins, else when
            its second is done.
    """
    if thread_blocks < 1 or tiles < 1:
        raise ValueError(
            f"thread_blocks and tiles must be at least 1, got {thread_blocks} and {tiles}"
        )
    copies = [Bar(b, "0", 0.0, copy) for b in range(thread_blocks)]
    arrived = {(b, 0): copy for b in range(thread_blocks)}
    ready = [copy] * thread_blocks  # when each may go on
    at = [(0, 0)] * thread_blocks  # its tile and step
    counts = [tiles // thread_blocks + (b < tiles % thread_blocks) for b in range(thread_blocks)]
    free = {"product": 0.0, "exponential": 0.0}
    products, exponentials = [], []
    while any(at[b][0] < counts[b] for b in range(thread_blocks)):
        waiting = [b for b in range(thread_blocks) if at[b][0] < counts[b]]
        unit_of = {b: "exponential" if at[b][1] == 1 else "product" for b in waiting}
        block = min(waiting, key=lambda b: (max(ready[b], free[unit_of[b]]), ready[b], b))
        (tile, step), unit = at[block], unit_of[block]
        begin = max(ready[block], free[unit])
        end = begin + (exponential if step == 1 else product)
        name = f"{'sxo'[step]}{tile}"
        (exponentials if step == 1 else products).append(Bar(block, name, begin, end))
        ready[block] = free[unit] = end
        if step == (0 if ahead else 2) and tile + 1 < counts[block]:
            asked = begin if ahead else end
            copies.append(Bar(block, str(tile + 1), asked, asked + copy))
            arrived[block, tile + 1] = asked + copy
        at[block] = (tile, step + 1) if step < 2 else (tile + 1, 0)
        if step == 2 and tile + 1 < counts[block]:
            ready[block] = max(end, arrived[block, tile + 1])
    order = (sorted(bars, key=lambda bar: bar.begin) for bars in (copies, products, exponentials))
    return Overlap(thread_blocks, *map(tuple, order))


def draw_overlap(
    state: Overlap, until: float | None = None, at: style.Place | None = None
) -> Figure:
    """Draw who does what along time; a color a thread block, red where no product runs."""
    scale = WIDTH / (until or state.end)
    rows = [*(("copies", b) for b in range(state.thread_blocks)), ("tensor cores", -1), ("exp", -1)]
    page = style.Page(LEFT + WIDTH + MARGIN, 0.3 + len(rows) * ROW + 0.34, at)
    for i, (name, block) in enumerate(rows):
        y = 0.16 + i * ROW
        words = f"{name}, thread block {block}" if block >= 0 and state.thread_blocks > 1 else name
        style.put(page.ax, LEFT - 0.1, y + ROW / 2, words, style.SMALL, ha="right")
        if name == "copies":
            bars, strength = [bar for bar in state.copies if bar.block == block], 0.35
        else:
            bars, strength = (
                (state.products, 1.0) if name == "tensor cores" else (state.exponentials, 0.6)
            )
        if name == "tensor cores":
            before = 0.0
            for bar in bars:
                if bar.begin > before:
                    gap = style.tint(style.VERMILION, 0.35)
                    _bar(page, before * scale, y, (bar.begin - before) * scale, gap, "", style.INK)
                before = bar.end
        for bar in bars:
            color = style.tint((style.BLUE, style.GREEN, style.ORANGE)[bar.block % 3], strength)
            ink = style.PAPER if strength == 1.0 else style.INK
            _bar(page, bar.begin * scale, y, (bar.end - bar.begin) * scale, color, bar.name, ink)
    words = f"tensor cores busy {state.busy:.0%} of the time"
    style.put(page.ax, LEFT, 0.16 + len(rows) * ROW + 0.16, words, style.SMALL, weight="bold")
    page.say(
        f"{style.count(state.thread_blocks, 'thread block')} on a multiprocessor, "
        f"{style.count(len(state.copies), 'tile')} copied, multiplied and exponentiated in "
        f"{state.end:g} units of time: {words}"
    )
    return page.figure


def _bar(page: style.Page, x: float, y: float, width: float, face, name: str, ink: str) -> None:
    style.box(page.ax, LEFT + x, y, max(width - 0.015, 0.01), ROW - 0.04, face, radius=0.02)
    if name and width > style.text_width(name, 6.5) + 0.03:
        style.put(page.ax, LEFT + x + width / 2, y + ROW / 2 - 0.02, name, 6.5, ink, "center")
