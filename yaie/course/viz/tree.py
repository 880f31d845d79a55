"""Token tries and radix trees, drawn."""

from matplotlib.figure import Figure
from matplotlib.patches import Arc, PathPatch
from matplotlib.path import Path

from yaie.course.viz import style
from yaie.course.viz.page import Page, Sheet
from yaie.course.viz.tree_layout import CHIP_GAP, LINE, PAD, Box, chip_width, lay_out, lock_width
from yaie.course.viz.tree_state import Marks, TreeNode, TreeState, compare

TAG_COLORS = {
    "new": style.GREEN,
    "split": style.ORANGE,
    "matched": style.BLUE,
    "evicted": style.VERMILION,
}
MARGIN = 0.12
CAPTION = 0.3
MOST_NODES = 30  # that are drawn
MOST_SAID = 24  # nodes that are described with their children
DASHES = (0, (3, 2))


def draw_tree(
    state: TreeState, previous: TreeState | None = None, width: float = style.WIDTH
) -> Figure:
    """Draw a tree from left to right, as the text reads.

    Each box is a node: the text of its tokens, how many they are, when it was last used, its
    locks, its values, the requests that pass it. What changed since `previous`, and what a match
    found, carries a colored word. Beyond `MOST_NODES`, the leaves used longest ago are counted
    instead of drawn.

    Args:
        width: inches that the picture must fit in; long labels are broken and shortened for it.
    """
    full, marks = compare(state, previous)
    boxes = _make_boxes(full, marks)
    boxes, tree_width, tree_height = lay_out(boxes, width - 2 * MARGIN, MOST_NODES)
    caption = _caption(state, any(box.note for box in boxes))
    content = max(tree_width, style.text_width(caption, style.SMALL))
    page = Page(content + 2 * MARGIN, tree_height + MARGIN + CAPTION)
    for box in boxes:
        box.x += MARGIN
    for box in boxes:
        if box.parent is not None:
            _draw_edge(page.ax, box.parent, box)
    for box in boxes:
        _draw_box(page.ax, box)
    page.note(MARGIN, page.height - CAPTION / 2, caption)
    _say(page, full, marks)
    return page.figure


def _make_boxes(state: TreeState, marks: Marks) -> list[Box]:
    boxes: list[Box] = []
    for index, node in enumerate(state.nodes):
        if node.parent is None:
            box = Box(node.text or "root", kind="root")
        else:
            box = _make_box(node)
            boxes[node.parent].add(box)
        box.matched = marks.matched.get(index, 0.0)
        box.tag = marks.tags.get(index) or ("matched" if box.matched and index else None)
        if box.kind == "root":
            box.tag = None
        boxes.append(box)
    return [box for box in boxes if box.parent is None]


def _make_box(node: TreeNode) -> Box:
    single = len(node.key) == 1
    facts = []
    if not node.is_rest and (node.values or not single):
        facts.append(style.count(len(node.key), "token"))
    if node.last_access is not None:
        facts.append(f"t {node.last_access}")
    has_values = any(value is not None for value in node.values)
    return Box(
        style.token_label(node.text) if single else style.printable(node.text),
        tuple(facts),
        tuple(str(value) for value in node.values) if has_values else (),
        node.request_ids,
        node.lock_count,
        len(node.key),
        node.last_access or 0,
    )


def _caption(state: TreeState, shows_times: bool) -> str:
    tokens = sum(len(node.key) for node in state.nodes)
    values = sum(len(node.values) for node in state.nodes)
    parts = [style.count(len(state.nodes), "node"), style.count(tokens, "token")]
    if values and state.block_size > 1:
        parts.append(f"{style.count(values, 'block')} of {state.block_size}")
    clock = shows_times and any(node.last_access for node in state.nodes)
    return ", ".join(parts) + (";  t: time of last use" if clock else "")


def _say(page: Page, state: TreeState, marks: Marks) -> None:
    """The tree from its root down, then what changed and what a match found."""
    below: dict[int | None, list[int]] = {}
    for index, node in enumerate(state.nodes):
        below.setdefault(node.parent, []).append(index)

    def name(index: int) -> str:
        return style.quote(state.nodes[index].text) if state.nodes[index].text else "root"

    def path(index: int) -> str:
        inner = "; ".join(map(path, below.get(index, ())))
        return name(index) + (f" ({inner})" if inner else "")

    gone = "evicted" in marks.tags.values()
    tokens = sum(len(node.key) for node in state.nodes)
    words = f"A tree of {style.count(len(state.nodes), 'node')}, {style.count(tokens, 'token')}"
    page.say(words + (", those just evicted included" if gone else ""))
    if len(state.nodes) <= MOST_SAID:
        page.say(f"Each node with its children in brackets: {'; '.join(map(path, below[None]))}")
    else:
        page.say(f"Below the root: {style.some(map(name, below.get(0, ())))}")
    for tag in ("new", "split", "evicted"):
        found = [name(i) for i, mark in marks.tags.items() if mark == tag]
        if found:
            page.say(f"{tag}: {style.some(found)}")
    if found := [name(i) for i in marks.matched if state.nodes[i].parent is not None]:
        page.say(f"Matched: {style.some(found)}")


