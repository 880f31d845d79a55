"""Every kernel compiles for the GPUs it is meant for, wherever nvcc is found; no GPU is needed."""

import json
import re
from collections import defaultdict
from functools import cache
from pathlib import Path
from runpy import run_path

import pytest
from emulated import (
    ARITHMETIC,
    CONVERTED,
    FEATURES,
    MIXED,
    namespace,
    together,
    with_halves,
    with_launchers,
)

from yaie.build import ahead, nvcc
from yaie.build.cache import build_once, cache_root, content_hash
from yaie.build.jit import CompileError
from yaie.course.author.gpu import agreement
from yaie.emulator.compiler import compiler_version
from yaie.emulator.rewrite import CSRC, included

build_all = run_path(str(CSRC / "setup.py"))["build_all"]

SOURCES = {path.relative_to(CSRC).as_posix(): path for path in sorted(CSRC.rglob("*.cu"))}
FAULTS = agreement.HERE / "faults.cu"
TORCH_FORBIDS = (  # what torch tells nvcc, and its own extensions are compiled with
    *("-D__CUDA_NO_HALF_OPERATORS__", "-D__CUDA_NO_HALF_CONVERSIONS__"),
    *("-D__CUDA_NO_HALF2_OPERATORS__", "-D__CUDA_NO_BFLOAT16_CONVERSIONS__"),
)
# ptxas keeps to few registers, so that more thread blocks fit, and has one or two too few: 4 or 8
# bytes. With three thread blocks of gemv.cu's kernels with a norm, which need not spill, a layer of
# Llama-8B takes 2 µs longer on an H200 than with four.
SPILLS = {"flash/shared_tile.cu", "flash/backward.cu", "matmul/gemv.cu"}
# Folders whose kernels take nvcc 10 s or more. Each is compiled by itself, so that an edit in
# another folder does not compile it again.
LONG = {"flash", "flash/hopper", "matmul/hopper", "paged", "peers", "sampling"}
pytestmark = pytest.mark.skipif(nvcc.find() is None, reason="no nvcc")


@cache
def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def with_headers(path: Path) -> list[Path]:
    """A file, and all headers of csrc/ that it includes."""
    return [path, *included(read(path), path)]


def architectures(name: str) -> tuple[str, ...]:
    """sm_75 and sm_90, or what a file needs. sm_80 is left out unless the source distinguishes it
    from sm_90."""
    source = read(SOURCES[name])
    wanted = nvcc.able(("7.5", "8.0", "9.0"), source) or (nvcc.needs(source),)
    every = map(read, with_headers(SOURCES[name]))
    asked = re.findall(r"__CUDA_ARCH__\s*([<>=!]+)\s*(\d+)", "\n".join(every))
    if all(one in (("<", "800"), (">=", "800")) for one in asked):
        return tuple(dict.fromkeys((wanted[0], wanted[-1])))
    return wanted


def units() -> dict[str, list[str]]:
    """The kernels for the same architectures, to be compiled together: reading CUDA's headers takes
    nvcc 2 s. A file that uses global `::` names or defines macros is compiled alone."""
    found = defaultdict(list)
    for name, path in SOURCES.items():
        alone = re.search(r"(?<![\w>])::\w|^#define\b", read(path), re.MULTILINE)
        folder = name.rpartition("/")[0]
        apart = f"{folder} " if folder in LONG else ""
        found[name if alone else apart + " ".join(architectures(name))].append(name)
    return found


def kernels_that_spill(said: str) -> set[str]:
    """The kernels to which ptxas gives memory for registers or local arrays."""
    properties = r"properties for (\w+)\s+(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+)"
    return {kernel for kernel, *sizes in re.findall(properties, said) if set(sizes) != {"0"}}


@pytest.mark.slow
@pytest.mark.parametrize("unit", UNITS := units() if nvcc.find() else {})
def test_compiled_for_three_generations(unit):
    """No warning, and no spilled register. What nvcc says is kept while all that it reads is the
    same."""
    names = UNITS[unit]
    source, first = together(SOURCES[name] for name in names), SOURCES[names[0]]
    flags = [*TORCH_FORBIDS, "-Xcompiler=-Wall", "-Xptxas=-v", "--threads=3"]
    given = [*nvcc.OPTIONS, *flags, *architectures(names[0])]
    compilers = nvcc.version(nvcc.nvcc()), compiler_version()
    texts = [text.replace(str(CSRC), "csrc") for text in nvcc.read_all(source, first)]
    key = content_hash(*texts, *given, *compilers)

    def compile_in(folder: Path) -> Path:
        said = nvcc.build(source, first, architectures(names[0]), folder / "kernel.o", flags)
        assert (folder / "kernel.o").stat().st_size > 0
        (folder / "said").write_text(said)
        return folder / "said"

    kept = cache_root() / "cuda" / f"{first.stem}-{key}.warnings"
    said = build_once(kept, compile_in).path.read_text()
    assert "warning" not in said, said
    assert "properties for" in said
    of = {namespace(SOURCES[name]) for name in names if name in SPILLS}
    assert not [k for k in kernels_that_spill(said) if not any(n in k for n in of)], said


