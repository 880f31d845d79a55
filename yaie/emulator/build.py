"""From CUDA C++ to a shared object that runs on the CPU, kept in a cache.

Names of files carry a hash of all that goes into them, so that a changed kernel is a new file: the
dynamic linker would not load a known name again.
"""

import platform
import re
import threading
import warnings
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path

from yaie.build.cache import Built, build_once, cache_root, content_hash
from yaie.emulator.compiler import (
    INCLUDE,
    CompileError,
    compiler_version,
    finish,
    run_compiler,
    start,
    workers,
)

RUNTIME = Path(__file__).resolve().parent / "runtime"

_COMMON = ["-std=c++17", "-fPIC", "-pthread"]
_RUNTIME = ["-fno-exceptions", "-ftls-model=global-dynamic"]
# For the core, -Og compiles 0.6 s faster, but calls of kernels take 11 % longer; -O2 compiles 2 s
# slower, and calls take 5 % less.
_LEVEL = "-O1"
# Warnings each of which most often tells of a mistake. The compiler's others are silent.
WARNINGS = (
    *("uninitialized", "return-type", "parentheses", "tautological-compare", "type-limits"),
    *("unused-value", "div-by-zero", "shift-count-overflow", "shift-count-negative", "overflow"),
    *("sequence-point", "misleading-indentation", "int-in-bool-context", "empty-body"),
)
_KERNEL = [
    *(f"-W{name}" for name in WARNINGS),
    "-g1",
    "-gdwarf-4",  # in version 5 the assembler takes the first header's lines for the unit's own
    "-fno-optimize-sibling-calls",  # else a barrier at a function's end is its caller's line
    "-fno-strict-aliasing",  # kernels read float arrays as float4
    "-fwrapv",  # an int that overflows is negative, whatever else a compiler may conclude
    "-ffp-contract=off",
    "-fsanitize=return",  # a function that ends without `return` is told, see runtime/calls.cpp
    "-fstack-clash-protection",  # else a large local array reaches across the end of a stack
]
_PLAIN = ["-Og"]  # in half the time of -O1; most of a launch is the runtime's
_CHECKED = ["-O1", "-DEMULATOR_CHECKED", "-fsanitize=thread"]
_GNU_KERNEL = [
    "-fno-gnu-unique",  # else a recompiled template would reuse the old one's arrays
    *("-fno-crossjumping", "-fno-tree-tail-merge"),  # two branches keep two calls, two lines
    *(
        "-fno-ipa-icf",
        "-fno-schedule-insns2",
    ),  # equal functions are kept apart, and a call keeps its line
    "-fno-var-tracking",  # where variables are, of no use here, takes a third of the time
]
_GNU_CHECKED = [
    *("--param", "tsan-instrument-func-entry-exit=0", "--param", "tsan-distinguish-volatile=1"),
    "-fsanitize=float-cast-overflow,shift-exponent,bounds",  # reported to runtime/undefined.cpp
    "-fno-tree-sra",  # else a float4 is loaded in four parts
    # A struct that goes to a function by value, or comes back from one, straight from memory or to
    # it, is seen only where the function is inlined.
    *("-fno-semantic-interposition", "-finline-functions", "-finline-small-functions"),
    "-finline-limit=100000",
    # Passes after the one that marks the accesses: checked code is not faster with them, and takes
    # a third longer to compile.
    *("-fira-algorithm=priority", "-fira-region=one", "-fno-split-wide-types", "-fno-dce"),
    *("-fno-dse", "-fno-forward-propagate", "-fno-cprop-registers", "-fno-compare-elim"),
    *("-fno-shrink-wrap", "-fno-if-conversion", "-fno-if-conversion2", "-fno-reorder-blocks"),
    *("-fno-combine-stack-adjustments", "-fno-move-loop-invariants"),
]
_CLANG_KERNEL = [
    "-Wno-unknown-warning-option",
    "-fno-delete-null-pointer-checks",  # a load from address 0 is a fault to be told
    # Calls at the ends of two branches stay two: a barrier in each is at two places.
    *("-mllvm", "-simplifycfg-sink-common=false", "-mllvm", "-simplifycfg-hoist-common=false"),
    *("-mllvm", "-enable-tail-merge=false"),
]
_CLANG_CHECKED = [  # it loads a float4 in four parts, for which there is no switch
    *("-mllvm", "-tsan-instrument-func-entry-exit=0"),
    *("-mllvm", "-tsan-instrument-read-before-write"),  # of memory that was never written
    *("-mllvm", "-tsan-distinguish-volatile=1", "-mllvm", "-inline-threshold=100000"),
]


