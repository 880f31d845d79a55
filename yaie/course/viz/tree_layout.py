"""Where the boxes of a tree go: columns by depth, children stacked beside their parent.

A subtree owns a band of the page at least as high as its children's bands together, so boxes
never overlap whatever their sizes. What does not fit the page is written shorter first, then long
chains of single children are cut, then the leaves used longest ago are only counted.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

from yaie.course.viz import style
from yaie.course.viz.style import BODY, SMALL

COLUMN_GAP = 0.34
ROW_GAP = 0.09
TAG_GAP = 0.11  # room for the word above a box
LINE = 0.165  # height of a line of text
PAD = 0.07
CHIP_GAP = 0.03

MAX_HEIGHT = 7.0
LABEL_WIDTHS = (2.3, 1.8, 1.45, 1.15, 0.9)
DETAILS = (2, 1, 0)  # 2: everything; 1: one line of text; 0: one line of text and the locks
CHAINS = (10_000, 12, 8, 5)  # how many nodes in a row, without a fork, are drawn


@dataclass(eq=False)
class Box:
    """A rectangle and what is written in it, top to bottom.

    `text`, `facts`, `values` and `request_ids` are what could be said; `fit` chooses the `lines`,
    the `note` and the `chips` that are.
    """

    text: str
    facts: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    request_ids: tuple[str, ...] = ()
    locks: int = 0
    num_tokens: int = 0
    last_access: int = 0
    tag: str | None = None
    matched: float = 0.0  # part of the key, from its beginning
    kind: str = "node"  # or "root", or "summary" of nodes that are not drawn
    num_nodes: int = 1
    parent: Box | None = None
    children: list[Box] = field(default_factory=list)
    depth: int = 0
    lines: list[str] = field(default_factory=list)
    note: str = ""
    requests: str = ""
    chips: list[str] = field(default_factory=list)
    x: float = 0.0
    y: float = 0.0
    width: float = 0.0
    height: float = 0.0
    band: float = 0.0

    @property
    def room_above(self) -> float:
        """Inches to keep free above the box."""
        return ROW_GAP + (TAG_GAP if self.tag else 0.0)

    def add(self, child: Box) -> None:
        """Hang `child` below this box."""
        child.parent, child.depth = self, self.depth + 1
        self.children.append(child)

    def fit(self, label_width: float, detail: int) -> None:
        """Choose what to write in a box about `label_width` wide, and take the size it needs."""
        self.lines = style.wrap(self.text, label_width, 3 if detail == 2 else 1)
        self.note = ", ".join(self.facts) if detail else ""
        self.chips = self._chips(label_width) if detail else []
        self.requests = self._requests(label_width) if detail == 2 else ""
        note_width = style.text_width(self.note, SMALL)
        if self.locks:
            note_width += lock_width(self.locks) + 0.12
        text_widths = [style.text_width(line, BODY) for line in self.lines]
        if self.locks and not detail:
            text_widths[0] += lock_width(self.locks) + 0.12
            note_width = 0.0
        widest = max(
            *text_widths,
            note_width,
            sum(chip_width(chip) + CHIP_GAP for chip in self.chips) - CHIP_GAP,
            style.text_width(self.requests, SMALL),
            style.text_width(self.tag, 7, "bold") if self.tag else 0.0,
            0.1,
        )
        self.width = widest + 2 * PAD
        self.height = (
            2 * PAD
            + LINE * len(self.lines)
            + LINE * bool(self.note or (self.locks and detail))
            + 0.2 * bool(self.chips)
            + LINE * bool(self.requests)
        )

    def _requests(self, label_width: float) -> str:
        """As many request ids as fit on a line, and how many more there are."""
        ids = [style.shorten(name, label_width - 0.3, SMALL) for name in self.request_ids]
        for shown in range(len(ids), 0, -1):
            rest = f", +{len(ids) - shown}" if shown < len(ids) else ""
            words = ", ".join(ids[:shown]) + rest
            if shown == 1 or style.text_width(words, SMALL) <= label_width:
                return words
        return ""

    def _chips(self, label_width: float) -> list[str]:
        chips: list[str] = []
        room = max(label_width, 0.9)
        for shown, value in enumerate(self.values):
            rest = f"+{len(self.values) - shown}"
            last = shown == len(self.values) - 1
            needed = chip_width(value) + (0.0 if last else CHIP_GAP + chip_width(rest))
            if needed > room and chips:
                return [*chips, rest]
            chips.append(value)
            room -= chip_width(value) + CHIP_GAP
        return chips


def chip_width(chip: str) -> float:
    """Inches that the small frame around one value takes."""
    return max(0.18, style.text_width(chip, 7) + 0.08)


def lock_width(count: int) -> float:
    """Inches that a padlock and its count take."""
    return 0.15 + style.text_width(str(count), SMALL, "bold")


def lay_out(roots: Sequence[Box], width: float, max_nodes: int) -> tuple[list[Box], float, float]:
    """Place the trees below `roots`; return the boxes drawn, and the page that they take."""
    for longest_chain in CHAINS:
        _cut_chains(roots, longest_chain)
        boxes = _preorder(roots)
        if len(boxes) <= max_nodes:
            placed = _try_to_fit(roots, boxes, width)
            if placed[0] <= width:
                return boxes, *placed
    while True:
        _hide_leaves(roots, max_nodes)
        boxes = _preorder(roots)
        placed = _try_to_fit(roots, boxes, width)
        if placed[0] <= width or max_nodes <= 2:
            return boxes, *placed
        max_nodes = max_nodes * 2 // 3


def _try_to_fit(roots: Sequence[Box], boxes: list[Box], width: float) -> tuple[float, float]:
    """Place the boxes with as much detail as the page has room for."""
    for detail in DETAILS:
        for label_width in LABEL_WIDTHS:
            for box in boxes:
                box.fit(label_width, detail)
            total_width = _set_columns(boxes)
            if total_width <= width:
                break
        total_height = _set_rows(roots, boxes)
        if total_width <= width and total_height <= MAX_HEIGHT:
            break
    return total_width, total_height


def _preorder(roots: Sequence[Box]) -> list[Box]:
    boxes: list[Box] = []
    stack = list(reversed(roots))
    while stack:  # a loop, because a trie is as deep as its longest prompt
        boxes.append(stack.pop())
        stack.extend(reversed(boxes[-1].children))
    return boxes


# ---------------------------------------------------------------------------------- leaving out


def _summary(boxes: Sequence[Box]) -> Box:
    """One box that stands for others."""
    num_nodes = sum(box.num_nodes for box in boxes)
    num_tokens = sum(box.num_tokens for box in boxes)
    text = style.count(num_nodes, "more node")
    facts = (style.count(num_tokens, "token"),) if num_tokens != num_nodes else ()
    return Box(
        text,
        facts,
        num_nodes=num_nodes,
        num_tokens=num_tokens,
        kind="summary",
        matched=float(all(box.matched == 1.0 for box in boxes)),
    )


def _cut_chains(roots: Sequence[Box], longest: int) -> None:
    """Replace the middle of each longer run of single, unchanged children by one box."""
    for box in _preorder(roots):
        if box.parent is None or _continues_chain(box):
            continue
        chain = [box]
        while len(chain[-1].children) == 1 and _continues_chain(chain[-1].children[0]):
            chain.append(chain[-1].children[0])
        if len(chain) <= longest:
            continue
        head, middle, tail = chain[: longest - 2], chain[longest - 2 : -1], chain[-1]
        between = _summary(middle)
        head[-1].children = []
        head[-1].add(between)
        between.add(tail)
        for below in _preorder([tail]):
            below.depth = below.parent.depth + 1


def _continues_chain(box: Box) -> bool:
    """Whether nothing happens between a box's parent and it that a reader would miss."""
    parent = box.parent
    return (
        parent is not None
        and parent.parent is not None
        and len(parent.children) == 1
        and parent.tag == box.tag
        and parent.matched == box.matched
    )