def test_what_the_emulator_is_tested_with_is_cuda(tmp_path):
    paths = [tmp_path / path.name for path in (FEATURES, ARITHMETIC, FAULTS)]
    for path, original in zip(paths, (FEATURES, ARITHMETIC, FAULTS), strict=True):
        path.write_text(with_launchers(original.read_text()))
    nvcc.build(together(paths), FAULTS, ("8.0",), tmp_path / "kernel.o")


def test_a_half_and_another_number_have_no_operator(tmp_path):
    """`test_emulator_arithmetic` has the emulator refuse and accept the same statements."""
    with pytest.raises(CompileError) as refused:
        nvcc.build(with_halves(MIXED), tmp_path / "mixed.cu", ("8.0",), tmp_path / "kernel.o")
    for line in range(4, 4 + len(MIXED)):
        assert str(refused.value).count(f"mixed.cu({line}): error") == 2, MIXED[line - 4]
    nvcc.build(with_halves(CONVERTED), tmp_path / "right.cu", ("8.0",), tmp_path / "kernel.o")


def test_an_error_is_told_in_the_sources_own_lines(tmp_path):
    source = "#include <cuda_runtime.h>\n\n__global__ void f(int* p) {\n    p[0] = wrong;\n}\n"
    with pytest.raises(CompileError) as caught:
        nvcc.build(source, tmp_path / "mine.cu", ("8.0",), tmp_path / "kernel.o")
    told = str(caught.value)
    assert told.startswith(f'{tmp_path}/mine.cu(4): error: identifier "wrong" is undefined\n')
    assert "kernel" not in told and "1 error detected" not in told
    with pytest.raises(CompileError, match=r"mine\.cu:1:\d+: fatal error: nowhere\.h: No such"):
        nvcc.build('#include "nowhere.h"\n', tmp_path / "mine.cu", ("8.0",), tmp_path / "kernel.o")
    assert not list(tmp_path.glob("*.cu"))


def test_everything_is_built_ahead_once_and_again_after_a_change(tmp_path, monkeypatch):
    sources = tmp_path / "csrc"
    (sources / "topic").mkdir(parents=True)
    (sources / "common.cuh").write_text("#pragma once\n#include <cuda_runtime.h>\n")
    for name in ("one", "two"):
        (sources / "topic" / f"{name}.cu").write_text(
            '#include "common.cuh"\n__global__ void f(int* p) { p[0] = 1; }\n'
            'extern "C" cudaError_t run(int* p, cudaStream_t s) {\n'
            "    f<<<1, 1, 0, s>>>(p);\n    return cudaGetLastError();\n}\n"
        )
    (sources / "topic" / "blackwell.cu").write_text("// Needs     sm_100a: tcgen05\n")
    for module in (ahead, nvcc):
        monkeypatch.setattr(module, "CSRC", sources)
    monkeypatch.setattr("yaie.emulator.rewrite.CSRC", sources)
    monkeypatch.setattr(ahead, "BUILD", tmp_path / "build")

    def build() -> list[str]:
        said: list[str] = []
        assert build_all(("8.0", "9.0+PTX"), said.append) == 0
        return sorted(re.sub(r"\d+\.\d s$", "… s", line) for line in said)

    def files() -> set[str]:
        return {path.name for path in (tmp_path / "build").rglob("*") if path.is_file()}

    blackwell = "topic/blackwell.cu: needs sm_100a, which is not among the architectures"
    compiled = "compiled topic/{}.cu for sm_80, sm_90+PTX in … s"
    assert build() == [compiled.format("one"), compiled.format("two"), blackwell]
    first = files()
    assert len(first) == 4
    assert build() == [blackwell, "topic/one.cu: up to date", "topic/two.cu: up to date"]
    path = sources / "topic" / "one.cu"
    built = ahead.find(path.read_text(), path, (12, 0))
    assert built is not None and built.name in first
    assert json.loads(built.with_suffix(".json").read_text())["architectures"] == ["8.0", "9.0+PTX"]

    path.write_text(path.read_text().replace("= 1", "= 2"))
    assert ahead.find(path.read_text(), path, (8, 0)) is None
    assert build() == [compiled.format("one"), blackwell, "topic/two.cu: up to date"]
    assert len(files()) == 4 and built.name not in files()

    said: list[str] = []
    assert build_all(("9.0",), said.append) == 0  # for others: in the same place
    built = ahead.find(path.read_text(), path, (9, 0))
    assert len(files()) == 4 and built.name in files()
    assert ahead.find(path.read_text(), path, (8, 0)) is None

    path.write_text(path.read_text().replace("p[0]", "q[0]"))
    said.clear()
    assert build_all(("8.0",), said.append) == 1
    assert any(re.search(r"one\.cu: not compiled\n.*one\.cu\(2\): error", line) for line in said)
