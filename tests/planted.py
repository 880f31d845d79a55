"""Planted faults: `emulator/planted/*.cu`, correct kernels and what may be wrong in them.

    //: tree                                a case: code as in any .cu file, up to the next case
    //= out[0] == x[:64].sum()              what the correct version computes
    __global__ void k(const float* x, float* out) {
        ...
        __syncthreads();
        //! race @sum: __syncwarp();        the line above, wrong: the kind, and the fault's line
    }
    RUN k<<<1, 64, 0, stream>>>(x, out);    its launcher; several lines stand between RUN and END

Each wrong line is a fault of its own, the case without any its correct twin, and a case without
wrong lines an idiom. The report must name the replaced line or, with @NAME (or several), one that
ends in `// @NAME`. `a+b` are two kinds at once, `a|b` one or the other; after `?` it shows
only where another thread comes first. A launcher gets x = 1 … 97, and out, zeros.
"""

import re
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

FOLDER = Path(__file__).parent / "emulator" / "planted"
FILES = sorted(file.stem for file in FOLDER.glob("*.cu"))
ELEMENTS = 97  # of x and out: no multiple of anything
_WRONG = re.compile(
    r"\s*//! (?P<kinds>[\w+|]+)(?P<rare>\?)?(?P<marks>(?: @\w+)*):(?: (?P<code>.*))?"
)
_BEGIN = (
    'extern "C" cudaError_t run_{}(const float* x, float* out, int n, cudaStream_t stream) {{ {}'
)
_END = " return cudaGetLastError(); }"


@dataclass(frozen=True)
class Version:
    """A correct case, or one with a fault: of these kinds, in one of these lines of the file."""

    name: str
    code: str
    kinds: frozenset[str] = frozenset()
    lines: frozenset[int] = frozenset()
    rare: bool = False  # found only in some orders of the threads
    either: bool = False  # one of the kinds, not all
    value: str = ""

    @property
    def launcher(self) -> str:
        return f"run_{self.name}"


@cache
def versions(file: str) -> tuple[Version, ...]:
    """All versions of the cases of a file, each correct one before those with its faults."""
    rows = (FOLDER / f"{file}.cu").read_text().splitlines()
    starts = [number for number, row in enumerate(rows) if row.startswith("//: ")] + [len(rows)]
    found: list[Version] = []
    for start, end in pairwise(starts):
        found += _case(rows[start][4:], rows[:end], start + 1)
    return tuple(found)


def _case(name: str, rows: list[str], start: int) -> list[Version]:
    marks: dict[str, set[int]] = {}
    edits, value, code = [], "", {}
    for number in range(start, len(rows)):
        row = rows[number]
        if match := _WRONG.fullmatch(row):
            edits.append((max(code), match))
        elif row.startswith("//= "):
            value = row[4:]
        else:
            code[number] = row
            if mark := re.search(r"// @(\w+)$", row):
                marks.setdefault(mark[1], set()).add(number + 1)
    found = [Version(name, _text(name, start, code), value=value)]
    for index, (number, match) in enumerate(edits, start=1):
        own = f"{name}_{index}"
        lines = set().union(*(marks[m] for m in re.findall(r"\w+", match["marks"]))) or {number + 1}
        wrong = re.match(r"\s*(?:RUN )?", code[number])[0] + (match["code"] or "")
        kinds = frozenset(re.split(r"[+|]", match["kinds"]))
        text = _text(own, start, code | {number: wrong})
        found.append(
            Version(own, text, kinds, frozenset(lines), bool(match["rare"]), "|" in match["kinds"])
        )
    return found


def _text(name: str, start: int, code: dict[int, str]) -> str:
    """A version in a namespace, in the lines that it has in the file."""
    rows = [f"#line {start + 1}"]
    for number in range(start, max(code) + 1):
        row = code.get(number, "")
        if row.startswith("RUN"):
            row = _BEGIN.format(name, row[3:].strip()) + (_END if row[3:].strip() else "")
        rows.append(_END if row == "END" else row)
    return f"namespace {name}_ {{\n" + "\n".join(rows) + "\n}\n"


def source(file: str, faults: bool = True) -> str:
    """Every version of a file's cases, or the correct ones, to be compiled together."""
    text = (FOLDER / f"{file}.cu").read_text()
    head = text[: text.index("\n//: ") + 1]
    return head + "".join(v.code for v in versions(file) if faults or not v.kinds)
