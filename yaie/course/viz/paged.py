"""Requests and the blocks of a pool: slots, waste, prefix cache, readers, splits."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from matplotlib.figure import Figure

from yaie.course.viz import style
from yaie.course.viz.blocks import PoolState, cached_blocks, draw_blocks, snapshot_pool
from yaie.course.viz.page import Page, size_of
from yaie.course.viz.style import FAINT, INK, PAPER, SMALL, WASH, WIDTH, series_color, tint
from yaie.course.viz.tree import draw_tree
from yaie.course.viz.tree_state import TreeState, snapshot_tree

MARGIN = 0.12

# ---------------------------------------------------------------------------------- slots


def draw_slots(
    tokens: Sequence[str], slots: Sequence[int], num_blocks: int, block_size: int
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
    gap, height, top, pool_top = 0.12, 0.34, 0.3, 1.49  # inches; `gap` between blocks
    cell = (WIDTH - 2 * MARGIN - gap * (num_blocks - 1)) / num_slots
    page = Page(WIDTH, pool_top + height + 0.42)
    page.note(MARGIN, 0.14, f"{style.count(len(tokens), 'token')}, in their order")
    # The row of tokens is cut where blocks end, as the pool is, and stands above its middle.
    row = len(tokens) * cell + gap * (-(-len(tokens) // block_size) - 1)
    left = max(MARGIN, (WIDTH - row) / 2)
    above = page.grid(left, top, cell, height, 0.02, 0)
    below = page.grid(MARGIN, pool_top, cell, height, 0.02, 0)

    def place(index: int) -> float:
        """The column of a token or a slot: after each block, the gap."""
        return index + index // block_size * gap / cell

    for slot in range(num_slots):
        below.cell(0, place(slot), PAPER, edge=FAINT, radius=0.03)
        x = below.x(place(slot) + 0.5) - 0.01
        page.put(x, pool_top + height + 0.1, str(slot), 6.5, style.MUTED, "center")
    for block in range(num_blocks):
        x = below.x(place(block * block_size) + block_size / 2)
        page.put(x, pool_top + height + 0.28, f"block {block}", SMALL, ha="center")
    for i, (text, slot) in enumerate(zip(tokens, slots, strict=True)):
        color = series_color(i // block_size)
        label, face = style.shorten(text, cell - 0.06, 7), tint(color, 0.45)
        above.cell(0, place(i), face, label, size=7, radius=0.03)
        below.cell(0, place(slot), face, label, size=7, radius=0.03)
        xs = [above.x(place(i) + 0.5) - 0.01, below.x(place(slot) + 0.5) - 0.01]
        page.plot(xs, [top + height + 0.02, pool_top - 0.02], color=tint(color, 0.7), lw=1.1)
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


def draw_fragmentation(layouts: Mapping[str, Sequence[Extent]], capacity: int) -> Figure:
    """Compare ways to lay requests out in the same memory.

    Each layout is a bar of `capacity` tokens: colored where tokens are, hatched where memory is
    reserved and empty, white where it is free. The words beside it count the three.
    """
    style.check_some(layouts, "layouts")
    row = 0.98
    page = Page(WIDTH, MARGIN + row * len(layouts))
    unit = (page.width - 2 * MARGIN) / capacity
    grid = page.grid(MARGIN, MARGIN + 0.24, unit, row, gap_below=row - 0.42)
    for i, (name, extents) in enumerate(layouts.items()):
        used = sum(extent.used for extent in extents)
        reserved = sum(extent.size for extent in extents) - used
        requests = len({extent.owner for extent in extents})
        page.put(MARGIN, grid.y(i) - 0.14, name, 9.5, weight="bold")
        grid.area((i, i + 1), (0, capacity), PAPER)
        for extent in extents:
            color, start = series_color(extent.owner), extent.start
            if extent.size > extent.used:
                look = {"edge": tint(color, 0.55), "line": 0.0, "hatch": "////"}
                span = start, start + extent.size
                grid.area((i, i + 1), span, tint(color, 0.12), **look)
            grid.area((i, i + 1), (start, start + extent.used), tint(color, 0.75), line=0.0)
        grid.area((i, i + 1), (0, capacity), edge="#8d949f", line=1.0)
        free = capacity - used - reserved
        words = (
            f"{style.count(requests, 'request')};  {used / capacity:.0%} holds tokens, "
            f"{reserved / capacity:.0%} reserved and empty, {free / capacity:.0%} free"
        )
        longest = _longest_hole(extents, capacity)
        if 0 < longest < free:
            words += f" (longest hole: {longest} tokens)"
        page.note(MARGIN, grid.y(i) + 0.54, words)
        page.say(f"{name}: {words}")
    return page.figure


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
    state: CacheState, previous: CacheState | None = None, width: float = WIDTH
) -> Figure:
    """Draw the tree, and below it the block tables and the pool."""
    before = (None, None) if previous is None else (previous.tree, previous.pool)
    tree = partial(draw_tree, state.tree, before[0], width)
    pool = partial(draw_blocks, state.pool, before[1], width)
    sizes = [size_of(panel) for panel in (tree, pool)]
    page = Page(max(width for width, _ in sizes), sum(height for _, height in sizes))
    for panel, y in ((tree, 0.0), (pool, sizes[0][1])):
        with page.part(0.0, y):
            panel()
    return page.figure


# ---------------------------------------------------------------------------------- prefix


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


def draw_prefix(state: Prefix) -> Figure:
    """Draw a row of blocks for each sequence; shared ones are pink, and one box if read together.

    Below: how many blocks are read, and how many rows of queries each part has to offer.
    """
    many, most = len(state.tables), max(map(len, state.tables))
    left, top, gap, width, height = 1.05, 0.62, 0.07, 0.49, 0.37  # inches; blocks with their gaps
    page = Page(max(left + most * width + 0.39, 4.4), top + many * height + 0.52)
    together = page.grid(left, top, width, height, gap)
    apart = page.grid(left + 0.25, top, width, height, gap)  # right of what is shared
    pink = {"face": tint(style.SHARED, 0.35), "radius": 0.03}
    for i, table in enumerate(state.tables):
        color = series_color(i)
        page.put(0.14, together.middle(i), f"sequence {i}", SMALL, weight="bold")
        for j, block in enumerate(table):
            if j >= state.shared:
                face, edge = tint(color, 0.35), tint(color, 0.9)
                apart.cell(i, j, face, str(block), edge=edge, radius=0.03)
            elif not state.once:
                together.cell(i, j, text=str(block), edge=tint(color, 0.9), **pink)
    for j, block in enumerate(state.tables[0][: state.shared] if state.once else ()):
        together.area((0, many), (j, j + 1), text=str(block), edge=style.SHARED, **pink)
    own = sum(len(table) - state.shared for table in state.tables)
    read = own + state.shared * (1 if state.once else many)
    title = "shared blocks once" if state.once else "every context on its own"
    page.put(0.14, 0.18, f"{title}: {style.count(read, 'block')} read", weight="bold")
    rows, each = (state.rows * many, "in all") if state.once else (state.rows, "each")
    queries = f"{style.count(rows, 'row')} of queries {each}"
    page.note(left, top - 0.14, queries)
    page.note(apart.x(state.shared), top - 0.14, f"{style.count(state.rows, 'row')} each")
    distinct = own + state.shared
    note = f"{distinct} different blocks; each is read {read / distinct:.2g} times on average"
    page.note(0.14, page.height - 0.18, note)
    page.say(f"{many} sequences that begin with the same {style.count(state.shared, 'block')}")
    page.say(f"{title}: {style.count(read, 'block')} read, the shared ones with {queries}; {note}")
    return page.figure


# ---------------------------------------------------------------------------------- readers


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


def draw_readers(state: Readers) -> Figure:
    """Draw a row for each thread block, a column for each block, and how often each is read."""
    rows, left, top = len(state.names), 1.75, 0.56
    page = Page(left + state.num_blocks * 0.3 + 0.14, top + rows * 0.24 + 0.42)
    grid = page.grid(left, top, 0.3, 0.24, 0.04)
    page.put(0.14, 0.18, style.count(rows, "thread block"), weight="bold")
    page.note(left - 0.1, top - 0.1, "block of the pool", "right")
    page.note(left - 0.1, page.height - 0.28, "times read", "right")
    for row, (name, owner, reads) in enumerate(
        zip(state.names, state.owners, state.reads, strict=True)
    ):
        grid.name(row, name)
        for block in range(state.num_blocks):
            face = tint(series_color(owner), 0.8) if block in reads else WASH
            grid.cell(row, block, face, radius=0.02)
    for block in range(state.num_blocks):
        grid.head(block, str(block), SMALL)
        count = sum(block in reads for reads in state.reads)
        words, color = (str(count), INK) if count else ("·", style.MUTED)
        x = grid.x(block + 0.5) - 0.02
        page.put(x, page.height - 0.28, words, SMALL, color, "center", weight="bold")
    times = sum(map(len, state.reads))
    blocks = style.count(len(frozenset().union(*state.reads)), "block")
    page.say(f"{style.count(rows, 'thread block')} read {blocks} of the pool, {times} times in all")
    each = (f"{n}: {style.some(sorted(r))}" for n, r in zip(state.names, state.reads, strict=True))
    page.say("; ".join(each))
    return page.figure
