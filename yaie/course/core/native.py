"""What exercises in C++ for the CPU are built and observed with: the code runs as it is.

def observe(path, case, see):
    out = poisoned(case.rows)
    traffic = run(see, path, "row_product", weights, x, out, case.rows, case.size, 2)
    see.equal("out", out, weights @ x, unwritten(out))
    see.at_most("bytes loaded of weights", traffic["weights"].loaded, weights.nbytes)

For a check it is built with a call before each load and store (`watch.cpp`): an access outside of
the arguments is a fault with its line, and the bytes are counted; LANES is 4, so that every machine
finds the same. For use it is built as the back end `cpp` is, for this very processor.
"""

from __future__ import annotations

import ctypes
import pkgutil
import re
import signal
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from yaie.build import cpu
from yaie.build.cache import build_once
from yaie.course.core import cuda_text
from yaie.course.core.observe import Found
from yaie.emulator import CompileError
from yaie.emulator.compiler import compiler_version, run_compiler
from yaie.emulator.lines import Lines
from yaie.emulator.rewrite import CSRC, read_source
from yaie.emulator.signature import Launcher, check_arguments, find_launchers

if TYPE_CHECKING:
    from yaie.course.core.manifest import Exercise
    from yaie.course.core.observe import Observer

SECONDS = 3.0  # that one call may take: those of a check take milliseconds
GAP = 1 << 20  # unused bytes around every argument
WATCH = Path(__file__).with_name("watch.cpp")
_ABANDONED: list[Any] = []  # memory of calls that never ended: their threads may still use it

_CHECKED = ["-O1", "-g1", "-gdwarf-4", "-fsanitize=kernel-address", "-Wl,-Bsymbolic"]
_PATTERN = "-ftrivial-auto-var-init=pattern"  # a variable that nothing initialized holds -1.7e38
_ZERO = "-ftrivial-auto-var-init=zero"
_fill = _PATTERN
_WARN = ["-Wuninitialized", "-Wmaybe-uninitialized"]  # the second is g++'s alone
_GNU = ["asan-instrumentation-with-call-threshold=0", "asan-stack=0", "asan-globals=0"]
_CLANG = [f"-{option}" for option in _GNU]


def build(source: str, path: Path, checked: bool) -> Path:
    """The shared object of a source, which messages call `path`; kept for this processor.

    Raises CompileError with the compiler's messages, or if there is no compiler. If it is checked,
    a UserWarning names each variable that may be used before it is set.
    """
    options = [o for o in cpu.OPTIONS if not (checked and o.startswith(("-O", "-m")))]
    if checked:
        is_gnu = "clang" not in compiler_version()
        flag, values = ("--param", _GNU) if is_gnu else ("-mllvm", _CLANG)
        options += [*_CHECKED, *(word for value in values for word in (flag, value))]
        options += [_fill] if _accepts(_fill) else []
        options += _WARN[: 1 + is_gnu]
    watch = WATCH.read_text(encoding="utf-8") if checked else ""
    target = cpu.target(
        f"{path.stem}{'-checked' * checked}", source, str(path), watch, str(options)
    )

    # Built before the target's lock is taken: both may have the same lock.
    more = [str(_watch(watch))] if checked and not target.exists() else []

    def compile_in(folder: Path) -> Path:
        unit, built = folder / "unit.cpp", folder / "unit.so"
        unit.write_text(f'#line 1 "{path}"\n{source}', encoding="utf-8")
        said = run_compiler([*options, f"-I{CSRC}", str(unit), *more, "-o", str(built)])
        if checked and _unset(said, source, path):
            note.write_text(said, encoding="utf-8")
        return built

    note = target.with_suffix(".warnings")
    built = build_once(target, compile_in).path
    if checked and note.exists():
        for line, text in _unset(note.read_text(encoding="utf-8"), source, path):
            warnings.warn_explicit(text, UserWarning, str(path), line)
    return built


@contextmanager
def zeroed() -> Iterator[None]:
    """Variables that nothing initializes hold 0 in what is built and run in the block."""
    global _fill
    _fill = _ZERO
    try:
        yield
    finally:
        _fill = _PATTERN


def tells_unset() -> bool:
    """Whether the compiler takes the options by which `zeroed` changes anything."""
    return _accepts(_PATTERN) and _accepts(_ZERO)


# Where g++ and clang say that the variable of a warning is declared.
_DECLARED = re.compile(
    r"^(.+):(\d+):\d+: note: (?:'(\w+)[^'\n]*' was declared here|initialize the variable '(\w+)')",
    re.MULTILINE,
)
_NUMBER = re.compile(r"float|double|bool|char|short|int|u?int\d+_t|size_t")
# A type, other variables, the one and its sizes: only of such a line is it known what to write.
_DECLARATION = (
    r"\s*(?!(?:const|for|long|unsigned|signed|short|static)\b)([\w:]+) [^*&();]*?\b({}{})"
)
_SIZES = r"(?:\[[^\]]*\])*"


