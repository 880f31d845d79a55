"""Explicit conversions to integers, which on a GPU saturate: `(int)x`, `int(x)`, `static_cast`.

An x86 CPU converts a float that does not fit to the least integer, so each conversion that is
written becomes a call of `emulator::cast`. One that is not written stays the compiler's: in checked
mode the checker reports it when its value does not fit.
"""

import re

_INTEGER = (
    r"(?:(?:(?:un)?signed\s+)?(?:char|short|int|long\s+long|long)(?:\s+int)?|unsigned|signed|"
    r"size_t|u?int(?:8|16|32|64)_t)"
)
_CAST = re.compile(
    rf"\([ \t]*(?P<type>{_INTEGER})[ \t]*\)(?=[ \t]*[\w(:&*+~!.-])"
    r"(?![ \t]*(?:->|(?:const|noexcept|override|final|mutable)\b))"
)
_CALL = re.compile(
    rf"\bstatic_cast\s*<\s*(?P<static>{_INTEGER})\s*>\s*\(|"
    rf"(?<=[=(,+\-*/%?:&|!~\[{{;^])\s*(?<![\w:])(?P<plain>{_INTEGER})[ \t]*\((?=[ \t]*[\w(+.-])"
)
_PREFIX = re.compile(
    r"(?:\s|[-+!~*&]|\(\s*(?:const\s+)?(?:[A-Z]\w*(?=\s*\*?\s*\)\s*\w)|float|double|bool|half|"
    rf"__half|{_INTEGER})\s*\**\s*\))*"
)
_PRIMARY = re.compile(
    r"\.?\d(?:[eEpP][+-]|[\w.])*|(?:::\s*)?[A-Za-z_]\w*(?:\s*::\s*\w+)*(?:<[\w\s,:*]*>(?=\s*\())?"
)
_MEMBER = re.compile(r"\s*(?:\.|->)\s*\w+|\+\+|--")
_BEFORE = re.compile(r"(?:[\w\]]|\boperator\s*\(\s*\))$")
_KEYWORD = re.compile(r"\b(?:return|case|else)$")
# A macro that quotes an argument: `#define CHECK(call) report(#call, call)`.
_QUOTING = re.compile(
    r"^[ \t]*#[ \t]*define[ \t]+(\w+)\((?:[^\n]*\\\n)*[^\n]*?[^#\n]#[ \t]*\w", re.MULTILINE
)
_CLOSE = {"(": ")", "[": "]"}


def saturate(source: str, hidden: str) -> str:
    """The source with its conversions as calls; `hidden` is it without comments and literals."""
    edits, quoted = [], _quoted(hidden)
    for found in _CAST.finditer(hidden):
        before = hidden[: found.start()].rstrip()[-40:]  # a search looks at all of a text
        if _BEFORE.search(before) and not _KEYWORD.search(before):
            continue  # sizeof(int), f(int)
        end = _operand_end(hidden, found.end())
        if end > found.end():
            edits += [(found.start(), found.end(), f"::emulator::cast<{found['type']}>(")]
            edits += [(end, end, ")")]
    for found in _CALL.finditer(hidden):
        kind = "static" if found["static"] else "plain"
        start = found.start() if kind == "static" else found.start(kind)
        edits += [(start, found.end(), f"::emulator::cast<{found[kind]}>(")]
    pieces, last = [], 0
    for start, end, text in sorted(edits):
        if any(begin < start < after for begin, after in quoted):
            continue
        pieces += [source[last:start], text]
        last = end
    return "".join([*pieces, source[last:]])


def _quoted(hidden: str) -> list[tuple[int, int]]:
    """Where arguments stand that a macro quotes: their text is shown to the reader."""
    names = "|".join({"assert", *_QUOTING.findall(hidden)})
    calls = re.finditer(rf"\b(?:{names})[ \t]*\(", hidden)
    return [(found.start(), _after_bracket(hidden, found.end() - 1)) for found in calls]


def _operand_end(hidden: str, position: int) -> int:
    """Where the operand of a cast ends that stands before `position`; `position` if not known."""
    begin = _PREFIX.match(hidden, position).end()
    if hidden.startswith("(", begin):
        end = _after_bracket(hidden, begin)
    else:
        primary = _PRIMARY.match(hidden, begin)
        end = primary.end() if primary else -1
    if end < 0:
        return position
    while True:
        after = re.compile(r"[ \t]*[(\[]").match(hidden, end)
        if after:
            end = _after_bracket(hidden, after.end() - 1)
        elif member := _MEMBER.match(hidden, end):
            end = member.end()
        else:
            return end
        if end < 0:
            return position


def _after_bracket(hidden: str, position: int) -> int:
    """Past the bracket that closes the one at `position`; -1 if none does."""
    opening, depth = hidden[position], 0
    for index in range(position, len(hidden)):
        depth += (hidden[index] == opening) - (hidden[index] == _CLOSE[opening])
        if depth == 0:
            return index + 1
    return -1
