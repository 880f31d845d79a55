"""What a learner should be able to say at the end: two questions per notebook, with answers.

The objectives above them are read from the notebooks themselves.
"""

import html
import json
import re

from yaie.course.core.notebook import Markdown
from yaie.course.core.paths import DATA, NOTEBOOKS


def _read(text: str) -> dict[str, list[tuple[str, str]]]:
    """Of each notebook ("# name") its questions, and the answers that are indented below them."""
    found: dict[str, list[tuple[str, str]]] = {}
    for section in ("\n" + text).split("\n# ")[1:]:
        name, _, rest = section.partition("\n")
        pairs = re.findall(r"((?:^\S.*\n)+)((?:^ .*\n?)+)", rest, re.MULTILINE)
        found[name] = [(" ".join(q.split()), " ".join(a.split())) for q, a in pairs]
    return found


QUESTIONS = _read((DATA / "29_self_check.md").read_text(encoding="utf-8"))


def self_check() -> Markdown:
    """Every notebook's objectives and questions, answers folded."""
    parts = []
    for name, questions in QUESTIONS.items():
        lines = [f"<details><summary><b>{html.escape(_title(name))}</b></summary>", ""]
        lines += [f"- {objective}" for objective in objectives(name)]
        for question, answer in questions:
            asked, told = html.escape(question, False), html.escape(answer, False)
            lines += ["", f"<details><summary>{asked}</summary>", "", told, "", "</details>"]
        parts.append("\n".join([*lines, "", "</details>"]))
    return Markdown("\n\n".join(parts))


def objectives(name: str) -> list[str]:
    """What a notebook says that you can do at its end, and what tests it."""
    return [item.rstrip(",;.") for item in listed(_first_cell(name))]


def listed(text: str) -> list[str]:
    """The items of the list below the line "… you can", each as one line."""
    items, inside = [], False
    for line in text.splitlines():
        if re.search(r"\byou can\b", line) and not line.startswith("-"):
            inside = True
        elif inside and line.startswith("- "):
            items.append(line[2:])
        elif inside and line.startswith("  ") and items:
            items[-1] += " " + line.strip()
        elif inside and items:
            break
    return items


def _title(name: str) -> str:
    return _first_cell(name).splitlines()[0].removeprefix("# ")


def _first_cell(name: str) -> str:
    notebook = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text(encoding="utf-8"))
    return "".join(notebook["cells"][0]["source"])
