"""Requests and the blocks of a pool: slots, waste, prefix cache, readers, splits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from yaie.course.viz import style
from yaie.course.viz.blocks import PoolState, cached_blocks, draw_blocks, snapshot_pool
from yaie.course.viz.page import Page, Place
from yaie.course.viz.style import FAINT, INK, MUTED, PAPER, SMALL, WASH, WIDTH, series_color, tint
from yaie.course.viz.tree import draw_tree
from yaie.course.viz.tree_state import TreeState, snapshot_tree

# ---------------------------------------------------------------------------------- slots

MARGIN = 0.12
HEIGHT = 0.34
GAP = 0.12  # between blocks
TOP = 0.3  # of the row of tokens
FALL = 0.85  # from the row of tokens to the pool


def draw_slots(
    tokens: Sequence[str],
    slots: Sequence[int],
    num_blocks: int,
    block_size: int,
    width: float = WIDTH,
    at: Place | None = None,
) -> Figure:
    """Draw a request's tokens above, the pool as one row of slots below, and what joins them.

    Args:
        tokens: the text of each token.
        slots: where each token's key and value lie.
    """
    if len(tokens) != len(slots):
        raise ValueError(f"slots must be {len(tokens)}, one for each token, got {len(slots)}")
    num_slots = num_blocks * block_size
    outside = [slot for slot in slots if not 0 <= slot < num_slots]
    if outside:
        raise ValueError(f"slots must be from 0 to {num_slots - 1}, got {outside[0]}")
    cell = (width - 2 * MARGIN - GAP * (num_blocks - 1)) / num_slots
    pool_top = TOP + HEIGHT + FALL
    page = Page(width, pool_top + HEIGHT + 0.42, at)
    ax = page.ax
    words = f"{style.count(len(tokens), 'token')}, in their order"
    ax.note(MARGIN, 0.14, words)
    # The row of tokens is cut where blocks end, as the pool is, and stands above its middle.
    num_pieces = -(-len(tokens) // block_size)
    row = len(tokens) * cell + GAP * (num_pieces - 1)
    left = MARGIN + max(0.0, (width - 2 * MARGIN - row) / 2)

    def pool_x(slot: int) -> float:
        return MARGIN + slot * cell + slot // block_size * GAP

    for slot in range(num_slots):
        ax.box(pool_x(slot), pool_top, cell - 0.02, HEIGHT, PAPER, FAINT, 0.8, 0.03)
        ax.put(
            pool_x(slot) + cell / 2 - 0.01, pool_top + HEIGHT + 0.1, str(slot), 6.5, MUTED, "center"
        )
    for block in range(num_blocks):
        x = pool_x(block * block_size) + block_size * cell / 2
        ax.put(x, pool_top + HEIGHT + 0.28, f"block {block}", SMALL, INK, "center")
    for i, (text, slot) in enumerate(zip(tokens, slots, strict=True)):
        color = series_color(i // block_size)
        x, label = left + i * cell + i // block_size * GAP, style.shorten(text, cell - 0.06, 7)
        for x0, y0 in ((x, TOP), (pool_x(slot), pool_top)):
            ax.cell(x0, y0, cell - 0.02, HEIGHT, label, tint(color, 0.45), radius=0.03, size=7)
        middle = cell / 2 - 0.01
        ax.plot(
            [x + middle, pool_x(slot) + middle],
            [TOP + HEIGHT + 0.02, pool_top - 0.02],
            color=tint(color, 0.7),
            lw=1.1,
        )
    pairs = (f"{text.strip()} {slot}" for text, slot in zip(tokens, slots, strict=True))
    page.say(f"Tokens and their slots, in blocks of {block_size}: {style.some(pairs, 12)}")
    return page.figure


# ---------------------------------------------------------------------------------- fragmentation


@dataclass(frozen=True)
class Extent:
    """A piece of memory given to a request, in tokens: `used` of its `size` hold something."""

    start: int
    size: int
    used: int
    owner: int = 0


def pool_extents(state: PoolState) -> list[Extent]:
    """The extents of a paged cache: its blocks."""
    extents: dict[int, Extent] = {}
    size = state.block_size
    colors = style.name_colors(state.tables)
    for name, table in state.tables.items():
        for i, block in enumerate(table):
            used = min(size, state.lengths[name] - i * size)
            extents.setdefault(block, Extent(block * size, size, used, colors[name]))
    return list(extents.values())


def draw_fragmentation(
    layouts: Mapping[str, Sequence[Extent]], capacity: int, at: Place | None = None
) -> Figure:
    """Compare ways to lay requests out in the same memory.

    Each layout is a bar of `capacity` tokens: colored where tokens are, hatched where memory is
    reserved and empty, white where it is free. The words beside it count the three.
    """
    if not layouts:
        raise ValueError("layouts must name at least one layout, got none")
    bar_height, row = 0.42, 0.98
    page = Page(WIDTH, MARGIN + row * len(layouts), at)
    scale = (page.width - 2 * MARGIN) / capacity
    for i, (name, extents) in enumerate(layouts.items()):
        y = MARGIN + row * i
        used = sum(extent.used for extent in extents)
        reserved = sum(extent.size for extent in extents) - used
        requests = len({extent.owner for extent in extents})
        page.put(MARGIN, y + 0.1, name, 9.5, weight="bold")
        _draw_memory(page.ax, extents, capacity, y + 0.24, bar_height, scale)
        free = capacity - used - reserved
        words = (
            f"{style.count(requests, 'request')};  {used / capacity:.0%} holds tokens, "
            f"{reserved / capacity:.0%} reserved and empty, {free / capacity:.0%} free"
        )
        longest = _longest_hole(extents, capacity)
        if 0 < longest < free:
            words += f" (longest hole: {longest} tokens)"
        page.note(MARGIN, y + 0.24 + bar_height + 0.12, words)
        page.say(f"{name}: {words}")
    return page.figure


def _draw_memory(
    ax: Axes, extents: Sequence[Extent], capacity: int, y: float, height: float, scale: float
) -> None:
    ax.box(MARGIN, y, capacity * scale, height, PAPER, FAINT, radius=0.0)
    for extent in extents:
        color = series_color(extent.owner)
        x = MARGIN + extent.start * scale
        if extent.size > extent.used:
            ax.add_artist(
                _rectangle(
                    x, y, extent.size * scale, height, tint(color, 0.12), "////", tint(color, 0.55)
                )
            )
        ax.add_artist(_rectangle(x, y, extent.used * scale, height, tint(color, 0.75)))
    ax.box(MARGIN, y, capacity * scale, height, "none", "#8d949f", radius=0.0)


def _rectangle(x, y, width, height, face, hatch=None, edge="none") -> Rectangle:
    return Rectangle(
        (x, y), width, height, facecolor=face, edgecolor=edge, hatch=hatch, linewidth=0.0
    )


def _longest_hole(extents: Sequence[Extent], capacity: int) -> int:
    end = longest = 0
    for extent in sorted(extents, key=lambda extent: extent.start):
        longest = max(longest, extent.start - end)
        end = max(end, extent.start + extent.size)
    return max(longest, capacity - end)


# ---------------------------------------------------------------------------------- cache


@dataclass(frozen=True)
class CacheState:
    """The tree and the pool of a prefix cache at the same moment."""

    tree: TreeState
    pool: PoolState


def snapshot_cache(
    manager: Any,
    cache: Any,
    decode: Callable[[list[int]], str] | None = None,
    matched: Sequence[int] = (),
) -> CacheState:
    """Record a `KVCacheManager` and the `RadixCache` over its pool.

    Args:
        decode: turns token ids into the text of a node.
        matched: tokens that a match has just found.
    """
    tree = snapshot_tree(cache.tree, decode, matched=matched)
    return CacheState(tree, snapshot_pool(manager, cached=cached_blocks(cache.tree)))


def draw_cache(
    state: CacheState,
    previous: CacheState | None = None,
    width: float = WIDTH,
    at: Place | None = None,
) -> Figure:
    """Draw the tree, and below it the block tables and the pool."""
    before = (None, None) if previous is None else (previous.tree, previous.pool)

    def tree(at: Place | None = None) -> Figure:
        return draw_tree(state.tree, before[0], width, at=at)

    def pool(at: Place | None = None) -> Figure:
        return draw_blocks(state.pool, before[1], width, at=at)

    (tree_width, tree_height), (pool_width, pool_height) = (
        panel().get_size_inches() for panel in (tree, pool)
    )
    page = Page(max(tree_width, pool_width), tree_height + pool_height, at)
    x, y = (at.x, at.y) if at else (0.0, 0.0)
    tree(at=Place(page.figure, x, y))
    pool(at=Place(page.figure, x, y + tree_height))
    return page.figure


# ---------------------------------------------------------------------------------- prefix

PREFIX_MARGIN = 0.14
LEFT = 1.05
BLOCK = 0.42, 0.3
PREFIX_GAP = 0.07
PREFIX_TOP = 0.62


@dataclass(frozen=True)
class Prefix:
    """A batch.

    Attributes:
        tables: the blocks of each sequence.
        shared: how many blocks at the beginning of the tables are the same.
        rows: query heads of a sequence that share a KV head.
        once: whether the shared blocks are read once for all sequences.
    """

    tables: tuple[tuple[int, ...], ...]
    shared: int
    rows: int
    once: bool


def draw_prefix(state: Prefix, at: Place | None = None) -> Figure:
    """Draw a row of blocks for each sequence; what is read at once is one box, what is shared pink.

    Below: how many blocks are read, and how many rows of queries each part has to offer.
    """
    many, most = len(state.tables), max(map(len, state.tables))
    step = BLOCK[0] + PREFIX_GAP, BLOCK[1] + PREFIX_GAP
    width = LEFT + most * step[0] + 0.25 + PREFIX_MARGIN
    page = Page(max(width, 4.4), PREFIX_TOP + many * step[1] + 0.52, at)
    ax, split = page.ax, state.shared * step[0]
    own_left = LEFT + split + 0.25
    for i, table in enumerate(state.tables):
        y = PREFIX_TOP + i * step[1]
        color = series_color(i)
        ax.put(PREFIX_MARGIN, y + BLOCK[1] / 2, f"sequence {i}", SMALL, weight="bold")
        for j, block in enumerate(table):
            shared = j < state.shared
            if shared and state.once:
                continue
            x = (LEFT if shared else own_left - split) + j * step[0]
            face = tint(style.SHARED if shared else color, 0.35)
            ax.box(x, y, *BLOCK, face, tint(color, 0.9), radius=0.03)
            ax.put(x + BLOCK[0] / 2, y + BLOCK[1] / 2, str(block), SMALL, ha="center")
    if state.once:
        height = many * step[1] - PREFIX_GAP
        for j, block in enumerate(state.tables[0][: state.shared]):
            x = LEFT + j * step[0]
            face = tint(style.SHARED, 0.35)
            ax.cell(x, PREFIX_TOP, BLOCK[0], height, str(block), face, style.SHARED, radius=0.03)
    own = sum(len(table) - state.shared for table in state.tables)
    read = own + state.shared * (1 if state.once else many)
    title = "shared blocks once" if state.once else "every context for itself"
    ax.put(PREFIX_MARGIN, 0.18, f"{title}: {style.count(read, 'block')} read", weight="bold")
    together, each = (state.rows * many, "in all") if state.once else (state.rows, "each")
    words = f"{style.count(together, 'row')} of queries {each}"
    ax.note(LEFT, PREFIX_TOP - 0.14, words)
    words = f"{style.count(state.rows, 'row')} each"
    ax.note(own_left, PREFIX_TOP - 0.14, words)
    distinct = own + state.shared
    note = f"{distinct} different blocks; each is read {read / distinct:.2g} times on average"
    ax.note(PREFIX_MARGIN, page.height - 0.18, note)
    page.say(f"{many} sequences that begin with the same {style.count(state.shared, 'block')}")
    page.say(
        f"{title}: {style.count(read, 'block')} read, the shared ones with "
        f"{style.count(together, 'row')} of queries {each}; {note}"
    )
    return page.figure


# ---------------------------------------------------------------------------------- readers

READERS_MARGIN = 0.14
READERS_LEFT = 1.75
CELL = 0.3, 0.24
READERS_TOP = 0.56


@dataclass(frozen=True)
class Readers:
    """A launch.

    Attributes:
        names: of the thread blocks.
        owners: for each, the number of its sequence, which gives it its color.
        reads: for each, the blocks of the pool that it reads.
        num_blocks: of the pool.
    """

    names: tuple[str, ...]
    owners: tuple[int, ...]
    reads: tuple[frozenset[int], ...]
    num_blocks: int


def draw_readers(state: Readers, at: Place | None = None) -> Figure:
    """Draw a row for each thread block, a column for each block, and how often each is read."""
    rows = len(state.names)
    page = Page(
        READERS_LEFT + state.num_blocks * CELL[0] + READERS_MARGIN,
        READERS_TOP + rows * CELL[1] + 0.42,
        at,
    )
    ax = page.ax
    ax.put(READERS_MARGIN, 0.18, style.count(rows, "thread block"), weight="bold")
    ax.note(READERS_LEFT - 0.1, READERS_TOP - 0.14, "block of the pool", "right")
    bottom = READERS_TOP + rows * CELL[1] + 0.14
    ax.note(READERS_LEFT - 0.1, bottom, "times read", "right")
    for block in range(state.num_blocks):
        middle = READERS_LEFT + (block + 0.5) * CELL[0]
        count = sum(block in reads for reads in state.reads)
        ax.note(middle, READERS_TOP - 0.14, str(block), "center")
        ax.put(
            middle,
            bottom,
            str(count) if count else "·",
            SMALL,
            INK if count else FAINT,
            "center",
            weight="bold",
        )
    for row, (name, owner, reads) in enumerate(
        zip(state.names, state.owners, state.reads, strict=True)
    ):
        y = READERS_TOP + row * CELL[1]
        ax.put(READERS_LEFT - 0.1, y + CELL[1] / 2 - 0.02, name, SMALL, ha="right")
        for block in range(state.num_blocks):
            face = WASH
            if block in reads:
                face = tint(series_color(owner), 0.8)
            x = READERS_LEFT + block * CELL[0]
            ax.box(x, y, CELL[0] - 0.04, CELL[1] - 0.04, face, radius=0.02)
    times = sum(map(len, state.reads))
    blocks = style.count(len(frozenset().union(*state.reads)), "block")
    page.say(f"{style.count(rows, 'thread block')} read {blocks} of the pool, {times} times in all")
    each = (f"{n}: {style.some(sorted(r))}" for n, r in zip(state.names, state.reads, strict=True))
    page.say("; ".join(each))
    return page.figure
