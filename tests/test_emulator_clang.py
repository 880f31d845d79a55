"""clang++ in place of g++: it compiles every kernel of the course, and they compute the same."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from shutil import which

import pytest

from yaie.emulator.build import INCLUDE
from yaie.emulator.rewrite import CSRC, rewrite

CLANG = which("clang++") or which("clang++-14")
TESTS = Path(__file__).parent
pytestmark = pytest.mark.skipif(not CLANG, reason="no clang++")


def errors(path: Path) -> str:
    command = [CLANG, "-std=c++17", "-w", "-fsyntax-only", f"-I{INCLUDE}", "-x", "c++", "-"]
    code = rewrite(path.read_text(), path).code
    return subprocess.run(command, input=code, capture_output=True, text=True).stderr


def test_every_kernel_of_the_course_compiles():
    with ThreadPoolExecutor(2) as pool:
        paths = sorted(CSRC.rglob("*.cu"))
        found = dict(zip(paths, pool.map(errors, paths), strict=True))
    assert not {path.name: text for path, text in found.items() if text}


def test_kernels_compute_the_same(tmp_path):
    """The emulator's own tests of values, with clang++ as the compiler."""
    files = ("test_emulator", "test_emulator_groups", "test_emulator_host", "test_emulator_ptx")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        "-k",
        "plain",
    ]
    run = subprocess.run(
        [*command, *(str(TESTS / f"{name}.py") for name in files)],
        env={**os.environ, "CXX": CLANG, "YAIE_CACHE": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout[-3000:]