# Functions of the C library that store through pointers: what calls them calls the checker instead.
_STORING = (*("modff", "modf", "frexpf", "frexp", "sincosf", "sincos"), "remquof", "remquo")
_WRAP = [f"-Wl,--wrap={name}" for name in _STORING]
_EXIT = "-Wl,--wrap=exit"  # exit() would end Python: runtime/calls.cpp ends the launcher instead

# No library depends on another by name: each finds the symbols of those loaded before it. Kernels
# find libstdc++ in this way, too, since the runtime loads it: naming it makes linking a kernel take
# three times as long.
_LINK = ["-shared", "-pthread", "-Wl,-Bsymbolic"]
_OF_C = ["-nodefaultlibs", "-lm", "-lc", "-lgcc"]
PARTS = ("core", "checker")
# Of these every second one is in the same unit, so that both take as long to compile.
_SOURCES = {
    "core": (
        *("async", "core", "grid", "async_products", "products", "limits", "failure", "team"),
        *("async_barriers", "warp", "boxes", "calls", "engines", "copies", "stacks", "memory"),
        "tiles",
    ),
    "checker": (
        *("checker", "async_checks", "hooks", "happens", "races", "counters", "host_checks"),
        *("unset", "product_checks", "cluster_checks", "undefined", "shadow"),
    ),
}


# Appended to a source, which may end in a comment with a backslash: the compiler checks all of it,
# then drops what this launcher does not reach.
_ONLY = '\n\nextern "C" __attribute__((externally_visible)) decltype({0}) {0};\n'
# Put before a source: only these instances of kernels are compiled, see include/emulator/launch.h.
_INSTANCES = """template <> struct emulator::Instances<void> {{
    static constexpr bool has(const char* name) {{ return {0}; }}
}};
"""


def compile(source: str, path: str | Path, checked: bool) -> Path:
    """Build CUDA C++ for the CPU and return the shared object with its `extern "C"` launchers.

    Args:
        path: names the source in messages and tells where its headers are; it need not exist.
        checked: have every load and store reported.

    Raises:
        CompileError: with the compiler's messages.

    What the compiler warns of is a UserWarning, see `WARNINGS`.
    """
    return build(source, path, checked).path


def build(
    source: str,
    path: str | Path,
    checked: bool,
    launcher: str = "",
    instances: str = "",
    code: str = "",
) -> Built:
    """As `compile`, and tells what it took. `code` is the rewritten source, if there is one.

    With `launcher`, only this one is compiled, and of a template only the instances that it uses.
    Of kernels only those `instances` are compiled for whose `name` this condition in C++ is true,
    unless a library with all is there. Errors anywhere in the source are still found.
    What all kernels share is built at the same time, if it is not there yet.
    """
    path = Path(path)
    # Not above: the engine compiles its own C++ by this module, and starts sooner without these.
    from yaie.emulator.rewrite import rewrite
    from yaie.emulator.shared import shared_arrays, too_much

    code = code or rewrite(source, path, checked).code
    options = _options(checked)
    if launcher:
        code += _ONLY.format(launcher)
        options.append("-fwhole-program")

    def named(code: str) -> Path:
        key = content_hash(code, _headers(), compiler_version(), str(options))
        return _folder() / f"{path.stem or 'kernel'}-{'checked-' * checked}{key}.so"

    target = named(code)
    torch = bool(re.search(r"#include <(?:torch|ATen|c10)/", code))
    if instances and not target.exists():
        head, rest = code.split("\n", 1)
        code = f"{head}\n{_INSTANCES.format(instances)}{rest}"
        target = named(code)

    def compile_in(folder: Path) -> Path:
        search = [f"-I{INCLUDE}", f"-I{path.resolve().parent}", *_precompiled(checked, torch)]
        unit, built = folder / "unit.cpp", folder / "unit.so"
        unit.write_text(code)
        # Compiled and linked apart, so that the sanitizers' libraries stay out.
        said = run_compiler([*options, *search, "-c", str(unit), "-o", str(folder / "unit.o")])
        linked = [*_LINK, _EXIT, *(_WRAP if checked else ()), str(folder / "unit.o"), *_OF_C]
        run_compiler([*linked, "-o", str(built)])
        if "__shared__" in code and (
            problem := too_much(shared_arrays(built, checked), source, path)
        ):
            raise CompileError(problem)
        if found := _warnings_in(said, path):
            note.write_text(found)
        return built

    note = target.with_suffix(".warnings")
    with workers() as pool:
        shared = [pool.submit(build_runtime, part) for part in PARTS[: 1 + checked]]
        built = build_once(target, compile_in)
        for part in shared:
            part.result()
    if built.fresh and not _precompiled(checked, torch):  # for the next one, while this one runs
        threading.Thread(target=precompile, args=(checked, torch)).start()
    if note.exists():
        for row in note.read_text().splitlines():
            line, _, text = row.partition(" ")
            warnings.warn_explicit(text, UserWarning, str(path), int(line))
    return built


