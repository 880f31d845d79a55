"""Which element of which array a fault is about, as the source declares it."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from yaie.emulator import runtime
from yaie.emulator.lines import Place
from yaie.emulator.rewrite import declared_variables
from yaie.emulator.text import closing, hide

# Ids of memory that is no argument and no named array; as in runtime/checker.cpp.
DYNAMIC = -2
FREE = -6
_UNNAMED = {
    **{DYNAMIC: "dynamic shared memory", -4: "memory from cudaMalloc", -5: "a variable"},
    FREE: "memory that cudaFree has freed",
}


@dataclass(frozen=True)
class Memory:
    """A stretch of memory that the checker knows by name: an argument or a shared array.

    `lead` is how many bytes after the beginning of a sector it begins, `item` how many bytes an
    element has; 0 if that is not known.
    """

    name: str
    size: int  # bytes
    lead: int = 0
    item: int = 0


def name_of(number: int, memories: Sequence[Memory]) -> str:
    if 0 <= number < len(memories):
        return memories[number].name
    return _UNNAMED.get(number, "memory")


_BYTES = {
    **{"char": 1, "bool": 1, "int8_t": 1, "uint8_t": 1, "short": 2, "__half": 2, "half": 2},
    **{"__nv_bfloat16": 2, "int": 4, "unsigned": 4, "float": 4, "double": 8, "long": 8},
    **{"int32_t": 4, "uint32_t": 4, "int64_t": 8, "uint64_t": 8, "size_t": 8, "float2": 8},
    **{"__half2": 4, "__nv_bfloat162": 4, "float4": 16, "int2": 8, "int4": 16},
}
_SHARED = re.compile(r"(?P<extern>\bextern\s+)?\b__shared__\s+(?P<rest>[^;{}]*);")


def element(raw: runtime.RawFailure, memories: Sequence[Memory], source: str) -> str:
    """`tile[1][0]` for a byte of an array, as the file declares it, or else which byte it is."""
    block = f" of its cluster's thread block {raw.owner - 1}" if raw.owner else ""
    return _element(raw, memories, source) + block


def _element(raw: runtime.RawFailure, memories: Sequence[Memory], source: str) -> str:
    name = name_of(raw.range, memories)
    memory = memories[raw.range] if 0 <= raw.range < len(memories) else Memory(name, 0)
    if memory.item:
        return f"{name}[{raw.offset // memory.item}]"
    if runtime.MEMORIES[raw.memory] == "shared":
        numbers = _constants(source)
        declared = _declared(source)
        if raw.range == DYNAMIC:
            found = {(kind, given) for dynamic, kind, given, _ in declared if dynamic}
            if len(found) == 1:
                kind, name = found.pop()
                if _BYTES.get(kind, 1) > 1:
                    return f"{name}[{raw.offset // _BYTES[kind]}]"
        for dynamic, kind, given, bounds in declared:
            if not dynamic and given == name:
                if not bounds:
                    return name
                if index := _index(kind, bounds, memory.size, raw, numbers):
                    return f"{name}{index}"
    return f"byte {raw.offset:,} of {name}"


@lru_cache(maxsize=32)  # all findings of a source ask for these
def _declared(source: str) -> list[tuple[bool, str, str, list[str]]]:
    """Of each `__shared__` variable: whether it is dynamic, its type, name and bounds."""
    found = []
    for match in _SHARED.finditer(hide(source)):
        text = re.sub(r"\bvolatile\b|\bstatic\b", "", match["rest"])
        for kind, name, bounds in declared_variables(text):
            last = kind.split()[-1] if kind.strip() else ""
            sizes = re.findall(r"\[([^\]]*)\]", bounds)
            found.append((bool(match["extern"]), last, name, sizes))
    return found


def _index(
    kind: str, bounds: list[str], size: int, raw: runtime.RawFailure, numbers: dict[str, int]
) -> str:
    """`[1][0]`, or "" if the size of an element or of a row is not known."""
    known = _BYTES.get(kind)
    for item in [known] if known else [raw.size, 2, 4, 8, 16]:
        widths = [_value(bound, numbers, item) for bound in bounds]
        if None in widths[1:]:
            continue
        if None not in widths:
            if not known and "sizeof" not in "".join(bounds):
                item = size // max(1, math.prod(widths))  # a struct, or a type of the template
            if not item or math.prod(widths) * item != size:
                continue
        index, indices = raw.offset // item, []
        for width in reversed(widths[1:]):
            indices.insert(0, index % width)
            index //= width
        return "".join(f"[{i}]" for i in [index, *indices])
    return ""


@lru_cache(maxsize=32)
def _constants(source: str) -> dict[str, int]:
    """The whole numbers that a file gives a name: `constexpr int TILE = 32;`."""
    found: dict[str, int] = {}
    pattern = r"\bconst(?:expr)?\s+(?:unsigned\s+|long\s+)*\w+\s+([^;()]*=[^;]*);"
    for match in re.finditer(pattern, hide(source)):
        for part in match[1].split(","):
            name, _, text = part.partition("=")
            if (value := _value(text, found, 0)) is not None:
                found[name.strip()] = value
    for name, text in re.findall(r"^\s*#define\s+(\w+)\s+(.+)$", source, re.MULTILINE):
        if (value := _value(text, found, 0)) is not None:
            found[name] = value
    return found


def _value(expression: str, numbers: dict[str, int], item: int) -> int | None:
    """The value of an expression of constants such as `TILE + 4 / sizeof(T)`."""

    def size(of: re.Match) -> str:
        return str(_BYTES.get(of[1], item))

    text = re.sub(r"\bsizeof\s*\(\s*(\w+)\s*\)", size, expression)
    text = re.sub(r"[A-Za-z_]\w*", lambda name: str(numbers.get(name[0], "?")), text)
    if not re.fullmatch(r"[\d\s+*/%()-]+", text):
        return None
    try:
        return int(eval(text.replace("/", "//"), {"__builtins__": {}}))
    except (SyntaxError, ZeroDivisionError, TypeError):
        return None


_SUBSCRIPTED = re.compile(r"\w+(?:(?:\.|->)\w+)*\s*\[")


def indexed(raw: runtime.RawFailure, here: Place, source: str) -> str:
    """`s[y][x + 1] with the index 17, where 0 to 16 are allowed`, of an array of known extent."""
    index, kind = raw.text.decode().split(" ", 1)
    extent = int(re.search(r"\[(\d+)\]", kind)[1])
    return (
        f"{_subscripted(here, source, extent) or 'an array'} with the index {index}, where 0 to "
        f"{extent - 1} are allowed"
    )


def _subscripted(here: Place, source: str, extent: int) -> str:
    """The expression of a line that indexes an array of that extent; "" if there are several."""
    lines = hide(source).splitlines()
    if here.header or not 0 < here.line <= len(lines):
        return ""
    line, found, end = lines[here.line - 1], {}, 0
    while match := _SUBSCRIPTED.search(line, end):
        end = match.end()
        last = closing(line, end) + 1
        while line[last : last + 1] == "[":
            last = closing(line, last + 1) + 1
        found[line[match.start() : last]] = re.findall(r"\w+", match[0])[-1]
    numbers, hidden = _constants(source), "\n".join(lines)
    names = {
        name
        for name, bounds in re.findall(r"\b(\w+)((?:\s*\[[^\]]*\])+)\s*[;,={]", hidden)
        if extent in {_value(bound, numbers, 0) for bound in re.findall(r"\[([^\]]*)\]", bounds)}
    }
    likely = [text for text, name in found.items() if name in names] or list(found)
    return likely[0] if len(likely) == 1 else ""
