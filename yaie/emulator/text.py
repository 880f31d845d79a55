"""The text of a source: its comments and literals, its brackets, its functions."""

import re
from bisect import bisect
from collections.abc import Callable
from functools import lru_cache

_SKIPPED = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<raw>[^(\s]*)\(.*?\)(?P=raw)"|"(?:\\.|[^"\\\n])*"|'
    r"(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'",
    re.DOTALL,
)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
_BRACE = re.compile(r"\b(?:namespace(?:\s+[\w:]+)?|extern)\s*\{|[{}]")
OPEN, CLOSE = "([{", ")]}"


@lru_cache(maxsize=64)
def hide(source: str) -> str:
    """The source with comments and literals blanked: same length, same lines."""
    return _SKIPPED.sub(lambda found: _blank(found[0]), source)


def without_directives(hidden: str) -> str:
    """The same with the lines of the preprocessor blanked, and those that continue them."""
    return _DIRECTIVE.sub(lambda found: _blank(found[0]), hidden)


@lru_cache(maxsize=64)
def without_comments(source: str) -> str:
    return _SKIPPED.sub(_blank_comment, source)


def _blank_comment(found: re.Match[str]) -> str:
    return _blank(found[0]) if found[0].startswith("/") else found[0]


def _blank(text: str) -> str:
    return "\n".join(" " * len(line) for line in text.split("\n"))


@lru_cache(maxsize=64)
def functions(hidden: str) -> Callable[[int], bool]:
    """Tells of a position whether a brace other than a namespace's is open there."""
    places, inside, opened = [-1], [False], []
    for brace in _BRACE.finditer(hidden):
        opened = opened[:-1] if brace[0] == "}" else [*opened, brace[0] == "{"]
        places.append(brace.end())
        inside.append(any(opened))
    return lambda position: inside[bisect(places, position) - 1]


def closing(hidden: str, position: int) -> int:
    """Where the bracket closes that is open at `position`; the end of the text if none is."""
    depth = 0
    for index in range(position, len(hidden)):
        depth += (hidden[index] in OPEN) - (hidden[index] in CLOSE)
        if depth < 0:
            return index
    return len(hidden)


def find(hidden: str, position: int, wanted: str) -> int:
    """Where `wanted` stands outside all brackets opened after `position`; -1 if nowhere."""
    depth = 0
    while position < len(hidden):
        if depth == 0 and hidden.startswith(wanted, position):
            return position
        character = hidden[position]
        depth += (character in OPEN) - (character in CLOSE)
        if depth < 0:
            return -1
        position += 1
    return -1


def split_commas(text: str) -> list[str]:
    """The parts between commas that stand in no bracket."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "([{<") - (character in ")]}>")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts
