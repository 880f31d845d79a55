"""Extensions of torch: the one of csrc/elementwise, compiled for the CPU, against torch's own
headers, and on a GPU; what keeps load_inline's results; and how csrc/setup.py is called."""

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.utils.cpp_extension import CUDA_HOME, include_paths

from yaie.build.jit import CSRC
from yaie.course.author.gpu.extension import SOURCES, classic
from yaie.course.lessons import inline

FOLDER = CSRC / "elementwise"
FILES = ("setup.py", *SOURCES)
USE = """
import sys, torch
torch.ops.load_library(sys.argv[1])
add = torch.ops.yaie_extension.vector_add
for device in sys.argv[2:]:
    for n in (0, 1, 1025):
        x, y = torch.randn(2, n, device=device)
        assert torch.equal(add(x, y), x + y), n
    for other in (y.double(), y[1:], y.view(5, 205).T, torch.randn(2050, device=device)[::2]):
        try:
            add(other, other) if other.shape != y[1:].shape else add(other, y)
        except RuntimeError as error:
            assert "x and y must" in str(error), error
        else:
            raise AssertionError(other.dtype, other.shape)
    print(device, "right")
"""

BOTH = """
import sys, torch
from yaie.course.lessons.inline import load_inline
classic = load_inline("classic_vector_add", sys.argv[1])
load_inline("lean_vector_add", sys.argv[2], no_implicit_headers=True, is_python_module=False)
for add in (classic.vector_add, torch.ops.yaie_extension.vector_add):
    for n in (0, 1, 1025):
        x, y = torch.randn(2, n)
        assert torch.equal(add(x, y), x + y), n
    for wrong, words in ((y.double(), "float32"), (y[1:], "shape"), (y.view(5, 205).T, "")):
        try:
            add(wrong if not words else x, wrong)
        except RuntimeError as error:
            assert (words or "contiguous") in str(error), error
        else:
            raise AssertionError(words)
print("both right")
"""


def python(*words: object) -> str:
    command = [sys.executable, "-X", "faulthandler", "-u", *map(str, words)]
    env = inline.own_compiler()
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def built() -> Path:
    """As in notebook 22, so that it is compiled once for both."""
    command = [sys.executable, "setup.py", "build_ext", "--inplace"]
    return inline.build_extension(command, [FOLDER / name for name in FILES], "yaie_extension.so")


@pytest.mark.slow
def test_the_extension_is_built_in_place_and_adds():
    assert "cpu right" in python("-c", USE, built(), "cpu")


@pytest.mark.gpu
@pytest.mark.skipif(CUDA_HOME is None, reason="no CUDA toolkit")
def test_on_a_gpu_it_adds_there_too():
    assert "cuda right" in python("-c", USE, built(), "cpu", "cuda")


@pytest.mark.slow
def test_both_forms_of_load_inline_in_notebook_14_add_on_a_cpu():
    """Under the notebook's names, so that each is compiled once for both."""
    lean = (FOLDER / "vector_add_host.cpp").read_text(encoding="utf-8")
    assert "both right" in python("-c", BOTH, "\n" + classic("CLASSIC"), lean)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="no CUDA header")
def test_the_binding_compiles_against_torchs_own_headers():
    """The exercise's check has small ones in their place; CUDA's come with triton."""
    headers = Path(importlib.util.find_spec("triton").origin).parent / "backends/nvidia/include"
    folders = [f"-I{place}" for place in (*include_paths(), headers)]
    command = ["g++", "-std=c++20", "-fsyntax-only", "-DC10_CUDA_NO_CMAKE_CONFIGURE_FILE", *folders]
    done = subprocess.run(
        [*command, FOLDER / "vector_add_binding.cpp"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.gpu
@pytest.mark.skipif(CUDA_HOME is None, reason="no CUDA toolkit")
def test_the_classic_form_of_notebook_14_runs_on_a_gpu():
    declared = "torch::Tensor vector_add(torch::Tensor x, torch::Tensor y);"
    source = classic("CLASSIC_CUDA")
    made = inline.load_inline("classic_cuda", declared, source, functions=["vector_add"])
    x, y = torch.randn(2, 1025, device="cuda")
    assert torch.equal(made.vector_add(x, y), x + y)


def test_load_inline_is_built_once_for_each_content(tmp_path, monkeypatch):
    monkeypatch.setenv("YAIE_CACHE", str(tmp_path))
    calls = []

    def fake(name, cpp, cuda, build_directory, **options):
        calls.append(options)
        shutil.copy(
            next(Path(torch.__file__).parent.glob("_C*.so")), f"{build_directory}/{name}.so"
        )
        return name

    monkeypatch.setattr("torch.utils.cpp_extension.load_inline", fake)
    monkeypatch.setattr(torch.ops, "load_library", calls.append)
    options = {"is_python_module": False, "no_implicit_headers": True}
    first = inline.load_inline("one", "int x;", **options)
    assert calls == [options] and first.is_relative_to(tmp_path)
    assert inline.load_inline("one", "int x;", **options) == first  # now from the cache
    assert calls == [options, first]
    assert inline.load_inline("one", "int y;", **options) != first
    assert inline.load_inline("one", "int x;", no_implicit_headers=True).startswith("one_")
    assert len(calls) == 4


def test_a_command_builds_once_for_each_content_in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("YAIE_CACHE", str(tmp_path / "cache"))
    source = tmp_path / "source.txt"
    source.write_text("1")
    command = ["sh", "-c", f"echo >> {tmp_path}/runs; cp source.txt made.so"]
    first = inline.build_extension(command, [source], "made.so")
    assert inline.build_extension(command, [source], "made.so") == first
    source.write_text("2")
    second = inline.build_extension(command, [source], "made.so")
    assert (first.read_text(), second.read_text()) == ("1", "2")
    assert (tmp_path / "runs").read_text() == "\n\n" and not (tmp_path / "made.so").exists()
    with pytest.raises(RuntimeError, match="sh -c echo no >&2; false failed: no"):
        inline.build_extension(["sh", "-c", "echo no >&2; false"], [source], "made.so")


def test_the_toolkit_is_asked_for_where_nvcc_is_a_python_package(tmp_path, monkeypatch):
    monkeypatch.setattr("yaie.build.nvcc.find", lambda: tmp_path / "bin" / "nvcc")
    monkeypatch.setattr("yaie.build.nvcc.is_wheel", lambda compiler: True)
    with pytest.raises(RuntimeError, match=r"torch needs the CUDA toolkit, and .*nvcc is the"):
        inline.load_inline("one", "", "int x;")
