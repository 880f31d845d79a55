"""The doctor, on machines that lack things: each probe is shown a faked world."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from yaie.course.core import doctor, profilers
from yaie.course.core.doctor import NOTE, OK, PROBLEM


@pytest.fixture
def commands(monkeypatch):
    """A world in which only the programs named here exist: name -> (exit status, output)."""
    world: dict[str, tuple[int, str]] = {}
    for name in ("CXX", "CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    # Without its cache: neither a compiler found earlier nor one found here may be remembered.
    monkeypatch.setattr(doctor, "find_compiler", doctor.find_compiler.__wrapped__)

    def fake_run(command):
        return world.get(Path(command[0]).name, (127, "not found"))

    monkeypatch.setattr(doctor, "run", fake_run)
    monkeypatch.setattr(doctor.shutil, "which", lambda name: name if name in world else None)
    return world


@pytest.fixture
def packages(monkeypatch):
    """Installed packages: name -> version, on top of the real ones; None removes one."""
    changed: dict[str, str | None] = {}
    real = doctor.installed
    monkeypatch.setattr(
        doctor, "installed", lambda name: changed[name] if name in changed else real(name)
    )
    return changed


@pytest.fixture
def gpu(monkeypatch):
    """Make torch see a GPU of a given architecture, and be built for given ones."""

    def see(capability, built=("sm_80", "sm_90"), cuda="13.0"):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: capability is not None)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "GPU of a test")
        monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: list(built))
        monkeypatch.setattr(torch.version, "cuda", cuda)

    return see


@pytest.mark.parametrize(
    ("package", "version", "expected"),
    [
        *[("torch", version, PROBLEM) for version in (None, "2.8.1")],
        *[("torch", version, OK) for version in ("2.9.0", "2.13.0+cpu", "3.0.0a1")],
        *[(package, None, PROBLEM) for package in ("triton", "ipywidgets")],
    ],
)
def test_packages(packages, monkeypatch, package, version, expected):
    packages[package] = version
    probe, words = {
        "torch": (doctor.probe_torch, "constraints.txt"),
        "triton": (doctor.probe_triton, "missing"),
        "ipywidgets": (doctor.probe_jupyter, "ipywidgets"),
    }[package]
    verdict, *said = probe()
    assert verdict == expected and (verdict == OK or words in " ".join(said))
    monkeypatch.setattr(doctor.sys, "platform", "darwin")
    assert package != "triton" or doctor.probe_triton()[0] == NOTE


def test_programs_that_are_too_old_or_not_there(commands, monkeypatch, tmp_path):
    monkeypatch.setattr(doctor.sys, "version_info", (3, 9, 18, "final", 0))
    verdict, detail, remedy = doctor.probe_python()
    assert verdict == PROBLEM and "3.9.18" in detail and "3.10" in detail and "PYTHON=" in remedy
    monkeypatch.setattr(doctor.sys, "executable", str(tmp_path / "python"))
    assert doctor.probe_ninja()[0] == PROBLEM
    commands["ninja"] = (0, "1.13.2.git.kitware")
    assert doctor.probe_ninja() == (OK, "1.13.2")
    verdict, _, remedy = doctor.probe_compiler()
    assert verdict == PROBLEM and "apt-get install g++" in remedy
    commands["g++"] = (1, "probe.cpp:1:10: fatal error: cmath: No such file or directory")
    verdict, detail, _ = doctor.probe_compiler()
    assert verdict == PROBLEM and "cmath" in detail


def test_course_that_is_a_copy_or_run_by_another_environment(monkeypatch, tmp_path):
    monkeypatch.setattr(doctor, "ROOT", tmp_path)
    verdict, detail, remedy = doctor.probe_course()
    assert verdict == PROBLEM and "no notebooks" in detail and remedy.endswith("pip install -e .")
    for name in ("notebooks", ".venv"):
        (tmp_path / name).mkdir()
    (tmp_path / "pyproject.toml").touch()
    assert doctor.probe_course()[0] == NOTE
    monkeypatch.setattr(doctor.sys, "prefix", str(tmp_path / ".venv"))
    assert doctor.probe_course()[0] == OK


def test_compiler_really_compiles(monkeypatch):
    """A program that compiles nothing is a problem, and the real compiler passes. If CXX names no
    program, another compiler is found, as it is for kernels."""
    monkeypatch.setattr(doctor, "find_compiler", doctor.find_compiler.__wrapped__)
    monkeypatch.setenv("CXX", "false")
    assert doctor.probe_compiler()[0] == PROBLEM
    monkeypatch.setenv("CXX", "no such compiler")
    assert doctor.probe_compiler()[0] == OK


@pytest.mark.parametrize(
    ("nvcc", "cuda", "expected", "words"),
    [
        (None, None, OK, "none is needed"),
        (None, "13.0", NOTE, "Only Part IV"),
        ("release 13.0, V13.0.88", "13.0", OK, "13.0"),
        ("release 13.1, V13.1.2", "13.0", OK, "torch: 13.0"),
        ("release 12.4, V12.4.131", "13.0", PROBLEM, "built for CUDA 13.0"),
        ("release 12.4, V12.4.131", None, OK, "not used"),
        ("gibberish", "13.0", PROBLEM, "does not say its version"),
    ],
)
def test_nvcc_against_torch(commands, gpu, monkeypatch, nvcc, cuda, expected, words):
    gpu(None, cuda=cuda)
    if nvcc:
        commands["nvcc"] = (0, nvcc)
    monkeypatch.setattr(doctor.nvcc, "find", lambda: Path("nvcc") if nvcc else None)
    verdict, detail, *_ = doctor.probe_nvcc()
    assert verdict == expected and words in detail


def test_nvidias_tools(commands, monkeypatch, tmp_path):
    monkeypatch.setattr(profilers, "TOOLKIT", tmp_path)
    monkeypatch.setattr(doctor, "torch_cuda", lambda: None)
    assert doctor.PROBES["profilers"]()[:1] == (OK,)
    monkeypatch.setattr(doctor, "torch_cuda", lambda: "13.0")
    commands["ncu"] = (0, "Copyright (c) 2018-2025\nVersion 2025.3.1.0 (build 1)")
    (tmp_path / "nsys").touch()
    commands["nsys"] = (1, "cannot be run")
    verdict, detail, remedy = doctor.PROBES["profilers"]()
    assert verdict == NOTE and "the CUDA toolkit" in remedy
    assert detail.startswith("ncu 2025.3.1.0 at ncu, no nsys, no compute-sanitizer.")
    commands |= dict.fromkeys(("nsys", "compute-sanitizer"), (0, "version 2025.3.2"))
    assert doctor.PROBES["profilers"]()[0] == OK


def test_nvcc_is_the_one_that_kernels_are_built_with(commands, monkeypatch, tmp_path):
    wheel = tmp_path / "nvidia" / "cu13" / "bin" / "nvcc"
    wheel.parent.mkdir(parents=True)
    wheel.touch()
    monkeypatch.setattr(doctor.nvcc.sysconfig, "get_path", lambda _: str(tmp_path))
    monkeypatch.setattr(doctor, "torch_cuda", lambda: "13.0")
    commands["nvcc"] = (0, "release 13.0, V13.0.88")
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    assert doctor.probe_nvcc() == (OK, "13.0 (torch: 13.0)")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))  # though there is one elsewhere
    verdict, _, remedy = doctor.probe_nvcc()
    assert verdict == NOTE and f"CUDA_HOME is {tmp_path}, which has no bin/nvcc;" in remedy


@pytest.mark.parametrize(
    ("capability", "built", "expected"),
    [
        ((9, 0), ["sm_80", "sm_90a"], OK),
        ((8, 6), ["sm_80", "sm_90"], OK),
        ((7, 0), ["sm_80", "sm_90"], NOTE),
        ((12, 0), ["sm_80", "sm_90"], PROBLEM),
        ((12, 0), ["sm_90", "sm_120"], OK),
    ],
)
def test_gpu_architectures(commands, gpu, capability, built, expected):
    gpu(capability, built)
    verdict, detail, *_ = doctor.probe_gpu()
    assert verdict == expected and f"sm_{capability[0]}{capability[1]}" in detail


def test_gpu_that_torch_cannot_use(commands, gpu):
    commands["nvidia-smi"] = (0, "")
    gpu(None, cuda=None)
    assert "CPU build" in doctor.probe_gpu()[1]
    gpu(None, cuda="13.0")
    assert "driver" in doctor.probe_gpu()[1]


def test_locks(monkeypatch, tmp_path):
    """The folder is torch's own, so that a change there is noticed here."""
    from torch.utils.cpp_extension import get_default_build_root

    monkeypatch.delenv("TORCH_EXTENSIONS_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    in_cache = Path(get_default_build_root())
    assert in_cache.is_relative_to(tmp_path)
    for folder in (in_cache, tmp_path / "named"):
        if folder != in_cache:
            monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(folder))
        assert doctor.probe_locks()[0] == OK
        lock = folder / "py311_cpu" / "vector_add" / "lock"
        lock.parent.mkdir(parents=True)
        lock.touch()
        assert doctor.probe_locks()[0] == NOTE
    an_hour_ago = time.time() - 3600
    os.utime(lock, (an_hour_ago, an_hour_ago))
    verdict, detail, remedy = doctor.probe_locks()
    assert verdict == PROBLEM and "vector_add" in detail
    subprocess.run(remedy, shell=True, check=True)
    assert doctor.probe_locks()[0] == OK