@cache
def build_runtime(part: str) -> Path:
    """Build what all kernels share, once for each version of it.

    The "checker" calls the "core", which has to be loaded before it.
    """
    sources = [RUNTIME / f"{name}.cpp" for name in _SOURCES[part]]
    headers = sorted(RUNTIME.glob("*.h"))
    options = [*_COMMON, *_RUNTIME, _LEVEL]
    texts = [file.read_text() for file in (*sources, *headers)]
    key = content_hash(*texts, _headers(), compiler_version(), str(options))
    name = f"libemulator-{part}-{key}.so"

    def compile_in(folder: Path) -> Path:
        # Two units, each of several files: the standard library's headers are read only twice.
        objects, jobs = [], []
        for number, unit in enumerate([sources[::2], sources[1::2]]):
            source = folder / f"unit{number}.cpp"
            source.write_text("".join(f'#include "{path}"\n' for path in unit))
            objects.append(source.with_suffix(".o"))
            jobs.append(start([*options, "-c", str(source), "-o", str(objects[-1])]))
        for job in jobs:
            finish(job)
        run_compiler([*_LINK, *map(str, objects), "-o", str(folder / name), "-lrt"])
        return folder / name

    return build_once(_folder() / name, compile_in).path


def build_shared() -> None:
    """Build what all kernels share, before the first kernel is built."""
    with workers() as pool:
        for built in [pool.submit(build_runtime, part) for part in PARTS]:
            built.result()
        pool.map(precompile, (True, False))


def precompile(checked: bool, torch: bool = False) -> None:
    """Compile what every kernel includes, so that it is parsed once and not for each kernel.

    Args:
        torch: also what replaces torch's headers, which takes most of a binding's compile time.

    Nothing needs it: no error is raised.
    """
    header = _prelude(checked, torch)

    def compile_in(folder: Path) -> Path:
        included = ["cuda_runtime.h", *["emulator/torch.h"] * torch]
        header.write_text("".join(f'#include "{INCLUDE / name}"\n' for name in included))
        options = [*_options(checked), f"-I{INCLUDE}"]
        run_compiler([*options, "-x", "c++-header", str(header), "-o", str(folder / "prelude.gch")])
        return folder / "prelude.gch"

    with suppress(OSError, RuntimeError):
        build_once(header.with_name(f"{header.name}.gch"), compile_in)


def _precompiled(checked: bool, torch: bool) -> list[str]:
    """Options that take the precompiled header, if there is one yet."""
    header = _prelude(checked, torch)
    return ["-include", str(header)] if header.with_name(f"{header.name}.gch").exists() else []


@cache
def _prelude(checked: bool, torch: bool) -> Path:
    key = content_hash(str(INCLUDE), _headers(), compiler_version(), str(_options(checked)))
    return _folder() / f"prelude-{'torch-' * torch}{key}.h"


def _options(checked: bool) -> list[str]:
    clang = "clang" in compiler_version()
    kernel = [*_COMMON, *_KERNEL, *(_CLANG_KERNEL if clang else _GNU_KERNEL)]
    if platform.machine() not in ("x86_64", "AMD64"):  # no signal reports a division by 0
        kernel.append("-fsanitize=integer-divide-by-zero")  # reported to runtime/calls.cpp
    if not checked:
        return [*kernel, *_PLAIN]
    return [*kernel, *_CHECKED, *(_CLANG_CHECKED if clang else _GNU_CHECKED)]


def _folder() -> Path:
    return cache_root() / "emulator"


@lru_cache(maxsize=1)
def _headers() -> str:
    return "\0".join(p.read_text() for p in sorted(INCLUDE.rglob("*")) if p.is_file())


_WARNING = re.compile(r"^(.+):(\d+):\d+: warning: (.+) \[-W([\w-]+)=?\]$", re.MULTILINE)


def _warnings_in(said: str, path: Path) -> str:
    """Those of the source itself, with their lines; what all instances of a template have, once."""
    found = [
        f"{line} {text}"
        for file, line, text, name in _WARNING.findall(said)
        if file == str(path) and name in WARNINGS
    ]
    return "\n".join(dict.fromkeys(found))
