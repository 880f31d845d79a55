"""Plain English: patterns that no text for readers has, but for what is kept on purpose."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from yaie.course.author.site import DOCS

ROOT = Path(__file__).parents[1]
EACH = "token|second|request|thread|step|warp|thread block|head|layer|row|lane|rank|byte|iteration"
PATTERNS = {
    "a component acts, or 'you' do": r"\b(nobody|somebody|anybody|everybody|whoever|who asks)\b",
    "immediately, or together": r"\bat once\b",
    "no longer": r"\bany more\b",
    "per": rf"\b([kKMGT]i?B|FLOPs?|[µnm]s|bytes|registers|answers) an? ({EACH})\b",
    "iteration": r"\bturns? of the loop\b",
    "past": r"\bbehind (its|the) end\b",
    "on average": r"\bin the mean\b",
    "again": r"\banew\b",
    "forever": r"\bfor ever\b",
    "repair, or fix": r"\bmend(s|ed|ing)?\b",
    "this many": r"\bso (many|much) (blocks|bytes|tokens|parts|operations|requests)\b",
}
# What is kept: a part of the file's name, and a pattern of the line.
KEPT = (
    ("yaie/bench/workloads.py", "."),  # the prompts are stories, in which people act
    ("yaie/bench/", "at_once|at once"),  # names of rows in records
)


def texts() -> Iterator[tuple[str, str]]:
    """Everything written for readers: (place, text)."""
    for name in ("README.md", "CONTRIBUTING.md", "notebooks/data/29_self_check.md", *DOCS):
        yield name, (ROOT / name).read_text()
    for folder, endings in {
        "yaie": (".py", ".md", ".mistakes", ".h"),
        "csrc": (".cu", ".cuh", ".h"),
    }.items():
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in endings:
                yield str(path.relative_to(ROOT)), path.read_text()
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        for number, cell in enumerate(json.loads(path.read_text())["cells"]):
            yield f"notebooks/{path.name}[{number}]", "".join(cell["source"])


@pytest.mark.parametrize("instead", PATTERNS)
def test_no_text_has(instead: str) -> None:
    found = []
    for place, text in texts():
        for hit in re.finditer(PATTERNS[instead], text, re.IGNORECASE):
            line = text[text.rfind("\n", 0, hit.start()) + 1 : text.find("\n", hit.end())]
            if not any(name in place and re.search(kept, line) for name, kept in KEPT):
                found.append(f"{place}: {line.strip()}")
    assert not found, f"{instead} is plainer here:\n" + "\n".join(found)