def _hide_leaves(roots: Sequence[Box], max_nodes: int) -> None:
    """Take leaves away, unchanged and least recently used first, until `max_nodes` are left."""
    boxes = _preorder(roots)
    entries = [(_worth(box), i, box) for i, box in enumerate(boxes) if not box.children]
    heapq.heapify(entries)
    hidden: dict[Box, list[Box]] = {}
    number = len(boxes)
    left = len(boxes)
    while entries and left > max_nodes:
        _, _, leaf = heapq.heappop(entries)
        parent = leaf.parent
        if parent is None:
            continue
        parent.children.remove(leaf)
        # One box will stand for all that a parent lost, so the first loss gains nothing.
        left -= 1 if parent in hidden else 0
        left -= 1 if leaf in hidden else 0
        hidden.setdefault(parent, []).extend([leaf, *hidden.pop(leaf, [])])
        if not parent.children:
            number += 1
            heapq.heappush(entries, (_worth(parent), number, parent))
    for parent, lost in hidden.items():
        parent.add(lost[0] if len(lost) == 1 else _summary(lost))


def _worth(box: Box) -> tuple[bool, bool, int, int]:
    return box.tag is not None, box.matched > 0, box.last_access, -box.depth


# ---------------------------------------------------------------------------------- positions


def _set_columns(boxes: Sequence[Box]) -> float:
    """Give every depth a column as wide as its widest box; return the width of all."""
    widths = [0.0] * (1 + max(box.depth for box in boxes))
    for box in boxes:
        widths[box.depth] = max(widths[box.depth], box.width)
    for box in boxes:
        box.x = sum(widths[: box.depth]) + COLUMN_GAP * box.depth
    return sum(widths) + COLUMN_GAP * (len(widths) - 1)


def _set_rows(roots: Sequence[Box], boxes: Sequence[Box]) -> float:
    """Stack the bands of children, and center each parent beside them; return the height."""
    for box in reversed(boxes):
        children = sum(child.band for child in box.children)
        box.band = max(box.room_above + box.height, children)
    tops: dict[Box, float] = {}
    y = 0.0
    for root in roots:
        tops[root] = y
        y += root.band
    for box in boxes:
        top = tops[box]
        slack = box.band - sum(child.band for child in box.children)
        child_top = top + slack / 2
        for child in box.children:
            tops[child] = child_top
            child_top += child.band
    for box in reversed(boxes):
        top = tops[box]
        box.y = top + box.room_above + (box.band - box.room_above - box.height) / 2
        if box.children:
            first, last = box.children[0], box.children[-1]
            middle = (first.y + first.height / 2 + last.y + last.height / 2) / 2
            lowest = top + box.band - box.height
            box.y = min(max(middle - box.height / 2, top + box.room_above), lowest)
    return y
