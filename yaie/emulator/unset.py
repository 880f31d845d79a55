"""What checked mode adds to a source: a thread that reads a local variable without a value is told.

After `float sum, last[4];` stand objects by which the checker knows of the variables until their
scope ends. All accesses to them are then reported, as those to memory are.
"""

import re
from collections.abc import Iterator

from yaie.emulator.text import CLOSE, OPEN, hide, split_commas, without_directives

_WORD = (
    r"(?:unsigned|signed|char|short|int|long|float|double|bool|size_t|u?int(?:8|16|32|64)_t|uint|"
    r"uchar|ushort|half2?|__half2?|(?:__)?nv_bfloat162?|__nv_bfloat16|"
    r"(?:float|double|u?int|u?char|u?short|u?long|u?longlong)[1-4]|[A-Z]\w?|scalar_t)"
)
_DECLARATION = re.compile(
    rf"\s*((?:const\s+)?{_WORD}\b(?:\s+{_WORD}\b)*)(\s[^;{{}}]*|\*[^;{{}}]*);"
)
_DECLARATOR = re.compile(r"\s*[*\s]*(?:__restrict__\s+)?(\w+)\s*((?:\[[^\]]*\]\s*)*)")
_BYTES = re.compile(r"(?<![\w.>:])(?:std::|::)?(mem(?:cpy|move|set))(?=\s*\()")


def declare_unset(source: str) -> str:
    """The source with such an object after each declaration in a function's body.

    Left alone are the variables that stand directly in a `switch`, whose labels would jump over the
    object, and files with `goto`, which would too.
    """
    plain = without_directives(hide(source))
    if re.search(r"\bgoto\b", plain):
        return source
    pieces, end = [], 0
    for position in _statements(plain):
        found = _DECLARATION.match(plain, position)
        if not found:
            continue
        names = list(_without_value(found[1], found[2]))
        if names:
            objects = "".join(f" EMULATOR_UNSET({name});" for name in names)
            pieces += [source[end : found.end()], objects]
            end = found.end()
    return "".join([*pieces, source[end:]])


def report_bytes(source: str) -> str:
    """The source with its calls of memcpy, memmove and memset as the checker's."""
    pieces, end = [], 0
    for found in _BYTES.finditer(hide(source)):
        pieces += [source[end : found.start()], f"__tsan_{found[1]}"]
        end = found.end()
    return "".join([*pieces, source[end:]])


def _without_value(kind: str, declarators: str) -> Iterator[str]:
    for part in split_commas(declarators):
        if (found := _DECLARATOR.fullmatch(part)) and not (
            kind.startswith("const ") and "*" not in declarators
        ):
            yield found[1]


def _statements(plain: str) -> Iterator[int]:
    """Where a statement may begin in the body of a function."""
    opened: list[str] = []  # of each open bracket, what it holds
    begin = 0  # of the present statement
    for found in re.finditer(r"[][(){};]", plain):
        mark, position = found[0], found.start()
        if mark == ";":
            begin = position + 1
        elif mark in OPEN:
            opened.append(_holds(plain, begin, position) if mark == "{" else mark)
            begin = position + 1 if mark == "{" else begin
        elif mark in CLOSE and opened:
            opened.pop()
            begin = position + 1 if mark == "}" else begin
        if mark in ";{}" and opened and opened[-1] == "statements":
            yield position + 1


def _holds(plain: str, begin: int, position: int) -> str:
    """What stands in the braces that open at `position`: statements or something else."""
    before = plain[begin:position].rstrip()
    if re.search(r"\bswitch\s*\([^{]*$", before):
        return "switch"
    if re.search(r"\b(?:struct|union|class)\s+(?:__align__|alignas)\s*\([^()]*\)$", before):
        return "others"
    is_function = re.search(r"\)\s*(?:const|noexcept|mutable|->[\s\w:<>*&]+)*\s*$", before)
    if before == "" or is_function or re.search(r"\b(?:else|do|try)$|\]$", before):
        return "statements"
    return "others"
