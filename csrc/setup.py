"""Compile every kernel in this folder ahead of time, for one or several GPU architectures.

    python csrc/setup.py                        for all GPU architectures since Turing
    python csrc/setup.py --arch native          for the GPUs in this machine
    python csrc/setup.py --arch "8.0;9.0a"      for these; with +PTX newer GPUs can compile it too
    python csrc/setup.py build_ext --inplace --arch 75
                                                the same, as extensions of torch spell it

The compiled kernels go to build/kernels/. `yaie` loads them while their sources are unchanged;
otherwise it compiles a kernel at its first use. Needs nvcc, but no GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from yaie.build import ahead, nvcc
from yaie.build.jit import CompileError
from yaie.emulator.rewrite import read_source

ARCHITECTURES = ("7.5", "8.0", "9.0+PTX")  # machine code for all cards since Turing, or PTX


def main() -> int:
    """Compile all kernels; the exit status is 1 if any file failed."""
    parser = argparse.ArgumentParser(description="Compile the kernels of csrc/ with nvcc.")
    words = "what setuptools calls this, accepted and not needed"
    parser.add_argument("command", nargs="?", choices=["build_ext"], help=words)
    parser.add_argument("--inplace", action="store_true", help=words)
    parser.add_argument(
        "--arch",
        default=";".join(ARCHITECTURES),
        help='such as "8.0;9.0a+PTX", or 80, sm_80, or "native" (default: %(default)s)',
    )
    # 75, sm_75 and 7.5 are one architecture.
    arch = re.sub(r"\b(?:sm_)?(\d+)(\d)(a?)(?=[;,\s+]|$)", r"\1.\2\3", parser.parse_args().arch)
    try:
        architectures = native() if arch == "native" else parse_architectures(arch)
        print(f"compiling for {', '.join(architectures)}: a few seconds per file and architecture")
        failed = build_all(architectures)
    except (CompileError, ValueError) as error:
        print(f"build-kernels: {error}", file=sys.stderr)
        return 1
    if failed:
        print(f"build-kernels: {failed} files failed to compile", file=sys.stderr)
    built = len(list(ahead.BUILD.rglob("*.so")))
    print(f"{built} compiled files in {ahead.BUILD}; GPUs visible to torch: {gpus()}")
    return 1 if failed else 0


def parse_architectures(text: str) -> tuple[str, ...]:
    """The architectures of a list such as "8.0;9.0a+PTX", written as for TORCH_CUDA_ARCH_LIST.

    Raises ValueError for an entry that is not an architecture.
    """
    found = tuple(dict.fromkeys(re.split(r"[;,\s]+", text.strip(" ;,"))))
    for architecture in found:
        if not re.fullmatch(r"\d+\.\da?(\+PTX)?", architecture):
            raise ValueError(
                f"architectures are written like 9.0, 9.0a or 8.0+PTX, got {architecture!r}"
            )
    return found


def gpus() -> str:
    """The names of the GPUs that torch can use, or why there are none."""
    import torch

    if torch.version.cuda is None:
        return "none, since this torch is a CPU build and cannot load the kernels"
    names = [torch.cuda.get_device_name(card) for card in range(torch.cuda.device_count())]
    return ", ".join(names) or "none"


def native() -> tuple[str, ...]:
    """The architectures of the visible GPUs."""
    import torch

    cards = range(torch.cuda.device_count())
    found = [nvcc.architectures_of(torch.cuda.get_device_capability(card)) for card in cards]
    if not found:
        raise ValueError('no CUDA GPU is visible: name architectures, such as --arch "8.0;9.0"')
    return tuple(dict.fromkeys(architecture for one in found for architecture in one))


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
    paths = sorted(ahead.CSRC.rglob("*.cu"))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return sum(pool.map(lambda path: not _build(path, architectures, say), paths))


def _build(path: Path, architectures: Sequence[str], say: Callable[[str], None]) -> bool:
    source = read_source(path)
    built, name = ahead.target(source, path), path.relative_to(ahead.CSRC).as_posix()
    wanted = list(nvcc.able(architectures, source))
    if not wanted:
        say(f"{name}: needs {nvcc.sm(nvcc.needs(source))}, which is not among the architectures")
        return True
    note = built.with_suffix(".json")
    if ahead.built_for(built) == wanted:
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


if __name__ == "__main__":
    sys.exit(main())
