"""A kernel's source with its text changed, so that it tells what it does."""

from collections.abc import Mapping
from pathlib import Path

from yaie.emulator.rewrite import line_mark


def changed(source: str, path: Path, changes: Mapping[str, str]) -> str:
    """The source with each text that is a key replaced by its value.

    Args:
        path: of the source. What the compiler and the emulator say of a line that follows added
            lines has the line's own number.

    Raises:
        ValueError: a text is not there exactly once.
    """
    original = source
    for old, new in changes.items():
        if source.count(old) != 1:
            raise ValueError(
                f"{path} must have {old.strip()!r} once, has it {source.count(old)} times"
            )
        if new.endswith("\n") and new.count("\n") > old.count("\n"):
            head = original.partition(old)[0] + old
            new += line_mark(head.count("\n") + 1, path)
        source = source.replace(old, new)
    return source
