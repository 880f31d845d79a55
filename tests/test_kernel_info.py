"""kernel_info(): which code runs, for every operator and back end; and the command that builds."""

import os
import subprocess
import sys

import pytest
import torch

import yaie
from yaie.bench import info
from yaie.build import ahead, jit, nvcc
from yaie.ops import registry

pytestmark = pytest.mark.usefixtures("warm_python")
SETUP = jit.CSRC / "setup.py"


@pytest.fixture
def card(monkeypatch, tmp_path):
    """As on a machine with a Hopper card, where nothing was compiled yet."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (9, 0))
    monkeypatch.setattr(ahead, "BUILD", tmp_path / "ahead")
    monkeypatch.setenv("YAIE_CACHE", str(tmp_path / "cache"))


def test_on_a_cpu_every_operator_has_its_reference():
    table = yaie.kernel_info("cpu")
    assert table.device == "cpu"
    assert {entry.operator for entry in table} == set(registry.operators())
    for operator in registry.operators():
        assert {e.backend for e in table if e.operator == operator} == set(
            registry.backends(operator)
        )
        (first,) = [e for e in table if e.operator == operator and e.chosen]
        ours = "cpp" in registry.backends(operator)
        assert first.backend == ("cpp" if ours else "reference")
        assert first.how.startswith("compiled" if ours else "plain PyTorch")
    norm = table.of("rms_norm", "cuda")
    assert (norm.how, norm.code) == ("emulated", "norm/rms_norm.cu")
    with pytest.raises(ValueError, match="no operator 'nothing' with a back end 'cuda'"):
        table.of("nothing", "cuda")
    with pytest.raises(ValueError, match="device must be cuda or cpu, got meta"):
        yaie.kernel_info("meta")


@pytest.mark.skipif(torch.cuda.is_available(), reason="about machines without a GPU")
def test_without_a_gpu_it_says_so():
    with pytest.raises(ValueError, match="there is no device cuda here"):
        yaie.kernel_info("cuda")


def test_every_cuda_function_names_the_files_that_it_launches():
    for operator in registry.operators():
        if "cuda" in registry.backends(operator):
            files = info.cuda_files(registry.resolve(operator, "cuda"))
            assert files, operator
            assert all((jit.CSRC / file).is_file() for file in files), files


def test_on_a_gpu_it_says_how_far_the_kernel_is(card, monkeypatch, tmp_path):
    def how() -> tuple[str, bool, bool]:
        entry = yaie.kernel_info("cuda").of("rms_norm", "cuda")
        return entry.how, entry.available, entry.chosen

    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert how() == ("no nvcc", False, False)

    compiler = tmp_path / "bin" / "nvcc"
    compiler.parent.mkdir()
    compiler.write_text("#!/bin/sh\necho Build pretended\n")
    compiler.chmod(0o755)
    assert how() == ("compiled at first use", True, True)
    with monkeypatch.context() as without:
        for name in ("PATH", "CC", "CXX", "NVCC_CCBIN"):
            without.delenv(name, raising=False)
        without.setenv("PATH", str(tmp_path))
        assert how() == ("no C++ compiler", False, False)

    path = jit.CSRC / "norm" / "rms_norm.cu"
    kept = nvcc.kept(path.read_text(), path, (9, 0))
    kept.parent.mkdir(parents=True)
    kept.touch()
    assert how() == ("compiled", True, True)
    compiler.unlink()  # what it compiled does not need it
    assert how() == ("compiled", True, True)
    kept.unlink()
    assert how() == ("no nvcc", False, False)

    built = ahead.target(path.read_text(), path)
    built.parent.mkdir(parents=True)
    built.touch()
    built.with_suffix(".json").write_text('{"architectures": ["9.0"]}')
    assert how() == ("built ahead of time", True, True)


def test_it_prints_as_a_table():
    text = str(yaie.kernel_info("cpu"))
    head, *rows, empty, foot = text.splitlines()
    assert head.split() == ["operator", "back", "end", "how", "code"]
    assert foot == '* what backend="auto" asks first on cpu' and not empty
    assert sum("emulated" in row for row in rows) == sum(".cu" in row for row in rows)
    assert repr(yaie.kernel_info("cpu")) == text


def test_a_function_of_ones_own_is_named(monkeypatch):
    monkeypatch.setitem(registry._FUNCTIONS["sample"], "mine", test_it_prints_as_a_table)
    entry = yaie.kernel_info("cpu").of("sample", "mine")
    assert (entry.how, entry.code) == ("Python", f"{__name__}:test_it_prints_as_a_table")


def setup(*arguments: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, str(SETUP), *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )


def test_the_command_says_what_is_missing(tmp_path):
    done = setup(CUDA_HOME=str(tmp_path))
    assert done.returncode == 1 and "no nvcc: CUDA_HOME is " in done.stderr
    for spelled in ("75", "sm_75", "7.5"):
        done = setup("build_ext", "--inplace", "--arch", f"{spelled};9.0a", CUDA_HOME=str(tmp_path))
        assert "compiling for 7.5, 9.0a: " in done.stdout and "no nvcc" in done.stderr
    done = setup("--arch", "ampere")
    assert done.returncode == 1 and "written like 9.0, 9.0a or 8.0+PTX" in done.stderr
    if not torch.cuda.is_available():
        done = setup("--arch", "native")
        assert done.returncode == 1 and "no CUDA GPU is visible" in done.stderr
