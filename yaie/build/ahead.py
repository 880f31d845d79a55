"""Kernels built ahead of time: every file of csrc/, compiled for the GPU and kept in build/.

`make build-kernels` calls `build_all`; `yaie.jit` asks `find` before it compiles anything. What is
built carries the hash of its source, headers and options in its name, so that a file that was
edited since is not used.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from yaie.build import nvcc
from yaie.build.cache import content_hash
from yaie.emulator.build import CompileError
from yaie.emulator.rewrite import CSRC, read_source

BUILD = CSRC.parent / "build" / "kernels"
ARCHITECTURES = ("7.5", "8.0", "9.0+PTX")  # machine code for all cards since Turing, or PTX


def target(source: str, path: Path) -> Path | None:
    """Where a file of csrc/ is kept when it is built; None for any other file."""
    if not path.is_relative_to(CSRC):
        return None
    key = content_hash(*nvcc.read_all(source, path), *nvcc.OPTIONS)
    return BUILD / path.relative_to(CSRC).with_name(f"{path.stem}-{key}.so")


def find(source: str, path: Path, capability: tuple[int, int]) -> Path | None:
    """The shared object of a source for a card, if it was built ahead of time; else None."""
    built = target(source, path)
    architectures = None if built is None else _built_for(built)
    return built if architectures and nvcc.runs_on(architectures, capability) else None


def _built_for(built: Path) -> list[str] | None:
    """The architectures of a shared object, from the note beside it; None if one is not there."""
    try:
        note = built.with_suffix(".json").read_text()
    except FileNotFoundError:  # never built, or just being replaced
        return None
    return json.loads(note)["architectures"] if built.exists() else None


def build_all(
    architectures: Sequence[str] = ARCHITECTURES, say: Callable[[str], None] = print
) -> int:
    """Compile every file of csrc/ that is not built yet for these architectures.

    Returns:
        How many files could not be compiled; `say` was told why.

    Raises:
        CompileError: there is no nvcc.
    """
    nvcc.nvcc()
    paths = sorted(CSRC.rglob("*.cu"))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return sum(pool.map(lambda path: not _build(path, architectures, say), paths))


def _build(path: Path, architectures: Sequence[str], say: Callable[[str], None]) -> bool:
    source = read_source(path)
    built, name = target(source, path), path.relative_to(CSRC).as_posix()
    wanted = list(nvcc.able(architectures, source))
    if not wanted:
        say(f"{name}: needs {nvcc.sm(nvcc.needs(source))}, which is not among the architectures")
        return True
    note = built.with_suffix(".json")
    if _built_for(built) == wanted:
        say(f"{name}: up to date")
        return True
    built.parent.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    part = built.with_name(f"{built.stem}.{os.getpid()}.part.so")
    try:
        nvcc.build(source, path, wanted, part)
    except CompileError as error:
        say(f"{name}: not compiled\n{error}")
        return False
    # A file without its note is not used, so no file is ever read with the note of another.
    note.unlink(missing_ok=True)
    os.replace(part, built)
    about = part.with_suffix(".json")
    about.write_text(json.dumps({"architectures": wanted, "nvcc": nvcc.version(nvcc.nvcc())}))
    os.replace(about, note)
    for old in (*built.parent.glob(f"{path.stem}-*.so"), *built.parent.glob(f"{path.stem}-*.json")):
        if _is_of(old, path) and old not in (built, note):
            old.unlink(missing_ok=True)
    seconds = time.perf_counter() - started
    say(f"compiled {name} for {', '.join(map(nvcc.sm, wanted))} in {seconds:.1f} s")
    return True


def _is_of(built: Path, path: Path) -> bool:
    """Whether a built file, of whatever content, is this source's: its name without the hash."""
    return built.stem.rpartition("-")[0] == path.stem and ".part" not in built.stem
