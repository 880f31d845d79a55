"""What the checks of notebook 14 share: every schedule, races in words, costs of a line."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from yaie.course.core.cuda import compiled, launch
from yaie.course.core.expect import fail

if TYPE_CHECKING:
    from yaie.emulator import Report
    from yaie.emulator.checks import Access, Finding

ORDERS = ("forward", "reverse", "random")
SUFFIXES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}
ROUNDING = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 1.6e-2}  # two roundings of each dtype


def dtypes() -> dict[str, Any]:
    """The suffix of a launcher's name and the dtype that it takes."""
    import torch

    return {suffix: getattr(torch, name) for name, suffix in SUFFIXES.items()}


def thread(index: tuple[int, int, int]) -> str:
    """`thread 5`, or `thread (5, 2)` in a thread block that has rows."""
    x, y, z = index
    return f"thread ({x}, {y}, {z})" if z else f"thread ({x}, {y})" if y else f"thread {x}"


def two_threads(found: Finding) -> tuple[str, str]:
    """Both threads of a race, written alike."""
    first, second = found.thread, found.other_thread
    if any(index[1] for index in (first, second)):
        return tuple(f"thread ({index[0]}, {index[1]})" for index in (first, second))
    return thread(first), thread(second)


def race_in_words(found: Finding, element: str) -> str:
    """Who touched what in which line, and what should have stood between."""
    one, other = two_threads(found)
    lines = (found.line, found.other_line)
    if found.access == found.other_access == "store":
        where = f"line {lines[0]}" if lines[0] == lines[1] else f"lines {lines[0]} and {lines[1]}"
        return f"In {where} {one} and {other} both write {element}."
    reads, writes = (one, lines[0]), (other, lines[1])
    if found.access != "load":
        reads, writes = writes, reads
    return (
        f"In line {reads[1]} {reads[0]} reads {element}, which {writes[0]} writes in line "
        f"{writes[1]}, and no barrier stands between the two."
    )


def element_of(found: Finding, path: Path, names: Mapping[str, int], size: int) -> str:
    """`tile[1][0]` for a byte of a shared array, as the file declares it; else which byte it is.

    `names` are the constants that the declaration may use, `size` the bytes of an element.
    """
    text = path.read_text(encoding="utf-8")
    declared = re.search(rf"\b{re.escape(found.name)}\s*\[[^\]]*\]\s*\[([^\]]*)\]\s*;", text)
    width = _number(declared[1], names, size) if declared else None
    index = found.offset // size
    if width:
        return f"{found.name}[{index // width}][{index % width}]"
    if found.name == "dynamic shared memory":
        name = re.search(r"extern\s+__shared__\s+\w+\s+(\w+)\s*\[", text)
        return f"{name[1]}[{index}]" if name else f"byte {found.offset} of shared memory"
    if re.search(rf"\b{re.escape(found.name)}\s*\[[^\]]*\]\s*;", text):
        return f"{found.name}[{index}]"
    return f"byte {found.offset} of {found.name}"


def _number(expression: str, names: Mapping[str, int], size: int) -> int | None:
    """The value of a sum, product or quotient of constants such as `TILE + 4 / sizeof(T)`."""
    text = re.sub(r"\bsizeof\s*\(\s*\w+\s*\)", str(size), expression)
    text = re.sub(r"[A-Za-z_]\w*", lambda name: str(names.get(name[0], "?")), text)
    if not re.fullmatch(r"[\d\s+*/()-]+", text):
        return None
    try:
        return int(eval(text.replace("/", "//"), {"__builtins__": {}}))
    except (SyntaxError, ZeroDivisionError):
        return None


def on_every_schedule(run: Callable[[str], None]) -> None:
    """Call `run` with each order in which threads may take their turns."""
    for order in ORDERS:
        run(order)


def plain(path: Path, name: str, *arguments: Any, order: str = "forward") -> None:
    """Run a launcher unchecked, at full speed."""
    launch(path, name, *arguments, order=order, checked=False)


def require_cheap(report: Report, told: Mapping[str, str]) -> None:
    """Reject a line that moves more sectors or wavefronts than its bytes need.

    `told` explains it for "global load", "global store", "shared load" and "shared store".
    """
    for access in report.accesses:
        if access.units > access.ideal_units:
            what = f"{access.memory} {access.kind}"
            source = report.source.splitlines()[access.line - 1].strip()
            fail(
                f"line {access.line}: a {what} of {access.name} costs a warp "
                f"{access.per_request:.4g} {access.unit}, and {access.ideal:.4g} would do\n"
                f"    {source}\n{told[what]}",
                picture=partial(_drawn, access),
            )


def _drawn(access: Access) -> Any:
    from yaie.course.viz.memory import draw_access

    return draw_access(access)


def report_of(path: Path, name: str, *arguments: Any) -> Report:
    """The report of a checked run that is known to be clean."""
    module = compiled(path, checked=True)
    getattr(module, name)(*arguments)
    return module.report