def test_model_missing_and_cut_short(monkeypatch, tmp_path):
    from yaie.model.manifest import write_manifest
    from yaie.model.pull import DEFAULT_MODEL

    monkeypatch.setenv("YAIE_CACHE", str(tmp_path))
    verdict, _, remedy = doctor.probe_model()
    assert verdict == PROBLEM and remedy == "yaie pull"

    folder = tmp_path / DEFAULT_MODEL
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    write_manifest(folder, "test")
    assert doctor.probe_model()[0] == OK

    (folder / "model.safetensors").write_bytes(b"weig")
    verdict, detail, remedy = doctor.probe_model()
    assert verdict == PROBLEM and "model.safetensors" in detail and "rm -r" in remedy


@pytest.mark.parametrize(("free", "expected"), [(1e8, PROBLEM), (1e9, NOTE), (5e10, OK)])
def test_disk(monkeypatch, tmp_path, free, expected):
    monkeypatch.setenv("YAIE_CACHE", str(tmp_path / "not" / "made" / "yet"))
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    assert doctor.probe_disk()[0] == expected


def test_kernel_of_another_environment(monkeypatch, tmp_path):
    """After an earlier `ipykernel install --user`, Jupyter would start that Python instead."""
    assert doctor.probe_kernel()[0] == OK
    kernel = tmp_path / "kernels" / "python3"
    kernel.mkdir(parents=True)
    other = {"argv": ["/elsewhere/bin/python", "-m", "x"], "display_name": "Old", "language": "py"}
    (kernel / "kernel.json").write_text(json.dumps(other))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    verdict, detail, _ = doctor.probe_kernel()
    assert verdict == PROBLEM and "/elsewhere/bin/python" in detail