def _unset(said: str, source: str, path: Path) -> list[tuple[int, str]]:
    """What to tell of variables that may be used before they are set, each with the line that
    declares it; `said` is what the compiler says."""
    found, lines = [], source.splitlines()
    for file, number, gnu, clang in _DECLARED.findall(said):
        if file != str(path):
            continue
        name, line = gnu or clang, lines[int(number) - 1]
        written = "Give it a value where it is declared."
        if declared := re.match(_DECLARATION.format(name, _SIZES), line):
            start = "0" if _NUMBER.fullmatch(declared[1]) and "[" not in declared[2] else "{}"
            written = f"Write `{declared[1]} {declared[2]} = {start};`."
        told = (
            f"`{name}` may be used before it is set: C++ does not set a local variable to 0, so "
            f"its first value is arbitrary. {written}"
        )
        found.append((int(number), told))
    return list(dict.fromkeys(found))


def _watch(text: str) -> Path:
    """What is called before each load and store, compiled once."""
    options = ["-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden", "-c"]

    def compile_in(folder: Path) -> Path:
        run_compiler([*options, str(WATCH), "-o", str(folder / "watch.o")])
        return folder / "watch.o"

    return build_once(cpu.target("watch", text, *options).with_suffix(".o"), compile_in).path


@lru_cache
def _accepts(option: str) -> bool:
    """Whether the compiler knows an option, which older ones do not."""
    try:
        run_compiler([option, "-fsyntax-only", "-x", "c++", "/dev/null"])
    except CompileError:
        return False
    return True


class Functions:
    """The `extern "C" void` functions of a source: `functions.name(tensor, ..., number)`."""

    def __init__(self, source: str, path: Path, checked: bool = False) -> None:
        self.source, self.path = source, path
        self.launchers = find_launchers(source, "void")
        self.built = build(source, path, checked)
        self.library = ctypes.CDLL(str(self.built))

    def __getattr__(self, name: str) -> Callable[..., None]:
        launcher = self.__dict__.get("launchers", {}).get(name)
        if launcher is None:
            raise AttributeError(f"{self.__dict__.get('path')} has no function {name}")
        function = launcher.bind(self.library)

        def call(*arguments: Any) -> None:
            check_arguments(launcher, arguments)
            function(*launcher.values(arguments))

        return call


def load(path_or_source: Path | str, name: str = "source.cpp") -> Functions:
    """The functions of a file as it is now, or of a source of more than one line, which messages
    call `name`; compiled to be fast.

    Raises CompileError with the compiler's messages, or if there is no compiler.
    """
    if isinstance(path_or_source, str) and "\n" in path_or_source:
        return _loaded(path_or_source, Path(name), False, "")
    path = Path(path_or_source)
    return _loaded(read_source(path), path, False, "")


@lru_cache(maxsize=64)
def _loaded(source: str, path: Path, checked: bool, fill: str) -> Functions:
    return Functions(source, path, checked)


def operator_by(function: str) -> Callable[[Path], Callable[..., Any]]:
    """A function that makes a model's operator of a learner's file, for `Exercise.fit`.

    Args:
        function: takes `Functions` and the operator's arguments, as module:name.
    """

    return lambda file: partial(pkgutil.resolve_name(function), load(file))


def compile_errors(text: str, path: Path, exercise: Exercise) -> str | None:
    """What the compiler says against a learner's file; None if it accepts it."""
    try:
        build(text, path, checked=True)  # as the check will want it
    except CompileError as error:
        return cuda_text.first_error(str(error).replace(str(path), exercise.shown))
    return None


def changed_launcher(text: str, reference: str) -> str | None:
    """Which of the reference's functions a file lacks, or has with other parameters."""
    return cuda_text.changed_launcher(text, reference, "void")


# ------------------------------------------------------------------------------------- watching


class _Argument(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in
                ("begin", "end", "loads", "loaded", "stores", "stored")]  # fmt: skip


class _Watch(ctypes.Structure):
    """`struct Watch` of watch.cpp."""

    _fields_ = [
        *((name, ctypes.c_uint64) for name in ("begin", "end", "count")),
        ("arguments", _Argument * 16),
        *((name, ctypes.c_uint64) for name in ("kind", "site", "address", "size")),
    ]


@dataclass(frozen=True)
class Traffic:
    """What a call asked of one argument: how many loads and stores, and their bytes."""

    loads: int
    loaded: int
    stores: int
    stored: int


SIGNALS = {
    signal.SIGSEGV: ("segmentation_fault", "a segmentation fault"),
    signal.SIGBUS: ("segmentation_fault", "a bus error"),
    signal.SIGFPE: ("division", "a division of integers by zero"),
    signal.SIGILL: ("missing_return", "a function that ended without `return`"),
}
EXPLAIN: Mapping[str, str] = {
    "out_of_bounds": "C++ checks no bound: which numbers does the loop take, and how many exist?",
    "segmentation_fault": "An index is far off; or a vector was read through a cast pointer, which "
    "needs an address that is a multiple of its size: `load` and `store` take any.",
    "division": "Which of the numbers may be 0?",
    "missing_return": "Every way through a function needs a `return`.",
    "time_limit": "Is there a loop whose condition never changes?",
}


