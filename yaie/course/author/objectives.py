"""What a notebook promises, and what tests it.

The list below "… you can" in a notebook's first cell holds its objectives. Each one ends with what
tests it: exercises of the notebook, and predictions by the heading under which they stand:

    - count what a sort moves *(exercise 21.1; predict first in "Why integers" and "Filters")*;
"""

import re
from dataclasses import dataclass

from yaie.course.lessons.self_check import listed

TESTS = re.compile(r'\s\*\(((?:exercises? \d|predict first in ").*)\)\*[.,;]?$')
CHECK = re.compile(r'\bcheck\("(\d\d\.\d)"\)')
MARKED = re.compile(
    r"^#{2,4} (?P<heading>.+)|\*\*Predict first[.:][\s*]*(?P<question>(?:.+\n?)+)", re.MULTILINE
)


@dataclass
class Objective:
    words: str
    exercises: list[str]  # ids
    headings: list[str]


def objectives(notebook) -> list[Objective]:
    """The objectives of `notebook`, as nbformat reads it."""
    return [_objective(item) for item in listed(notebook.cells[0].source if notebook.cells else "")]


def _objective(item: str) -> Objective:
    tests = TESTS.search(item)
    parts = re.split(r'"([^"]+)"', tests[1] if tests else "")
    ids = re.findall(r"\d\d\.\d", " ".join(parts[::2]))
    return Objective(TESTS.sub("", item).rstrip(",;."), ids, parts[1::2])


def exercises(notebook) -> list[str]:
    """The ids of the exercises that `notebook` checks."""
    code = (cell.source for cell in notebook.cells if cell.cell_type == "code")
    return CHECK.findall("\n".join(code))


def predictions(notebook) -> list[tuple[str, str]]:
    """(heading that it stands under, question) of each prediction."""
    text = "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    heading, found = "", []
    for mark in MARKED.finditer(text):
        if mark["heading"]:
            heading = mark["heading"].strip()
        else:
            found.append((heading, " ".join(mark["question"].replace("**", "").split())))
    return found


def problems(notebook) -> list[str]:
    """Objectives that nothing tests, and tests that the notebook does not have."""
    ids, headings = exercises(notebook), {heading for heading, _ in predictions(notebook)}
    promised, found = objectives(notebook), []
    for one in promised:
        if not one.exercises and not one.headings:
            found.append(
                f"nothing tests the objective {one.words!r}: end it with "
                '*(exercise 02.1; predict first in "a heading")*, or with one of the two'
            )
        found += [f"{one.words!r}: no check of exercise {n}" for n in one.exercises if n not in ids]
        found += [
            f"{one.words!r}: no prediction under the heading {heading!r}"
            for heading in one.headings
            if heading not in headings
        ]
    return found if promised else ['no objectives: cell 0 lists them below a line "… you can"']


def listing(notebook) -> str:
    """Objectives with what tests them; then all exercises and predictions, and which are named."""
    lines, named = ["objectives"], set()
    for one in objectives(notebook):
        named.update(one.exercises, one.headings)
        tests = [*one.exercises, *map('"{}"'.format, one.headings)]
        lines += [f"  {one.words}", f"      {', '.join(tests) or 'NOTHING TESTS IT'}"]
    lines += ["exercises and predictions; * if an objective names them"]
    lines += [f"  {'*' if n in named else ' '} {n}" for n in exercises(notebook)]
    lines += [
        f'  {"*" if heading in named else " "} "{heading}": {question}'
        for heading, question in predictions(notebook)
    ]
    return "\n".join(lines)