def test_a_probe_that_breaks_is_a_problem_and_not_the_end(monkeypatch):
    def broken():
        raise RuntimeError("unforeseen")

    monkeypatch.setattr(doctor, "PROBES", {"one": broken, "two": lambda: (OK, "fine")})
    one, two = doctor.examine()
    assert one.verdict == PROBLEM and "unforeseen" in one.detail
    assert two.verdict == OK


def test_findings_are_told_in_text_and_in_json():
    bad = {"name": "compiler", "verdict": PROBLEM, "detail": "none", "remedy": "install one"}
    findings = [doctor.Finding(**bad), doctor.Finding("GPU", NOTE, "too old")]
    text = doctor.as_text(findings)
    assert "-> install one" in text and "1 of 2 need fixing" in text
    told = json.loads(doctor.as_json(findings))
    assert told["ok"] is False and told["findings"][0] == bad
    assert doctor.as_text(findings[1:]).endswith("This machine has what the course needs.")


def test_a_command_that_hangs_or_is_not_there_has_failed(monkeypatch):
    monkeypatch.setattr(doctor, "COMPILE_SECONDS", 0.2)
    assert doctor.run([sys.executable, "-c", "import time; time.sleep(60)"])[0] == 1
    assert doctor.run(["/no/such/program"])[0] == 1