def _draw_edge(ax: Sheet, parent: Box, child: Box) -> None:
    x0, y0 = parent.x + parent.width, parent.y + parent.height / 2
    x1, y1 = child.x, child.y + child.height / 2
    middle = (x0 + x1) / 2
    path = Path([(x0, y0), (middle, y0), (middle, y1), (x1, y1)], [1, 4, 4, 4])
    look = {"edgecolor": "#aab1bc", "linewidth": 1.2}
    if child.matched:
        look = {"edgecolor": style.BLUE, "linewidth": 2.0}
    elif child.tag == "evicted":
        look = {"edgecolor": style.VERMILION, "linewidth": 1.2, "linestyle": DASHES}
    ax.add_artist(PathPatch(path, fill=False, **look))


def _draw_box(ax: Sheet, box: Box) -> None:
    ghost = box.tag == "evicted"
    quiet = ghost or box.kind != "node"
    edge = TAG_COLORS[box.tag] if box.tag else (style.FAINT if quiet else "#8d949f")
    face = style.PAPER if quiet else style.tint(edge, 0.1) if box.tag else style.WASH
    dashes = DASHES if quiet and box.kind != "root" else "solid"
    look = {"edge": edge, "line": 1.8 if box.tag else 1.0, "linestyle": dashes, "zorder": 2}
    ax.box(box.x, box.y, box.width, box.height, face, **look)
    if box.matched > 0 and box.kind != "root":
        width, face = box.width * box.matched, style.tint(style.BLUE, 0.2)
        ax.box(box.x, box.y, width, box.height, face, zorder=2.1)
    if box.tag:
        _draw_tag(ax, box)
    _write(ax, box, style.MUTED if quiet else style.INK)


def _write(ax: Sheet, box: Box, ink: str) -> None:
    x, y = box.x + PAD, box.y + PAD + LINE / 2
    right = box.x + box.width - PAD
    centered = len(box.lines) == 1 and not (box.note or box.chips or box.requests or box.locks)
    for line in box.lines:
        if centered:
            ax.put(box.x + box.width / 2, y, line, color=ink, ha="center", zorder=4)
        else:
            ax.put(x, y, line, color=ink, zorder=4)
        y += LINE
    if box.locks and not box.note and len(box.lines) == 1 and box.height < 2 * PAD + 1.5 * LINE:
        _draw_lock(ax, right, y - LINE, box.locks)
    elif box.note or box.locks:
        ax.note(x, y, box.note, zorder=4)
        if box.locks:
            _draw_lock(ax, right, y, box.locks)
        y += LINE
    if box.chips:
        _draw_chips(ax, box, y - LINE / 2)
        y += 0.2
    if box.requests:
        ax.put(x, y, box.requests, style.SMALL, style.BLUE, zorder=4)


def _draw_tag(ax: Sheet, box: Box) -> None:
    width = style.text_width(box.tag, 7, "bold") + 0.1
    ax.box(box.x + 0.06, box.y - 0.11, width, 0.15, TAG_COLORS[box.tag], radius=0.04, zorder=5)
    middle = box.x + 0.06 + width / 2
    ax.put(middle, box.y - 0.036, box.tag, 7, style.PAPER, "center", weight="bold", zorder=6)


def _draw_chips(ax: Sheet, box: Box, y: float) -> None:
    x = box.x + PAD
    for chip in box.chips:
        width = chip_width(chip)
        ax.box(x, y + 0.02, width, 0.16, style.PAPER, style.FAINT, 0.8, 0.02, zorder=3)
        ax.put(x + width / 2, y + 0.1, chip, 7, style.INK, "center", zorder=4)
        x += width + CHIP_GAP


def _draw_lock(ax: Sheet, right: float, middle: float, count: int) -> None:
    """A padlock and how often it is held, ending at `right`."""
    label = str(count)
    ax.put(right, middle, label, style.SMALL, style.INK, "right", weight="bold", zorder=4)
    x = right - lock_width(count)
    ax.box(x, middle - 0.02, 0.11, 0.085, style.ORANGE, radius=0.015, zorder=4)
    look = {"theta1": 180, "theta2": 360, "color": style.ORANGE, "linewidth": 1.4, "zorder": 4}
    ax.add_artist(Arc((x + 0.055, middle - 0.02), 0.07, 0.12, **look))
