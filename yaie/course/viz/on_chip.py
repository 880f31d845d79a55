"""What a thread block keeps on the chip, in the room that there is."""

from collections.abc import Mapping

from matplotlib.figure import Figure

from yaie.course.viz import style
from yaie.course.viz.page import Page

LEFT, TOP, ROW, BAR, GAP = 1.5, 0.62, 0.36, 0.22, 1.15  # inches


def draw_on_chip(
    rows: Mapping[str, Mapping[str, Mapping[str, int]]], rooms: Mapping[str, int]
) -> Figure:
    """Draw a box for each memory on the chip, and what each row would put into it, to scale.

    Args:
        rows: name -> memory -> what lies there -> bytes.
        rooms: memory -> its bytes, for all rows; what goes beyond them is marked.
    """
    style.check_some(rows, "rows")
    style.check_some(rooms, "rooms")
    page = Page(style.WIDTH, TOP + len(rows) * ROW + 0.45)
    column = (page.width - LEFT) / len(rooms)
    largest = max(max(sum(row[room].values()) for row in rows.values()) for room in rooms)
    scale = (column - GAP) / max(largest, *rooms.values())
    kinds: dict[str, str] = {}
    for index, (room, num_bytes) in enumerate(rooms.items()):
        x = LEFT + index * column
        page.put(x, 0.2, room, style.TITLE, weight="bold")
        page.note(x, 0.42, f"{num_bytes / 1024:g} KiB")
        for line, (name, row) in enumerate(rows.items()):
            y = TOP + line * ROW
            if not index:
                page.put(LEFT - 0.12, y + BAR / 2, name, style.SMALL, ha="right")
            left = x
            for part, size in row[room].items():
                color = kinds.setdefault(part, style.series_color(len(kinds)))
                page.rect(left, y, size * scale, BAR, style.tint(color, 0.6))
                left += size * scale
            total = sum(row[room].values())
            fits = total <= num_bytes
            words = f"{total / 1024:.0f} KiB" + ("" if fits else ", too much")
            color = style.MUTED if fits else style.VERMILION
            end = max(left, x + num_bytes * scale)
            page.put(end + 0.06, y + BAR / 2, words, style.SMALL, color)
            page.say(f"{name}, {room}: {total / 1024:.0f} of {num_bytes / 1024:g} KiB")
        page.rect(x, TOP - 0.06, num_bytes * scale, len(rows) * ROW - 0.02, edgecolor=style.INK,
                  linewidth=1.2, zorder=4)  # fmt: skip
    page.legend(LEFT, page.height - 0.16, {k: style.tint(c, 0.6) for k, c in kinds.items()})
    return page.figure
