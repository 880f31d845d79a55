"""What a learner's code prints while it is judged: the first lines of it reach the learner."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from typing import Any, TextIO

MOST_LINES, LONGEST_LINE = 40, 500


@contextmanager
def first_lines() -> Iterator[None]:
    """Print at most `MOST_LINES` lines of what is printed inside, and how many more there were."""
    few = _Few(sys.stdout)
    try:
        with redirect_stdout(few):
            yield
    finally:
        if few.lines > MOST_LINES:
            print(f"… and {few.lines - MOST_LINES:,} more lines")


@contextmanager
def hear() -> Iterator[list[list[str]]]:
    """Collect the words after each "told: ", which a check has a kernel print before the words of a
    line. What else the kernel prints is the learner's, and is printed at the end."""
    heard: list[list[str]] = []
    out = StringIO()
    try:
        with redirect_stdout(out):
            yield heard
    finally:
        heard += [found.split() for found in re.findall("told: (.*)", out.getvalue())]
        print(re.sub("told: .*\n", "", out.getvalue()), end="")


class _Few:
    def __init__(self, out: TextIO) -> None:
        self.out, self.lines, self.column = out, 0, 0

    def write(self, text: str) -> int:
        for line in text.splitlines(keepends=True):
            ends = line.endswith("\n")
            if self.lines < MOST_LINES:
                room = max(0, LONGEST_LINE - self.column)
                self.out.write(line.rstrip("\n")[:room] + "\n" * ends)
            self.lines += ends
            self.column = 0 if ends else self.column + len(line)
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.out, name)
