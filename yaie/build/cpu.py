"""The C++ of `csrc/cpu/` as a library of ctypes: compiled for this very processor, and kept."""

import ctypes
import platform
from functools import cache
from pathlib import Path

from yaie.build.cache import CSRC, build_once, cache_root, content_hash
from yaie.emulator import CompileError
from yaie.emulator.compiler import compiler_version, run_compiler

FOLDER = CSRC / "cpu"
OPTIONS = ["-std=c++17", "-O3", "-march=native", "-fopenmp", "-fPIC", "-shared", "-Wno-psabi"]
if platform.machine() in ("x86_64", "AMD64"):
    OPTIONS.append("-mprefer-vector-width=512")  # where there are such registers: see lanes.h


@cache
def library() -> ctypes.CDLL:
    """The library, compiled unless that was done for these sources, compiler and processor.

    Its threads are torch's own: both use the OpenMP that torch brings, which is loaded by then.
    Raises CompileError with the compiler's messages, or if there is none.
    """

    def compile_in(folder: Path) -> Path:
        built = folder / "step.so"
        run_compiler([*OPTIONS, str(FOLDER / "step.cpp"), "-o", str(built)])
        return built

    return ctypes.CDLL(str(build_once(target(), compile_in).path))


def how() -> str:
    """ "compiled", "compiled at first use" or "no C++ compiler". Compiles nothing."""
    try:
        return "compiled" if target().exists() else "compiled at first use"
    except CompileError:
        return "no C++ compiler"


def target(name: str = "step", *more: str) -> Path:
    """Where a library of `csrc/cpu/` and more text is kept, for this compiler and processor."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(FOLDER.iterdir())]
    path, names = Path("/proc/cpuinfo"), ("model name", "flags", "Features", "CPU part")
    lines = path.read_text().splitlines() if path.exists() else []
    processor = sorted({line for line in lines if line.startswith(names)}) or platform.processor()
    key = content_hash(*texts, *more, compiler_version(), " ".join(OPTIONS), str(processor))
    return cache_root() / "cpu" / f"{name}-{key}.so"
