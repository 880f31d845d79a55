"""Known mistakes of an exercise, as edits on its solution, and how such an edit is applied.

A file `exK_name.mistakes` beside the exercise's module holds one entry per mistake:

    counts_the_whole_edge: The whole edge was counted, though only part of it agrees.
    - shared = self._shared_tokens(child.key, tokens, found.length)
    + shared = len(child.key)

A name, a sentence for the learner (it may go on in indented lines, and names no variable that only
the solution has), and an edit of the text that
`solutions/` holds. `-` is a line that goes, `+` a line that comes, `=` a line that stays and says
where. `- ...` stands for all lines up to the next old one. Leading white space and trailing
comments do not count; a new line is indented as the old line above it. Old lines that follow each
other in the solution are looked for together, and must occur exactly once: a changed reference
fails loudly. `#` begins a comment.

Flags in brackets after the name:

    [endless]   the code never ends; it is not run, a time-out is told by its sentence
    [right]     no mistake: another structure that the check must accept; the sentence says which
    [on NAME]   the edit applies to the right version NAME
    [equal]     no mistake: a systematic mutant that behaves like the reference, and why
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path


class BadMistake(ValueError):
    """An entry cannot be read, or its edit does not fit the solution."""


@dataclass
class Mistake:
    """One entry.

    Attributes:
        name: unique in its file.
        sentence: what to tell a learner who made it.
        edit: (sign, text) per line, the sign one of "-", "+", "=".
        flags: those in brackets, but for `base`.
        base: the right version that it edits; "" for the solution itself.
    """

    name: str
    sentence: str
    edit: list[tuple[str, str]] = field(default_factory=list)
    flags: frozenset[str] = frozenset()
    base: str = ""


_HEAD = re.compile(r"(?P<name>\w+)(?: \[(?P<flags>[^\]]*)\])?: ?(?P<sentence>.*)")
_FLAGS = {"endless", "right", "equal"}


@lru_cache(maxsize=128)
def read_mistakes(path: Path) -> tuple[Mistake, ...]:
    """The entries of a file, in order.

    Raises BadMistake, which names the line.
    """
    found: dict[str, Mistake] = {}
    entry = None
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        where = f"{path.name}, line {number}"
        if not line.strip() or line.startswith("#"):
            continue
        if line[0] in "-+=" and entry and line[1:2] in ("", " "):
            entry.edit.append((line[0], line[2:]))
        elif line[:2] == "  " and entry and not entry.edit:
            entry.sentence = f"{entry.sentence} {line.strip()}".strip()
        elif head := _HEAD.fullmatch(line):
            flags = {flag.strip() for flag in (head["flags"] or "").split(",")} - {""}
            bases = [flag[3:] for flag in flags if flag.startswith("on ")]
            if unknown := {f for f in flags if not f.startswith("on ")} - _FLAGS:
                raise BadMistake(f"{where}: unknown flag {', '.join(sorted(unknown))}")
            if head["name"] in found:
                raise BadMistake(f"{where}: a second entry {head['name']}")
            base = bases[0] if bases else ""
            if base and "right" not in getattr(found.get(base), "flags", ()):
                raise BadMistake(f"{where}: {base} is no right version above")
            entry = Mistake(head["name"], head["sentence"], [], frozenset(flags & _FLAGS), base)
            found[entry.name] = entry
        else:
            raise BadMistake(f"{where}: neither an entry's head nor an edit: {line!r}")
    for entry in found.values():
        if not entry.sentence or not entry.edit:
            raise BadMistake(f"{path.name}: {entry.name} needs a sentence and an edit")
    return tuple(found.values())


def version(solution: str, mistake: Mistake, entries: Sequence[Mistake], is_cuda: bool) -> str:
    """The text of the solution with a mistake's edit in it."""
    base = next((entry for entry in entries if entry.name == mistake.base), None)
    text = version(solution, base, entries, is_cuda) if base else solution
    try:
        return apply(text, mistake.edit, is_cuda)
    except BadMistake as error:
        raise BadMistake(f"{mistake.name}: {error}") from None


