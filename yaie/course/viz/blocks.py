"""The paged KV cache: block tables, and the pool of blocks that they point into."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from matplotlib.figure import Figure

from yaie.course.viz import style
from yaie.course.viz.page import Page, Sheet

MARGIN = 0.12
DASHES = (0, (2, 1.5))


@dataclass(frozen=True)
class PoolState:
    """A block pool and the block tables that point into it, at one moment.

    Attributes:
        ref_counts: users of each block, 0 if it is free.
        tables: the blocks of each request, in the order of its tokens.
        lengths: the tokens of each request.
        cached: the blocks that a prefix cache holds.
    """

    block_size: int
    ref_counts: tuple[int, ...]
    tables: Mapping[str, tuple[int, ...]]
    lengths: Mapping[str, int]
    cached: frozenset[int] = frozenset()


def snapshot_pool(manager: Any, cached: Iterable[int] = ()) -> PoolState:
    """Record a `KVCacheManager`, or anything with the same attributes.

    Args:
        manager: has `block_size`, `block_tables`, `lengths` and a `pool`.
        cached: the blocks that a prefix cache holds.
    """
    pool = manager.pool
    return PoolState(
        manager.block_size,
        tuple(pool.ref_count(block) for block in range(pool.num_blocks)),
        {str(name): tuple(table) for name, table in manager.block_tables.items()},
        {str(name): int(length) for name, length in manager.lengths.items()},
        frozenset(cached),
    )


def cached_blocks(tree: Any) -> list[int]:
    """The values of a radix tree whose values are blocks."""
    stack = list((getattr(tree, "roots", None) or {"": tree.root}).values())
    blocks: list[int] = []
    while stack:
        node = stack.pop()
        blocks.extend(node.values)
        stack.extend(node.children.values())
    return blocks


# ---------------------------------------------------------------------------------- one block


@dataclass(frozen=True)
class Cell:
    """How one block looks: its state now, and whether it has just changed."""

    block: int
    face: Any
    fill: float = 1.0  # part of the block that holds tokens
    users: int = 1
    is_cached: bool = False
    is_free: bool = False
    is_new: bool = False
    was_freed: bool = False


GRAY, OWN = style.tint(style.INK, 0.16), style.tint(style.BLUE, 0.6)
BOTH = style.tint(style.SHARED, 0.75)
# The kinds of cells: in words, which they are, and how they look.
KINDS: list[tuple[str, Callable[[Cell], bool], Cell]] = [
    ("free", lambda c: c.is_free, Cell(0, GRAY, is_free=True)),
    ("one request", lambda c: c.users == 1, Cell(0, OWN)),
    ("shared by several", lambda c: c.users > 1, Cell(0, BOTH)),
    ("partly filled", lambda c: c.users > 0 and c.fill < 1, Cell(0, OWN, fill=0.5)),
    ("kept by the cache", lambda c: c.is_cached, Cell(0, GRAY, is_cached=True)),
    ("in use, in no table", lambda c: not (c.is_free or c.users or c.is_cached), Cell(0, GRAY)),
    ("just taken", lambda c: c.is_new, Cell(0, style.PAPER, is_new=True)),
    ("just freed", lambda c: c.was_freed, Cell(0, GRAY, is_free=True, was_freed=True)),
]


def _cells(state: PoolState, previous: PoolState | None) -> list[Cell]:
    colors = style.name_colors(state.tables)
    owners: dict[int, list[str]] = {}
    fills: dict[int, float] = {}
    for name, table in state.tables.items():
        for i, block in enumerate(table):
            owners.setdefault(block, []).append(name)
            fills[block] = max(fills.get(block, 0.0), _fill(state, name, i))
    before = previous.ref_counts if previous else state.ref_counts
    cells = []
    for block, count in enumerate(state.ref_counts):
        users = owners.get(block, [])
        face = BOTH if len(users) > 1 else GRAY
        if len(users) == 1:
            face = style.tint(style.series_color(colors[users[0]]), 0.6)
        cells.append(
            Cell(
                block,
                face,
                fills.get(block, 1.0),
                len(users),
                is_cached=block in state.cached,
                is_free=count == 0,
                is_new=count > 0 and before[block] == 0,
                was_freed=count == 0 and before[block] > 0,
            )
        )
    return cells


def _fill(state: PoolState, name: str, i: int) -> float:
    """The part of a request's i-th block that holds tokens."""
    tokens = state.lengths[name] - i * state.block_size
    return min(1.0, max(0.0, tokens / state.block_size))


def _draw_cell(ax: Sheet, x: float, y: float, side: float, cell: Cell) -> None:
    width = height = side - min(0.03, side * 0.12)
    edge, line, dashes = style.FAINT, 0.8, "solid"
    if cell.was_freed:
        edge, line, dashes = style.VERMILION, 1.4, DASHES
    elif cell.is_new:
        edge, line = style.INK, 1.8
    elif not cell.is_free:
        edge = "#8d949f"
    radius = min(0.03, side / 6)
    ax.box(x, y, width, height, style.PAPER, radius=radius)
    if not cell.is_free:
        ax.box(x, y, width * cell.fill, height, cell.face, radius=radius)
    ax.box(x, y, width, height, "none", edge, line, radius, linestyle=dashes)
    if cell.is_cached and not cell.is_free and side > 0.14:
        dot = min(0.07, side / 5)
        ax.box(x + width - dot - 0.02, y + 0.02, dot, dot, style.INK, radius=dot / 2)
    if side >= 0.24:
        ink = style.MUTED if cell.is_free else style.INK
        ax.put(x + width / 2, y + height / 2, str(cell.block), 7, ink, "center")


# ---------------------------------------------------------------------------------- the picture


def draw_blocks(
    state: PoolState, previous: PoolState | None = None, width: float = style.WIDTH
) -> Figure:
    """Draw the block tables as rows of cells, and the pool that they point into below.

    A cell is a block, with its number. It has the color of the request that owns it, pink if
    several do, and is filled as far as tokens reach. What `previous` did not have yet has a
    heavy outline, and an arrow leads from a block that was copied to its copy.
    """
    cells = _cells(state, previous)
    copies = _copies(state, previous)
    inner = width - 2 * MARGIN
    tables = _TableLayout(state, inner)
    columns, pool_side = _grid(len(cells), inner)
    content = max(tables.width, columns * pool_side, 3.2)
    found = [kind for kind in KINDS if any(map(kind[1], cells))]
    key: list[tuple[str, Cell | None]] = [(words, look) for words, _, look in found]
    if copies:
        each = (f"{name}: {a} copied to {b}" for name, (a, b) in copies.items())
        key.append((", ".join(each), None))
    key_widths = [0.24 + style.text_width(words, style.SMALL) for words, _ in key]
    key_places = style.flow(key_widths, content)
    pool_top = MARGIN + tables.height + 0.26 + 0.12 * bool(copies)
    key_top = pool_top + -(-len(cells) // columns) * pool_side + 0.08
    key_height = (1 + key_places[-1][1]) * 0.24
    page = Page(content + 2 * MARGIN, key_top + key_height + 0.06)
    _draw_tables(page.ax, state, cells, tables)
    free = sum(cell.is_free for cell in cells)
    words = f"pool: {style.count(len(cells), 'block')} of {state.block_size} tokens, {free} free"
    page.note(MARGIN, MARGIN + tables.height + 0.12, words)
    for cell in cells:
        x = MARGIN + cell.block % columns * pool_side
        _draw_cell(page.ax, x, pool_top + cell.block // columns * pool_side, pool_side, cell)
    for source, target in copies.values():  # an arrow over what lies between the two
        (x0, y0), (x1, y1) = (
            (MARGIN + (block % columns + 0.46) * pool_side, pool_top + block // columns * pool_side)
            for block in (source, target)
        )
        bend = min(0.5, 0.17 / max(abs(x1 - x0), 0.1))
        bend = -bend if x1 > x0 else bend
        page.arrow((x0, y0), (x1, y1), bend=bend, shrinkA=1, linewidth=1.2, zorder=5)
    for (words, cell), (x, line) in zip(key, key_places, strict=True):
        x, middle = MARGIN + x, key_top + line * 0.24 + 0.1
        if cell is None:
            page.put(x + 0.08, middle, "→", ha="center")
        else:
            _draw_cell(page.ax, x, middle - 0.085, 0.2, cell)
        page.note(x + 0.24, middle, words)
    tables = (
        f"{name}, {_tokens(state.lengths[name])}, blocks {style.some(table) or 'none'}"
        for name, table in state.tables.items()
    )
    if state.tables:
        page.say(f"Block tables: {style.some(tables, between='; ')}")
    kinds = [f"{words} {sum(map(is_kind, cells))}" for words, is_kind, _ in found]
    kinds += [f"block {a} copied to {b} for {name}" for name, (a, b) in copies.items()]
    page.say(f"Pool of {style.count(len(cells), 'block')}: {'; '.join(kinds)}")
    return page.figure


class _TableLayout:
    """Where the block tables go. Many of them get smaller cells and one line of label each."""

    def __init__(self, state: PoolState, width: float) -> None:
        self.is_dense = len(state.tables) > 8
        self.side = 0.27 if self.is_dense else 0.34
        names = [style.text_width(style.printable(n), weight="bold") for n in state.tables]
        lengths = [style.text_width(_tokens(n), style.SMALL) for n in state.lengths.values()]
        self.name_width = min(2.2, max(names, default=0.0)) + 0.02
        label = self.name_width + 0.12
        if self.is_dense:
            label += max(lengths) + 0.12
        self.label = max(label, max(lengths, default=0.0)) + 0.2
        self.per_row = max(1, int((width - self.label) / self.side))
        longest = max((len(table) for table in state.tables.values()), default=0)
        self.width = self.label + min(self.per_row, longest) * self.side if state.tables else 0.0
        self.gap = 0.04 if self.is_dense else 0.1
        rows = sum(self.rows(table) for table in state.tables.values())
        self.height = rows * self.side + self.gap * len(state.tables)

    def rows(self, table: Sequence[int]) -> int:
        return max(1, -(-len(table) // self.per_row))


def _tokens(number: int) -> str:
    return style.count(number, "token")


def _grid(num_blocks: int, width: float) -> tuple[int, float]:
    """Columns of the pool's grid, and the side of a cell: smaller cells for larger pools."""
    if num_blocks <= 32:
        side = 0.34
        columns = min(num_blocks, 16)
    elif num_blocks <= 256:
        side, columns = 0.29, 32
    else:
        side = 0.13
        columns = 64
    return min(columns, int(width / side)), side


def _copies(state: PoolState, previous: PoolState | None) -> dict[str, tuple[int, int]]:
    """Requests whose table had one block replaced: copy-on-write."""
    copies = {}
    for name, table in state.tables.items():
        old = previous.tables.get(name, ()) if previous else ()
        changed = [(a, b) for a, b in zip(old, table, strict=False) if a != b]
        if len(changed) == 1:
            copies[name] = changed[0]
    return copies


def _draw_tables(ax: Sheet, state: PoolState, cells: Sequence[Cell], layout: _TableLayout) -> None:
    y, side = MARGIN, layout.side
    colors = style.name_colors(state.tables)
    for name, table in state.tables.items():
        color = style.series_color(colors[name])
        ax.box(MARGIN, y, 0.06, side - 0.03, color, radius=0.02)
        shown = style.shorten(style.printable(name), layout.name_width, weight="bold")
        length = _tokens(state.lengths[name])
        x = MARGIN + 0.12
        if layout.is_dense:
            ax.put(x, y + side / 2 - 0.01, shown, weight="bold")
            x += layout.name_width + 0.1
            ax.note(x, y + side / 2 - 0.01, length)
        else:
            ax.put(x, y + 0.08, shown, weight="bold")
            ax.note(x, y + 0.235, length)
        for i, block in enumerate(table):
            x = MARGIN + layout.label + i % layout.per_row * side
            cell = replace(cells[block], fill=_fill(state, name, i), is_free=False)
            _draw_cell(ax, x, y + i // layout.per_row * side, side, cell)
        y += layout.rows(table) * side + layout.gap
