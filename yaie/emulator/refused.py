"""What nvcc refuses, or a GPU cannot do, but an ordinary C++ compiler takes without a word."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from yaie.emulator.text import functions as in_functions
from yaie.emulator.text import without_directives

_MARK = re.compile(r'^#line (\d+) "((?:[^"\\\n]|\\.)*)"\n?', re.MULTILINE)
_MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+.*__(?:device|global)__", re.MULTILINE)
_NAME = re.compile(r"\b(?!__\w+__\b|alignas\b|decltype\b|noexcept\b)([A-Za-z_]\w*)\s*\(")
_ARRAY = r"\s*(?:\[[^\]]*\][ \t]*)*"
_SHARED = re.compile(
    rf"__shared__[ \t]+(?!struct\b|union\b|class\b)(?:[\w:<>, \t*]|\[[^\]\n]*\])*?\b(\w+){_ARRAY}"
    r"(?:=(?!=)|\{)"
)
_CONSTANT = re.compile(rf"\b__constant__\s[^;={{}}()]*?\b(\w+){_ARRAY}[;=]")
_TOGETHER = re.compile(r"__cluster_dims__|cudaLaunchKernelEx|cudaLaunchCooperativeKernel")
_HOST = re.compile(
    r"\bstd::(vector|string|to_string|(?:unordered_)?(?:map|set)|list|deque|queue|stack|function|"
    r"thread|mutex|(?:unique|shared)_ptr|sort|cout|cerr)\b(?!\s*::)"
)

# Of the C library, what programs most often call in a kernel by mistake.
_LIBRARY = {"rand", "srand", "qsort", "getenv", "exit", "fopen", "fclose", "fprintf", "sleep"}


@dataclass(frozen=True)
class _Function:
    name: str
    header: str
    begin: int  # of the header
    body: int
    end: int
    on_device: bool


def refuse(code: str, hidden: str) -> None:
    """Raise SyntaxError, with path and line, for what cannot be on a GPU.

    Args:
        code: the source with its headers and the `#line` marks that tell where each part is from.
        hidden: the same without comments and literals.
    """
    plain = without_directives(hidden)
    macros = _MACRO.findall(hidden)
    if found := _SHARED.search(plain):
        problem = f"the __shared__ variable {found[1]} cannot be initialized where it is declared"
        remedy = "let a thread store its value, then call __syncthreads()"
        _fail(code, found.start(), problem, remedy)
    if _TOGETHER.search(plain):
        in_function = in_functions(plain)
        for found in re.finditer(r"__shared__", plain):
            if not in_function(found.start()):
                problem = (
                    "a __shared__ variable outside a function is one for all thread blocks here"
                )
                remedy = "in a cluster or a cooperative launch declare it in the kernel"
                _fail(code, found.start(), problem, remedy)
    functions = list(_functions(plain, macros))
    on_host = {f.name for f in functions if not f.on_device and "constexpr" not in f.header}
    on_host |= _LIBRARY
    on_host -= {f.name for f in functions if f.on_device}
    constants = _CONSTANT.findall(plain)
    for function in functions:
        if "__global__" in function.header:
            _check_signature(code, function)
        if function.on_device:
            _check_body(code, plain, function, on_host, constants)


def _check_signature(code: str, kernel: _Function) -> None:
    start, name = kernel.begin + kernel.header.index("__global__"), kernel.name
    result, parameters = re.split(rf"\b{name}\s*\(", kernel.header, maxsplit=1)
    if not re.search(r"\b(?:void|auto|[A-Z][A-Z_0-9]{2,})\b", result):
        _fail(code, start, f"the kernel {name} must return void", "a launch gives no value back")
    if re.search(r"&\s*\w+\s*[,)]", parameters) and "__grid_constant__" not in parameters:
        problem = f"the kernel {name} takes a reference, which would be an address on the host"
        _fail(code, start, problem, "pass a value or a pointer to device memory")


def _check_body(
    code: str, plain: str, function: _Function, on_host: set[str], constants: list[str]
) -> None:
    kind = "kernel" if "__global__" in function.header else "device function"
    who, body = f"the {kind} {function.name}", (function.body, function.end)
    for found in re.compile(r"(?<![\w.:>])(\w+)\s*(?:<[\w\s,]*>\s*)?\(").finditer(plain, *body):
        name = found[1]
        if name in on_host and not _declared(name, plain[function.begin : found.start()]):
            problem = f"{name} is a function of the host, which {who} cannot call"
            remedy = "there is none on a GPU" if name in _LIBRARY else "declare it __device__"
            _fail(code, found.start(), problem, remedy)
    if found := _HOST.search(plain, *body):
        problem = f"std::{found[1]} is the host's, and {who} cannot use it"
        _fail(code, found.start(), problem, "use arrays and pointers")
    launch = plain.find("::emulator::configure(", *body)
    if launch >= 0 and "__host__" not in function.header:
        _fail(
            code,
            launch,
            f"{who} launches a kernel",
            "only the host does, unless nvcc has -rdc=true",
        )
    for name in constants:
        store = rf"(?<![\w.>]){name}{_ARRAY}(?:\.\w+\s*)*(?:[-+*/%&|^]?=(?!=)|<<=|>>=|\+\+|--)"
        found = re.compile(store).search(plain, *body)
        if found and not _declared(name, plain[function.begin : found.end()]):
            problem = f"{who} writes {name}, which is __constant__"
            _fail(code, found.start(), problem, "only the host does, with cudaMemcpyToSymbol")


def _declared(name: str, text: str) -> bool:
    """Whether a text declares a variable of its own with this name."""
    before = r"[\w>*&](?<!\breturn)(?<!\belse)"
    return re.search(rf"{before}\s+[&*]?{name}\b", text) is not None


def _fail(code: str, position: int, problem: str, remedy: str) -> None:
    *_, mark = _MARK.finditer(code, 0, position + 1)
    line = int(mark[1]) + code.count("\n", mark.end(), position)
    path = re.sub(r"\\(.)", r"\1", mark[2])
    raise SyntaxError(f"{path}:{line}: {problem}: {remedy}")


def _functions(plain: str, macros: list[str]) -> Iterator[_Function]:
    """The functions that stand in no class, with their bodies."""
    device = re.compile("|".join([r"__device__|__global__", *(rf"\b{name}\b" for name in macros)]))
    begin, depth, position = 0, 0, 0
    brackets = re.compile(r"[{};()]")
    while found := brackets.search(plain, position):
        position = found.end()
        if found[0] in "()":
            depth += 1 if found[0] == "(" else -1
            continue
        header = plain[begin : found.start()]
        if found[0] != "{" or depth > 0 or re.search(r"\b(namespace[\s\w:]*|extern\s*)$", header):
            begin = begin if depth > 0 else position
            continue
        end = _after(plain, found.start())
        bare = re.sub(r"template\s*<(?:[^<>]|<[^<>]*>)*>", lambda t: " " * len(t[0]), header)
        name = _NAME.search(bare)
        if name and "=" not in bare[: name.start()]:
            on_device = bool(device.search(bare))
            unknown = re.search(r"\b[A-Z][A-Z_0-9]{3,}\b", bare[: name.start()])
            if on_device or not unknown:  # a macro may say __device__
                yield _Function(name[1], header, begin, found.start(), end, on_device)
        begin = position = end


def _after(plain: str, position: int) -> int:
    depth = 0
    for found in re.compile(r"[{}]").finditer(plain, position):
        depth += 1 if found[0] == "{" else -1
        if depth == 0:
            return found.end()
    return len(plain)