def apply(text: str, edit: Sequence[tuple[str, str]], is_cuda: bool = False) -> str:
    """Apply an edit to a text.

    Raises BadMistake if old lines do not occur, or more than once.
    """
    lines = text.splitlines()
    code = [_code(line, is_cuda) for line in lines]
    new: list[str | None] = list(lines)
    before: dict[int, list[str]] = {}
    behind: dict[int, list[str]] = {}
    for hunk in _hunks(edit, code, is_cuda):
        _change(hunk, lines, new, before, behind)
    result: list[str] = []
    for number, line in enumerate(new):
        result += before.get(number, [])
        result += [line] if line is not None else []
        result += behind.get(number, [])
    return "\n".join(result) + "\n"


@dataclass
class _Hunk:
    """Lines of an edit whose old ones follow each other, and the place of each old one."""

    lines: list[tuple[str, str]]
    places: list[list[int]]  # for each way in which it fits: the numbers of the old lines
    gap: bool = False  # the last line was "..."

    def extended(self, text: str, code: list[str]) -> list[list[int]]:
        """The ways that remain if `text` is the next old line."""
        ways = []
        for way in self.places:
            start = _next(code, way[-1])
            if self.gap:
                start = next((n for n in range(way[-1] + 1, len(code)) if code[n] == text), None)
            if start is not None and code[start] == text:
                ways.append([*way, start])
        return ways


def _hunks(edit: Sequence[tuple[str, str]], code: list[str], is_cuda: bool) -> list[_Hunk]:
    """Cut an edit where its old lines do not follow each other in the text."""
    hunks: list[_Hunk] = []
    waiting: list[tuple[str, str]] = []  # new lines in front of the first old one
    for sign, line in edit:
        if sign == "+":
            (hunks[-1].lines if hunks else waiting).append((sign, line))
            continue
        if line.strip() == "...":
            if not hunks:
                raise BadMistake("`...` needs an old line above it")
            hunks[-1].gap = True
            hunks[-1].lines.append((sign, "..."))
            continue
        text = _code(line, is_cuda)
        ways = hunks[-1].extended(text, code) if hunks else []
        if not ways:
            if hunks and hunks[-1].gap:
                raise BadMistake(f"no line `{text}` below `...`")
            ways = [[number] for number, other in enumerate(code) if other == text]
            hunks.append(_Hunk([], ways))
            if not ways:
                raise BadMistake(f"no line `{text}` in the solution")
        hunks[-1].places, hunks[-1].gap = ways, False
        hunks[-1].lines += [*waiting, (sign, line)]
        waiting = []
    if waiting or not hunks:
        raise BadMistake("an edit needs an old line")
    for hunk in hunks:
        if hunk.gap:
            raise BadMistake("`...` needs an old line below it")
        if len(hunk.places) > 1:
            first = next(line for sign, line in hunk.lines if sign != "+")
            raise BadMistake(f"`{first.strip()}` occurs {len(hunk.places)} times")
    return hunks


def _change(
    hunk: _Hunk,
    lines: list[str],
    new: list[str | None],
    before: dict[int, list[str]],
    behind: dict[int, list[str]],
) -> None:
    places = iter(hunk.places[0])
    anchor, text, gap_from = None, "", None
    waiting: list[str] = []
    for sign, line in hunk.lines:
        if sign == "+":
            if anchor is None:
                waiting.append(line)
            else:
                behind.setdefault(anchor, []).append(_indented(line, text, lines[anchor]))
            continue
        if line == "...":
            gap_from = anchor + 1 if sign == "-" else None
            continue
        anchor, text = next(places), line
        if gap_from is not None:
            new[gap_from:anchor] = [None] * (anchor - gap_from)
            gap_from = None
        if waiting:
            before[anchor] = [_indented(line, text, lines[anchor]) for line in waiting]
            waiting = []
        if sign == "-":
            new[anchor] = None


def _indented(line: str, old: str, source: str) -> str:
    """A new line, as far to the right of `source` as it is of `old` in the edit."""
    shift = len(source) - len(source.lstrip()) - (len(old) - len(old.lstrip()))
    depth = len(line) - len(line.lstrip()) + shift
    return " " * max(0, depth) + line.strip() if line.strip() else ""


def _next(code: list[str], number: int) -> int | None:
    """The next line that is not blank."""
    return next((n for n in range(number + 1, len(code)) if code[n]), None)


def _code(line: str, is_cuda: bool) -> str:
    """A line without white space around it and without a comment after it."""
    comment = r"(^|\s+)//.*$" if is_cuda else r"(^|\s\s+)# .*$"
    return re.sub(comment, "", line.strip()).strip()
