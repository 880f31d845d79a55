"""Give notebooks other numbers, in every file that carries one.

    python -m yaie.course.author renumber 14=15 15=14    notebook 14 becomes 15, and 15 becomes 14
    python -m yaie.course.author renumber --insert 10    10 and all after it move up by one
    python -m yaie.course.author renumber ... --dry-run  only list what would change

A number changes where its surroundings say that it is a notebook's or an exercise's: in a file's
name, a link, "notebooks 13 to 20", `yaie check 14.4`, "14.4" in quotes. All numbers of a file
change in one pass, so chains and swaps are right. What only looks like a notebook's number is
listed for you to read, since "14.2 times as fast" must stay as it is. If it is one, write the word
before it, as in "the loop of exercise 14.2", and renumber again.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from yaie.course.core.paths import ROOT

# From a word to its number: a space, a quote, or a line's end in a notebook, a string, a comment.
GAP = r"""(?:\\n",\n\s*"|"?\n\s*(?:["#*]|//)?|[ "'`=*\\])+"""
AND = rf"(?:,?{GAP}(?:and|to|or|until){GAP}|[,·]{GAP}|–)"
END = r"(?![\w%=]|[.,]\d)"
UNIT = r"(?! ?(?:times|%|x\b|×|[kKMGT]i?B|[mµun]?s\b|[GT]FLOP|bytes|tokens|minutes))"
STATE = "the reference, |yours, |passes|passed|not started|does not pass|cannot be checked"

PICTURE = re.compile(r"((?<![A-Za-z0-9+/=])[A-Za-z0-9+/=]{200,})")  # base64: no text
OUTPUTS = re.compile(r'^( +)"outputs": \[\n.*?^\1\]', re.MULTILINE | re.DOTALL)
GENERATED = ("exercises/", "solutions/")
READ = (".md", ".py", ".ipynb", ".cu", ".cuh", ".mistakes")  # where people write numbers

OWN = ("yaie/course/author/renumber.py", "tests/test_renumber.py")  # whose numbers are made up


class Refused(ValueError):
    """What was asked for cannot be done. Nothing was changed."""


class Numbers:
    """Which number becomes which, and where in a text a notebook's or an exercise's stands.

    Args:
        new: old number → new number, of all notebooks, such as {"13": "13", "14": "15"}.
        ids: all exercises, such as {"14.4"}.
        titles: number → title of all notebooks.
    """

    def __init__(self, new: dict[str, str], ids: set[str], titles: dict[str, str]) -> None:
        self.new = new
        number = _any_of(new)
        id_ = _any_of(ids) + END
        either = rf"(?:{id_}|{number}{END}{UNIT})"
        names = rf"(?<![\w.]){number}(?=_[a-z*])|(?<![A-Za-z0-9])nb{number}(?!\d)"
        places = [
            names,
            rf"(?<=\[){number}(?=[^\]\n]*\]\(\d\d_)",  # a link
            rf"(?<=\| ){number}(?= \| \[)",  # a row of the README's table
            r"\| \**Exercises?\** \|[^\n]*",  # a row of a notebook's first table
            rf"\b[Nn]otebooks{GAP}{either}(?:{AND}{either})*|\b[Nn]otebook{GAP}{either}",
            rf"\b[Ee]xercises{GAP}{id_}(?:{AND}{id_})*|\b[Ee]xercise{GAP}{id_}",
            rf"\b(?:yaie|author) [a-z]+(?: {either})+|\bmeasure(?: {id_})+",
            rf"(?<=\bmine: ){id_}(?:{AND}{id_})*",  # a row of the learner's times
            rf"(?:(?<=\bf\")|(?<=\bf\\\")){number}(?=\.\{{)",  # f"14.{k}"
            rf"\bMistakes of {id_}|(?<=\"\"\"){id_}(?=: )|(?<=[\"'`]){id_}(?=\\?[\"'`])",
            rf"{id_}(?= [^\n]{{1,80}}: (?:{STATE}))|(?<=\"){id_}(?=  [a-z]\w*  )",  # reports
            rf"(?<=[a-z*] )\((?:{number}, )*0\d(?:(?:, | and | to ){number})*\)",
            rf"(?<![\w.])(?=0){id_}",  # no figure begins with a zero
            *(rf"(?<![\w.]){n}(?= {re.escape(title)})" for n, title in titles.items()),
        ]
        moved = _any_of(old for old in new if new[old] != old)
        doubtful = [
            rf"(?<![\w.,+*/=-])(?={moved}){id_}{UNIT}",
            rf"(?<=[\w`*+] )\({moved}(?:(?:, | to | and ){number})*\)",
            rf"(?<=[\"']){moved}(?=[\"'])",
            rf"(?<![\w.,]){moved}(?:, {number})*{END} and {number}{END}{UNIT}(?! [a-z]+s\b)",
        ]
        self._names = re.compile(names)
        self._places = re.compile("|".join(f"(?:{place})" for place in places))
        self._one = re.compile(rf"(?<![\d.])(?:{id_}|{number}(?!\d))")
        self._id = re.compile(rf"(?<![\d.]){id_}")
        self._doubtful = re.compile("|".join(f"(?:{place})" for place in doubtful))

    def path(self, path: str) -> str:
        return self._names.sub(self._put, path)

    def text(self, text: str) -> str:
        """The text with its new numbers."""
        parts = PICTURE.split(text)
        return "".join(p if i % 2 else self._places.sub(self._put, p) for i, p in enumerate(parts))

    def _put(self, place: re.Match[str]) -> str:
        one = self._id if place[0][0] == "|" else self._one
        return one.sub(lambda found: self.new[found[0][:2]] + found[0][2:], place[0])

    def doubts(self, text: str) -> Iterator[str]:
        """What may be a moved notebook's number and is left as it is: its line, and around it."""
        for pattern in (PICTURE, OUTPUTS, self._places):
            text = pattern.sub(lambda found: "·" + "\n" * found[0].count("\n"), text)
        for found in self._doubtful.finditer(text):
            begin = max(text.rfind("\n", 0, found.start()) + 1, found.start() - 40)
            words = text[begin : found.end() + 40].partition("\n")[0]
            yield f"{text.count(chr(10), 0, found.start()) + 1}: {words.strip()}"


def _any_of(words: Iterable[str]) -> str:
    return f"(?:{'|'.join(map(re.escape, sorted(words))) or '(?!)'})"


def renumber(arguments: list[str], root: Path = ROOT, dry_run: bool = False) -> Iterator[str]:
    """Do what the command's arguments say in the repository at `root`; yields the report's lines.

    Raises:
        Refused: before anything has changed.
    """
    paths = {path for path in _git(root, "ls-files", "-z").split("\0") if (root / path).is_file()}
    files = {path: (root / path).read_bytes() for path in sorted(paths.difference(OWN))}
    stems = [m[1] for path in files if (m := re.fullmatch(r"notebooks/(\d\d_\w+)\.ipynb", path))]
    new = _moves(arguments, sorted(stem[:2] for stem in stems))
    if not dry_run and (dirty := _git(root, "status", "--porcelain")):
        raise Refused(f"commit or stash what changed first:\n{dirty.rstrip()}")
    ids, titles = set(), {}
    for path, data in files.items():
        if place := re.match(r"yaie/course/exercises/nb(\d\d)/ex(\d)_", path):
            ids.add(f"{place[1]}.{place[2]}")
        if path.startswith("notebooks/") and path[10:-6] in stems:
            first = re.search(r'"# (\d\d) ([^"\\]+)', data.decode())
            titles.update({first[1]: first[2]} if first else {})
    numbers = Numbers(new, ids, titles)

    after: list[tuple[str, str, bytes]] = []
    doubts: list[str] = []
    for path, data in files.items():
        try:
            text = data.decode()
        except UnicodeDecodeError:
            text = ""
        target, fresh = numbers.path(path), numbers.text(text).encode() if text else data
        if path.endswith(READ) and not path.startswith(GENERATED):
            doubts += [f"{target}:{doubt}" for doubt in numbers.doubts(text)]
        if target != path or fresh != data:
            after.append((path, target, fresh))
    if taken := {t for p, t, _ in after if p != t} & (set(files) - {path for path, _, _ in after}):
        raise Refused(f"{min(taken)} is in the way: it belongs to no notebook")
    if not dry_run:
        _write(root, after)
    yield from (path if path == target else f"{path} → {target}" for path, target, _ in after)
    if doubts:
        yield f"\nThese {len(doubts)} places were left as they are. Which of them are meant?"
        yield from doubts


def _moves(arguments: list[str], numbers: list[str]) -> dict[str, str]:
    """Old → new for all notebooks, from what was typed."""
    moves: dict[str, str] = {}
    if arguments[:1] == ["--insert"] and len(arguments) == 2:
        if arguments[1] not in numbers:
            raise Refused(f"there is no notebook {arguments[1]}, so its number is free")
        moves = {n: f"{int(n) + 1:02}" for n in numbers if n >= arguments[1]}
        arguments = []
    for argument in arguments:
        old, _, target = argument.partition("=")
        if not re.fullmatch(r"\d\d=\d\d", argument):
            raise Refused(f"{argument!r} should look like 14=15, or be --insert and one number")
        if old not in numbers:
            raise Refused(f"there is no notebook {old}; there are {', '.join(numbers)}")
        if old in moves:
            raise Refused(f"notebook {old} cannot become both {moves[old]} and {target}")
        moves[old] = target
    new = {n: moves.get(n, n) for n in numbers}
    for target in new.values():
        if len(same := [n for n in numbers if new[n] == target]) > 1:
            raise Refused(f"notebooks {' and '.join(same)} would both be {target}")
        if len(target) > 2:
            raise Refused("99 is the last number there is")
    if all(old == target for old, target in new.items()):
        raise Refused("say which numbers change, such as 14=15 15=14, or --insert 10")
    return new


def _write(root: Path, files: list[tuple[str, str, bytes]]) -> None:
    """Give files their new paths and contents, and stage them."""
    moved = [(root / path, root / target) for path, target, _ in files if path != target]
    for path, _ in moved:  # all of them first, since one's new place may be another's old one
        path.rename(path.with_name(f"{path.name}.moved"))
    for path, target in moved:
        target.parent.mkdir(parents=True, exist_ok=True)
        path.with_name(f"{path.name}.moved").rename(target)
    for folder in {path.parent for path, _ in moved}:
        if all(left.name == "__pycache__" for left in folder.iterdir()):
            shutil.rmtree(folder)
    for _, target, data in files:
        (root / target).write_bytes(data)
    _git(root, "add", "--all")


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True)
    if done.returncode:
        raise Refused(f"git {arguments[0]}: {done.stderr.strip()}")
    return done.stdout


def main(arguments: list[str]) -> int:
    dry_run = "--dry-run" in arguments
    try:
        report = list(renumber([a for a in arguments if a != "--dry-run"], dry_run=dry_run))
    except Refused as error:
        print(error, file=sys.stderr)
        return 1
    print("\n".join(report))
    if dry_run:
        return 0
    print("\nNext: python -m yaie.course build; make format; run the notebooks whose pictures show")
    print("numbers (00 draws the map); make test; git commit")
    return 0
