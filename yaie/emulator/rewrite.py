"""CUDA C++ as an ordinary C++ compiler reads it.

Most of CUDA C++ is C++ with some macros. Replaced here are the launch `kernel<<<…>>>(…)`,
`__shared__` variables, and attributes where C++ does not allow them; each on its own line, so that
the compiler's messages and the debugger's lines are the learner's.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from os.path import normpath
from pathlib import Path
from zlib import crc32

from yaie.build.cache import CSRC
from yaie.emulator.casts import saturate
from yaie.emulator.launches import KERNEL, begin_kernels, refuse_calls, replace_launches
from yaie.emulator.macros import FrozenMacros, Macros
from yaie.emulator.ptx import translate
from yaie.emulator.ptx_operands import Unknown
from yaie.emulator.refused import refuse
from yaie.emulator.text import closing, functions, hide, split_commas, without_comments
from yaie.emulator.unset import declare_unset, report_bytes

_LINE = re.compile(r"^#line (\d+) .*$", re.MULTILINE)
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">\n]+)[">][^\n]*$', re.MULTILINE)
_EXTERN_SHARED = re.compile(
    r"\bextern\s+(?:__shared__|volatile\s+__shared__)\s+(?P<type>[^;{}=]*?)"
    r"\b(?P<name>\w+)\s*\[\s*\]\s*;"
)
_SHARED = re.compile(
    r"(?:\bstatic\s+)?(?P<volatile>\bvolatile\s+)?\b__shared__\s+(?P<rest>[^;={}]*);"
)
SHARED_SUFFIX = "_in_shared_memory"  # of the variable itself; its own name is a reference
_ALIGNMENT = re.compile(r"(?:__align__|alignas)\s*\([^()]*\)")
_PLACE = re.compile(r"(?<![\w.])(?:threadIdx|blockIdx|blockDim|gridDim)\b")
_MEMBER = re.compile(r"(?:(?<=\.)|(?<=->))(?:blockDim|gridDim)\b")  # of cudaLaunchConfig_t
_DECLARED = re.compile(r"\b(?:dim3|uint3|auto|int|unsigned|size_t)\s*[&*]?\s*$")
_DECLARATION = re.compile(r"\s*(?:(?:static|const|constexpr)\s+)*(?:dim3|uint3)\b")
_ASSEMBLY = re.compile(r"\b(?:asm|__asm__)\s*(?:(?:volatile|__volatile__)\s*)?\(")
_CAST = re.compile(r"(\bcudaLaunch\w*Kernel\s*\()\s*\(\s*(?:const\s+)?void\s*\*\s*\)")
# A file with Hopper's instructions is compiled for no other GPU.
_HOPPER = """#include "emulator/ptx_hopper.h"
#undef __CUDA_ARCH__
#define __CUDA_ARCH__ 900
#define __CUDA_ARCH_FEAT_SM90_ALL 1
"""


@dataclass(frozen=True)
class Rewritten:
    """What the compiler gets.

    Attributes:
        code: C++.
        kernels: the names of the `__global__` functions.
        files: every file the code came from, the source first; headers are inlined.
    """

    code: str
    kernels: tuple[str, ...]
    files: tuple[Path, ...]


def rewrite(source: str, path: str | Path, checked: bool = False) -> Rewritten:
    """Turn CUDA C++ into C++ for the emulator; `path` names the source in messages.

    Headers are looked for beside the file that includes them, then in csrc/; those that are not
    there are the compiler's.
    In checked mode the checker knows of local variables without a first value, see unset.py.
    Raises SyntaxError, with path and line, for a launch that has no end, for a kernel that is
    called as a function, and for what `refused.py` finds.
    """
    path = Path(path)
    files: list[Path] = [path]
    code = _inline(source, path, files, Macros(), checked)
    kernels = _kernels(code)
    headers = '#include "cuda_runtime.h"\n'
    if any(file.name == "hopper.cuh" for file in files):
        headers += _HOPPER
    elif "::emulator::ptx::" in code:
        headers += '#include "emulator/ptx_hopper.h"\n'
    return Rewritten(f"{headers}{code}", kernels, tuple(files))


@lru_cache(maxsize=8)  # a source is rewritten to find its headers, then to make its module
def _kernels(code: str) -> tuple[str, ...]:
    """The names of a source's kernels. Raises SyntaxError for what cannot be on a GPU."""
    hidden = hide(code)
    refuse(code, hidden)
    return tuple(dict.fromkeys(KERNEL.findall(hidden)))


