"""Two slips in CUDA C++ that no result tells: the wrong stream, and the wrong type."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from yaie.emulator.checks import Finding

STREAM = (
    "It is the fourth value in <<<…>>>. Without it the launch goes to the default stream, and does "
    "not wait for the work before it on the caller's."
)


def off_the_stream(code: str) -> tuple[int, str] | None:
    """The line of a launch that names none of the streams in its file, and its text.

    Args:
        code: of the file, without comments.
    """
    streams = set(re.findall(r"\bcudaStream_t\s+(\w+)", code))
    for launch in re.finditer(r"<<<(.*?)>>>", code, re.DOTALL):
        if streams.isdisjoint(re.findall(r"\w+", launch[1])):
            line = code.count("\n", 0, launch.start()) + 1
            return line, code.splitlines()[line - 1].strip()
    return None


def other_size(finding: Finding, source: str, launcher: str, arguments: Sequence[Any]) -> str:
    """Say of an access past the end that it is larger than an element, which may be the reason.

    Says nothing of asynchronous copies, which move 16 bytes of any type, nor of what a header does.

    Args:
        arguments: of the launcher, tensors and numbers.
    """
    from yaie.emulator.signature import find_launchers

    touched = re.search(r"\b(load|store) of (\d+) bytes", finding.message)
    names = [parameter.name for parameter in find_launchers(source)[launcher].wanted]
    if finding.kind != "out_of_bounds" or not touched or finding.name not in names:
        return ""
    argument = arguments[names.index(finding.name)]
    if isinstance(argument, (list, tuple)):  # the addresses of tensors: of any types
        return ""
    text = source.splitlines()[finding.line - 1] if finding.line else ""
    if finding.header or "cp_async" in text:
        return ""
    own = argument.element_size()
    if int(touched[2]) <= own:
        return ""
    return (
        f"A {touched[1]} of {touched[2]} bytes, where an element of {finding.name} has {own}: is "
        "that meant, or has the pointer the wrong type? "
    )