def run(
    see: Observer, path: Path, name: str, *arguments: Any, explain: Mapping[str, str] | None = None
) -> dict[str, Traffic]:
    """Call the function `name` of a `.cpp` file, and note a fault, which ends the case.

    Tensors move to memory with nothing around them, and back afterwards. The call has a thread of
    its own, so that one that crashes or never ends can be left.

    Args:
        explain: what to tell for a kind of finding, where no known mistake explains it; `EXPLAIN`
            has the rest.

    Returns:
        What was asked of each tensor, by the name of its parameter.
    """
    functions = _loaded(read_source(path), path, True, _fill)
    launcher = functions.launchers[name]
    check_arguments(launcher, arguments)
    functions.library.watch_calls.restype = ctypes.POINTER(_Watch)
    watch = functions.library.watch_calls().contents
    done, thread = threading.Event(), None
    try:
        ctypes.memset(ctypes.byref(watch), 0, ctypes.sizeof(watch))
        tensors = {p.name: a for p, a in zip(launcher.wanted, arguments, strict=True) if p.pointer}
        arena = _arena(watch, tensors)
        function, values = launcher.bind(functions.library), launcher.values(arguments)
        places = iter(watch.arguments)
        values = [next(places).begin if p.pointer else v
                  for p, v in zip(launcher.wanted, values, strict=True)]  # fmt: skip

        def work() -> None:
            try:
                function(*values)
            finally:
                done.set()

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        for _ in range(int(SECONDS / 0.02)):
            if done.wait(0.02) or watch.kind >= 100:
                break
        if not done.is_set():
            done.wait(0.1)  # in which others of its team that crash as well do so
            if watch.kind < 100:
                problem = f"{name} did not end within {SECONDS:g} s"
                _found(see, functions, "time_limit", 0, problem, explain)
        if watch.kind:
            _tell(see, functions, launcher, watch, explain)
        for place, tensor in zip(watch.arguments, tensors.values(), strict=False):
            ctypes.memmove(tensor.data_ptr(), place.begin, tensor.nbytes)
    finally:
        # Not `is_alive`: to Python 3.11 a thread has ended whose `join` an alarm has interrupted.
        is_left = thread is not None and not done.is_set()
        if is_left:
            _ABANDONED.append(arena)
            if thread.ident:  # it sleeps from now on, or at its next access, as others of its team
                signal.pthread_kill(thread.ident, signal.SIGRTMIN + 7)
        functions.library.watch_no_more(is_left)
    return {name: Traffic(*(getattr(place, f) for f in Traffic.__dataclass_fields__))
            for place, name in zip(watch.arguments, tensors, strict=False)}  # fmt: skip


def _arena(watch: _Watch, tensors: Mapping[str, Any]) -> Any:
    """Memory that holds copies of tensors, far apart, and NaN around them."""
    import torch

    size = sum(tensor.nbytes + GAP + 64 for tensor in tensors.values()) + GAP
    memory = torch.full((size,), 0xFF, dtype=torch.uint8)
    watch.begin = cursor = memory.data_ptr()
    watch.end, watch.count = cursor + size, len(tensors)
    for place, tensor in zip(watch.arguments, tensors.values(), strict=False):
        place.begin = (cursor + GAP) // 64 * 64 + tensor.element_size()  # of no vector's alignment
        place.end = cursor = place.begin + tensor.nbytes
        ctypes.memmove(place.begin, tensor.data_ptr(), tensor.nbytes)
    return memory


def _tell(
    see: Observer,
    functions: Functions,
    launcher: Launcher,
    watch: _Watch,
    explain: Mapping[str, str] | None,
) -> None:
    if watch.kind >= 100:
        kind, problem = SIGNALS[signal.Signals(watch.kind - 100)]
        _found(see, functions, kind, watch.site, problem, explain)
    access = "a load" if watch.kind == 1 else "a store"
    names = [p.name for p in launcher.wanted if p.pointer]
    distances = []
    for name, place in zip(names, watch.arguments, strict=False):
        past, before = watch.address + watch.size - place.end, place.begin - watch.address
        distances.append((past, "ends", f"past the end of {name}") if past > before
                         else (before, "begins", f"before the start of {name}"))  # fmt: skip
    distance, verb, where = min(distances)
    problem = f"{access} of {watch.size} bytes {verb} {distance} bytes {where}"
    _found(see, functions, "out_of_bounds", watch.site, problem, explain)


def _found(
    see: Observer,
    functions: Functions,
    kind: str,
    site: int,
    problem: str,
    explain: Mapping[str, str] | None,
) -> None:
    line = Lines(functions.built, {site}).place(site)
    lines = functions.source.splitlines()
    own = not line.header and 0 < line.line <= len(lines)
    text = lines[line.line - 1].strip() if own else ""
    problem = f"line {line.line}: {problem}" if own else problem
    because = {**EXPLAIN, **(explain or {})}[kind]
    see.found(Found(kind, text, problem), problem, because)
