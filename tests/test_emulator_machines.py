"""Other compilers and processors: clang++, and arm64 under qemu, where they are installed."""

import os
import subprocess
import sys
from pathlib import Path
from shutil import which

import pytest
from emulated import together

from yaie.emulator import build, compiler, runtime
from yaie.emulator.rewrite import CSRC, rewrite
from yaie.emulator.shared import shared_arrays

CLANG = which("clang++") or which("clang++-14")
ARM, QEMU = which("aarch64-linux-gnu-g++"), which("qemu-aarch64-static")
TESTS = Path(__file__).parent
needs_clang = pytest.mark.skipif(not CLANG, reason="no clang++")
needs_arm = pytest.mark.skipif(
    not (ARM and QEMU), reason="no aarch64-linux-gnu-g++, or no qemu-aarch64-static"
)


def errors(source: str, path: Path) -> str:
    command = [CLANG, "-std=c++17", "-w", "-fsyntax-only", f"-I{build.INCLUDE}", "-x", "c++", "-"]
    code = rewrite(source, path).code
    return subprocess.run(command, input=code, capture_output=True, text=True).stderr


@needs_clang
def test_clang_compiles_every_kernel_of_the_course():
    """Those of a folder together, so that headers are read once; alone if their names collide."""
    found = {}
    for folder in sorted({path.parent for path in CSRC.rglob("*.cu")}):
        paths = sorted(folder.glob("*.cu"))
        if errors(together(paths), paths[0]):
            found |= {path.name: errors(path.read_text(), path) for path in paths}
    assert not {name: text for name, text in found.items() if text}


@needs_clang
def test_the_same_is_found_with_clang(tmp_path):
    """The emulator's own tests, with clang++ as the compiler: values without checks, and faults."""
    values, faults = ["", "_groups", "_host", "_ptx"], ["_wgmma", "_empty"]
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider"]
    chosen = "plain or _wgmma or _empty.py or (_ptx and not checked)"
    command += ["-p", "no:nbval", "-p", "no:schemathesis", "-k", chosen]
    files = [str(TESTS / f"test_emulator{name}.py") for name in values + faults]
    run = subprocess.run(
        [*command, *files],
        env={**os.environ, "CXX": CLANG, "YAIE_CACHE": str(tmp_path)},
        capture_output=True, text=True,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout[-3000:]


@pytest.fixture
def fresh():
    """What is known of the compiler, forgotten before and after."""
    known = (
        compiler.compiler, compiler.compiler_version, build.build_runtime, build._prelude,
    )  # fmt: skip

    def forget() -> None:
        for function in known:
            function.cache_clear()

    forget()
    yield
    forget()


@pytest.mark.parametrize("machine", ["this", pytest.param("arm64", marks=needs_arm)])
def test_stacks_waits_and_signals(machine, fresh, monkeypatch, tmp_path):
    start = []
    if machine == "arm64":
        monkeypatch.setattr("platform.machine", lambda: "aarch64")
        monkeypatch.setenv("CXX", ARM)
        monkeypatch.setenv("YAIE_CACHE", str(tmp_path))
        start = [QEMU, "-L", "/usr/aarch64-linux-gnu"]
    source, driver = TESTS / "emulator" / "portable.cu", tmp_path / "driver"
    libraries = [build.build_runtime(part) for part in build.PARTS]
    program = [
        compiler.compiler(),
        "-O1",
        str(source.with_name("driver.cpp")),
        "-o",
        str(driver),
        "-ldl",
    ]
    subprocess.run(program, check=True)
    faults = ("segmentation_fault", "stack_overflow", "time_limit", "trap", "division")
    kinds = [str(runtime.KINDS.index(kind)) for kind in faults]
    for checked in (False, True):
        kernels = build.compile(source.read_text(), source, checked)
        assert [array.name for array in shared_arrays(kernels, checked)] == ["partial"]
        command = [*start, driver, *libraries, kernels]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        said = [line.split() for line in done.stdout.splitlines()]
        assert said[:3] == [["sum", "0", "499500", "499500"]] * 3, done
        assert [kind for _, kind in said[3:]] == kinds, done
