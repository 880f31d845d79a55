"""Kernels built ahead of time: every file of csrc/, compiled for the GPU and kept in build/.

`csrc/setup.py` builds them (`make build-kernels`); `yaie.jit` asks `find` before it compiles
anything. What is built carries the hash of its source, headers and options in its name, so that a
file that was edited since is not used.
"""

import json
from pathlib import Path

from yaie.build import nvcc
from yaie.build.cache import content_hash
from yaie.emulator.rewrite import CSRC

BUILD = CSRC.parent / "build" / "kernels"


def target(source: str, path: Path) -> Path | None:
    """Where a file of csrc/ is kept when it is built; None for any other file."""
    if not path.is_relative_to(CSRC):
        return None
    key = content_hash(*nvcc.read_all(source, path), *nvcc.OPTIONS)
    return BUILD / path.relative_to(CSRC).with_name(f"{path.stem}-{key}.so")


def find(source: str, path: Path, capability: tuple[int, int]) -> Path | None:
    """The shared object of a source for a card, if it was built ahead of time; else None."""
    built = target(source, path)
    architectures = None if built is None else built_for(built)
    return built if architectures and nvcc.runs_on(architectures, capability) else None


def built_for(built: Path) -> list[str] | None:
    """The architectures of a shared object, from the note beside it; None if one is not there."""
    try:
        note = built.with_suffix(".json").read_text()
    except FileNotFoundError:  # never built, or just being replaced
        return None
    return json.loads(note)["architectures"] if built.exists() else None