def read_source(path: Path) -> str:
    """The text of a source, in UTF-8 with or without a mark, else in Latin-1: nvcc takes both."""
    content = path.read_bytes()
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        return content.decode("latin-1").replace("\r\n", "\n")


def included(source: str, path: Path) -> dict[Path, str]:
    """The headers that a source includes, directly or not, and their texts; without the compiler's
    own."""
    texts, files = {path: source}, [path]
    for file in files:  # which grows
        for name in _names(texts[file]):
            header = _header(name, file)
            if header is not None and header not in texts:
                files.append(header)
                texts[header] = read_source(header)
    del texts[path]
    return texts


@lru_cache(maxsize=256)
def _names(source: str) -> tuple[str, ...]:
    """What a source names in its #include lines."""
    return tuple(found[1] for found in _INCLUDE.finditer(without_comments(source)))


def _header(name: str, path: Path) -> Path | None:
    """The header that a file includes by this name, if it is beside the file or in csrc/."""
    places = (Path(normpath(folder / name)) for folder in (path.parent, CSRC))
    return next((place for place in places if place.is_file()), None)


def _inline(source: str, path: Path, files: list[Path], macros: Macros, checked: bool) -> str:
    """One file, rewritten, with the headers it shares in place of their #include lines."""
    parts, end, text = [line_mark(1, path)], 0, without_comments(source)

    def rewritten(begin: int, end: int) -> str:
        macros.read(text[begin:end])
        line = _line_at(source, begin)
        return _rewrite_part(source[begin:end], path, line, macros.frozen(), checked)

    for found in _INCLUDE.finditer(text):
        header = _header(found[1], path)
        if header is None:
            continue  # ours, or the compiler's own
        parts.append(rewritten(end, found.start()))
        included = read_source(header)
        if header not in files or "#pragma once" not in included:
            files.append(header)
            parts.append("\n" + _inline(included, header, files, macros, checked))
        following = _line_at(source, found.end()) + 1
        parts.append("\n" + line_mark(following, path).rstrip("\n"))
        end = found.end()
    parts.append(rewritten(end, len(source)))
    return "".join(parts)


def _line_at(source: str, place: int) -> int:
    """The line of a place in a source, which may have `#line` directives of its own."""
    *_, mark = [None, *_LINE.finditer(source, 0, place)]
    line, begin = (int(mark[1]), mark.end() + 1) if mark else (1, 0)
    return line + source.count("\n", begin, place)


def line_mark(line: int, path: Path) -> str:
    """The directive after which the compiler counts from this line of this file."""
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'#line {line} "{escaped}"\n'


@lru_cache(maxsize=256)
def _rewrite_part(
    part: str, path: Path, first_line: int, known: FrozenMacros, checked: bool
) -> str:
    """What stands between two headers. It is kept: many sources include the same headers."""
    macros = Macros.thawed(known)
    part = macros.expand_assembly(part, hide(part))
    refuse_calls(part, path, first_line)
    part = _rename_variables(_replace_attributes(_replace_shared(part)))
    part = begin_kernels(_replace_assembly(part, macros))
    part = replace_launches(saturate(part, hide(part)), path, first_line)
    return report_bytes(declare_unset(part)) if checked else part


def _replace_assembly(source: str, macros: Macros) -> str:
    """Inline PTX as C++, on as many lines, which a macro continues with a backslash."""
    hidden, pieces, end = hide(source), [], 0
    for found in _ASSEMBLY.finditer(hidden):
        last = closing(hidden, found.end())
        lines = re.sub(r"[^\\\n]", "", hidden[found.start() : last])
        inside = without_comments(source[found.end() : last]).replace("\\\n", "\n")
        try:
            code = f"do {translate(macros.expand(inside))} while (0)"
        except Unknown as problem:  # an error only where it is compiled
            text = str(problem).replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
            name = f"emulator_unknown_{crc32(text.encode()):x}"
            attribute = f'__attribute__((error("inline PTX {text}")))'
            code = f"do {{ {attribute} void {name}(); {name}(); }} while (0)"
        pieces += [source[end : found.start()], code, lines]
        end = last + 1
    return "".join([*pieces, source[end:]])


# ------------------------------------------------------------------------- shared memory


