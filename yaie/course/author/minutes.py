"""How long a notebook takes its reader: the row "Time" of its card, and the README's column.

Reading takes a minute per 200 words of text and a minute per cell with a picture; exercises take
what their pages say.
"""

import math
import re

from yaie.course.author import objectives
from yaie.course.core.manifest import find

WORDS_PER_MINUTE = 200
ROW = re.compile(r"^\| (\**)Time\1 \| (.*) \|$", re.MULTILINE)


def reading(notebook) -> int:
    """The minutes of reading `notebook`, as nbformat reads it, rounded up to a multiple of 5."""
    texts = (cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    words = sum(len(text.split()) for text in texts)
    pictures = sum(any(map(_is_picture, cell.get("outputs", []))) for cell in notebook.cells)
    return 5 * math.ceil((words / WORDS_PER_MINUTE + pictures) / 5)


def _is_picture(output) -> bool:
    data = output.get("data", {})
    return "image/png" in data or "<img" in data.get("text/html", "")


def minutes(notebook) -> tuple[int, int]:
    """The minutes of reading, and those of the exercises."""
    return reading(notebook), sum(find(n).minutes for n in objectives.exercises(notebook))


def words(notebook) -> str:
    return "{} minutes to read, {} for exercises".format(*minutes(notebook))


def write(notebook) -> None:
    """Bring the card's row up to date, in place."""
    if notebook.cells:
        first = notebook.cells[0]
        first.source = ROW.sub(rf"| \1Time\1 | {words(notebook)} |", first.source)


def problems(notebook) -> list[str]:
    """What is wrong with the card's row; empty if nothing."""
    row = ROW.search(notebook.cells[0].source) if notebook.cells else None
    told, wanted = row and row[2], words(notebook)
    return [] if told == wanted else [f"the card's Time is {told!r}, not {wanted!r}"]


def in_readme(text: str, totals: dict[str, int]) -> str:
    """The README's `text` with these minutes, by the stem of a notebook, in its tables."""

    def row(found: re.Match[str]) -> str:
        return f"{found[1]}{totals.get(found[2], found[3])} |"

    return re.sub(r"^(\| \d\d \|.*\(notebooks/(\w+)\.ipynb\).*\| )(\d+) \|$", row, text, flags=re.M)