def _replace_shared(source: str) -> str:
    return _substitute(_SHARED, _substitute(_EXTERN_SHARED, source, _dynamic), _static)


def _substitute(
    pattern: re.Pattern[str], source: str, new: Callable[[re.Match[str], bool], str]
) -> str:
    """Replace what is found outside comments and literals, told whether it is in a function."""
    hidden = hide(source)
    pieces, end, in_function = [], 0, functions(hidden)
    for found in pattern.finditer(hidden):
        pieces += [source[end : found.start()], new(found, in_function(found.start()))]
        end = found.end()
    return "".join([*pieces, source[end:]])


def _dynamic(found: re.Match[str], inside: bool) -> str:
    lines = "\n" * found[0].count("\n")
    kind = " ".join(_ALIGNMENT.sub("", found["type"]).replace("volatile", "").split())
    if inside:
        return f"{kind}* {found['name']} = ({kind}*)emulator_dynamic_shared();{lines}"
    return f"static const ::emulator::DynamicShared<{kind}> {found['name']} = {{}};{lines}"


def _static(found: re.Match[str], inside: bool) -> str:
    """Raw bytes on each core, and a reference to them that is found once.

    To find a thread-local variable in a shared object takes a call, which compilers repeat in
    every turn of a loop; and for types with constructors they would add a guard.
    """
    if not inside:
        return found[0]
    rest = found["rest"]
    alignment = " ".join(a.replace("alignas", "__align__") for a in _ALIGNMENT.findall(rest))
    before = found["volatile"] or ""
    return " ".join(
        f"__shared__ {alignment} ::emulator::Guarded<{before}{kind} {extent}> "
        f"{name}{SHARED_SUFFIX}; auto& {name} = {name}{SHARED_SUFFIX}.once();"
        for kind, name, extent in declared_variables(rest)
    )


def declared_variables(text: str) -> Iterator[tuple[str, str, str]]:
    """(type, name, bounds) of each variable of a declaration such as `float a[4][8], *b`."""
    kind = ""
    for part in split_commas(_ALIGNMENT.sub("", text).strip()):
        if found := re.fullmatch(r"(.*?)(\w+)\s*((?:\[.*)?)", part.strip(), re.DOTALL):
            before, name, bounds = found.groups()
            kind = kind.rstrip("* \n") + before if kind else before
            yield kind, name, bounds


def _replace_attributes(source: str) -> str:
    pattern = re.compile(r"\b__noinline__\b")
    source = _substitute(pattern, source, lambda *_: "__attribute__((noinline))")
    # A launch by name needs the kernel's type, which the customary cast would drop.
    return _substitute(_CAST, source, lambda found, _: found[1])


# ------------------------------------------------------------------------ host variables


def _rename_variables(source: str) -> str:
    """Give variables such as `dim3 blockDim(256)` another name: the built-in ones are macros."""
    hidden = hide(source)
    renamed = {found.start(): found[0] for found in _MEMBER.finditer(hidden)}
    for found in _PLACE.finditer(hidden):
        if found.start() not in renamed and _declares(hidden, found.start()):
            end = _end_of_scope(hidden, found.end())
            same = re.compile(rf"(?<![\w.]){found[0]}\b")
            uses = same.finditer(hidden, found.start(), end)
            renamed.update((use.start(), found[0]) for use in uses)
    pieces, end = [], 0
    for start, name in sorted(renamed.items()):
        pieces += [source[end:start], f"{name}_of_host"]
        end = start + len(name)
    return "".join([*pieces, source[end:]])


def _declares(hidden: str, position: int) -> bool:
    """Whether a type stands before a name, or a declaration of which it is a further variable."""
    if _DECLARED.search(hidden, max(0, position - 40), position):
        return True
    if not hidden[:position].rstrip().endswith(","):
        return False
    begin = max(hidden.rfind(mark, 0, position) for mark in ";{}") + 1
    before = hidden[begin:position]
    return bool(_DECLARATION.match(before)) and before.count("(") == before.count(")")


def _end_of_scope(hidden: str, position: int) -> int:
    """Where the block ends in which a variable is declared; a parameter's is the body."""
    end = closing(hidden, position)
    body = re.compile(r"\)[^;{]*").match(hidden, end)  # a function's, or of a loop one statement
    if body and hidden.startswith("{", body.end()):
        return closing(hidden, body.end() + 1)
    return body.end() if body else end
