"""A `.cu` file as functions: what is compiled when, what is refused, what a broken build says."""

import ctypes
import fcntl
import io
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

import pytest
import torch
from launches import captured, each_device
from torch._subclasses.fake_tensor import FakeTensorMode

from yaie.build import ahead, cache, jit, nvcc
from yaie.build.jit import CompileError, KernelError
from yaie.emulator import build, launch
from yaie.emulator.build import build_runtime
from yaie.emulator.compiler import compiler, run_compiler
from yaie.emulator.signature import find_launchers

pytestmark = pytest.mark.usefixtures("warm_python")
SETUP = run_path(str(nvcc.CSRC / "setup.py"))  # what builds ahead of time
SOURCE = """#include <cuda_runtime.h>
#ifndef FACTOR
#define FACTOR 2
#endif
__global__ void scale(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = FACTOR * x[i];
}
extern "C" cudaError_t scale_f32(const float* x, float* out, int n, cudaStream_t stream) {
    scale<<<(n + 255) / 256, 256, 0, stream>>>(x, out, n);
    return cudaGetLastError();
}
"""


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    """An empty cache, which knows nothing of the usual one but what all kernels share."""
    build_runtime("core")
    monkeypatch.setenv("YAIE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(jit, "_loaded", {})
    return tmp_path / "cache"


def works(module, n: int = 300, factor: float = 2.0, device: str = "cpu") -> bool:
    x, out = torch.randn(n, device=device), torch.full((n,), -1.0, device=device)
    module.scale_f32(x, out, n)
    return torch.equal(out, factor * x)


# ---------------------------------------------------------------------------- what is loaded


def test_a_source_a_path_and_a_path_in_csrc(tmp_path, monkeypatch):
    assert works(jit.load(SOURCE))
    (tmp_path / "mine.cu").write_text(SOURCE)
    assert works(jit.load(tmp_path / "mine.cu"))
    monkeypatch.chdir(tmp_path)
    assert works(jit.load("mine.cu"))
    some = jit.load("elementwise/vector_add.cu")
    assert some.name == "elementwise/vector_add.cu"
    assert set(some.launchers) <= set(dir(some))
    with pytest.raises(FileNotFoundError, match=r"no file 'missing\.cu"):
        jit.load("missing.cu")
    with pytest.raises(AttributeError, match="has no launcher 'scale_f64', but scale_f32"):
        _ = jit.load(SOURCE).scale_f64
    with pytest.raises(ValueError, match="has no launcher"):
        jit.load("\n__global__ void f() {}\n")


def test_loading_compiles_nothing(own_cache):
    module = jit.load(SOURCE)
    assert not own_cache.exists()
    assert works(module)
    assert len(list((own_cache / "emulator").glob("kernel-*.so"))) == 1


def test_an_unchanged_file_is_the_same_module(tmp_path):
    path = tmp_path / "mine.cu"
    path.write_text(SOURCE)
    module = jit.load(path)
    assert jit.load(path) is module and jit.load(str(path)) is module
    assert jit.load(path, checked=True) is not module
    assert jit.load(SOURCE) is jit.load(SOURCE)


@each_device
def test_a_changed_file_is_another_module(tmp_path, device):
    path = tmp_path / "mine.cu"
    for factor in (2, 3, 4):  # the same length, and within one second
        path.write_text(SOURCE.replace("FACTOR 2", f"FACTOR {factor}"))
        assert works(jit.load(path), factor=factor, device=device)


def test_a_changed_header_is_another_module(tmp_path):
    path, header = tmp_path / "mine.cu", tmp_path / "factor.cuh"
    path.write_text('#include "factor.cuh"\n' + SOURCE)
    for factor in (5, 6):
        header.write_text(f"#pragma once\n#define FACTOR {factor}\n")
        assert works(jit.load(path), factor=factor)


@pytest.mark.parametrize("name", ["report", "how", "name", "launchers", "__init__", "_launch"])
def test_a_launcher_that_could_not_be_called_is_refused(name):
    source = (
        f'extern "C" cudaError_t {name}(int n, cudaStream_t s) {{\n    return cudaSuccess;\n}}\n'
    )
    with pytest.raises(ValueError, match=f"mine.cu: a launcher cannot be named {name}, .* own"):
        jit.load(source, name="mine.cu")


def test_checked_mode_reports(tmp_path):
    module = jit.load(SOURCE.replace("i < n", "i <= n"), checked=True)
    assert module.report is None
    assert works(module)
    assert [f.line for f in module.report.out_of_bounds] == [7]


# ------------------------------------------------------------------------- what is refused

X, OUT = torch.zeros(8), torch.zeros(8)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((X, OUT), r"takes 3 arguments \(x, out, n\), got 2: 'n' missing"),
        ((X,), "got 1: 'out', 'n' missing"),
        ((X, OUT, 8, 9), "takes 3 arguments .*, got 4$"),
        ((X.double(), OUT, 8), "'x' must be a tensor of float32, got float64"),
        ((X, torch.zeros(8, 2).T[0], 8), r"'out' must be contiguous, got strides \(2,\)"),
        ((X, OUT, 8.0), r"'n' must be a number \(int\), got float"),
        ((X, OUT, X), r"'n' must be a number \(int\), got Tensor"),
        ((X, OUT, 1 << 31), "'n' must fit in int, got 2147483648"),
        ((X, [0.0], 8), "'out' must be a tensor or None, got list"),
        ((X, OUT.to("meta"), 8), "'out' must be on cpu like 'x', got meta"),
        ((X.to("meta"), OUT.to("meta"), 8), "must be on the CPU or a CUDA device, got meta"),
    ],
)
def test_wrong_arguments_are_named(arguments, problem):
    with pytest.raises(TypeError, match=rf"scale_f32\(\).*{problem}"):
        jit.load(SOURCE).scale_f32(*arguments)


def test_a_tensor_without_memory_is_named():
    with FakeTensorMode():  # which takes 2 s at first
        fake = torch.zeros(8)
    with pytest.raises(TypeError, match=r"scale_f32\(\).*'x' must have memory, got a FakeTensor"):
        jit.load(SOURCE).scale_f32(fake, OUT, 8)


def test_none_and_numpy_numbers_are_taken():
    import numpy

    module = jit.load(SOURCE)
    module.scale_f32(X, OUT, numpy.int64(8))
    module.scale_f32(X, OUT, True)
    with pytest.raises(KernelError, match="segmentation fault"):
        module.scale_f32(None, OUT, 8)
    with pytest.raises(KernelError, match=r"returned cudaErrorInvalid(Configuration|Value)"):
        module.scale_f32(X, OUT, 0)


def test_a_compile_error_is_told_in_the_learners_lines(tmp_path):
    path = tmp_path / "mine.cu"
    path.write_text(SOURCE.replace("FACTOR * x[i]", "FACTOR * y[i]"))
    with pytest.raises(CompileError) as caught:
        works(jit.load(path))
    lines = str(caught.value).splitlines()
    assert f"{path}:7:" in lines[0] + lines[1]
    assert "'y' was not declared" in str(caught.value)
    assert "building-" not in str(caught.value) and "emulator/include" not in str(caught.value)
    module = jit.load(SOURCE.replace("x[i]", "y[i]"), name="lesson.cu")
    with pytest.raises(CompileError, match=r"^lesson\.cu: .*\n?lesson\.cu:7:\d+: error: "):
        works(module)


def test_a_launch_without_an_end(tmp_path):
    with pytest.raises(CompileError, match=r"lesson\.cu:10: a kernel launch is written"):
        jit.load(SOURCE.replace("stream>>>(", "stream("), name="lesson.cu")


# --------------------------------------------------------------------------- what is told


def test_the_time_is_told_where_it_is_wanted(own_cache, monkeypatch, capsys):
    assert works(jit.load(SOURCE)) and capsys.readouterr().out == ""

    def told() -> str:
        monkeypatch.setattr(jit, "_loaded", {})
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        module = jit.load(SOURCE, name="lesson.cu")
        assert works(module) and works(module)
        return capsys.readouterr().out

    line = r"compiled lesson\.cu for the CPU in \d+\.\d\d s\n"
    assert re.fullmatch(line, told())  # at a terminal, and once
    assert told() == ""  # kept


# ------------------------------------------------------------------- several that build at once

CHILD = """
import sys, torch
from yaie.build import jit
x, out = torch.ones(40), torch.zeros(40)
jit.load(sys.argv[1]).scale_f32(x, out, 40)
assert (out == 2).all()
"""


def compiler_that(tmp_path: Path, does: str) -> str:
    """A C++ compiler that does something before it compiles the learner's unit."""
    script = tmp_path / "compiler"
    test = 'case "$*" in *unit.cpp*) ' + does + " ;; esac"
    script.write_text(f'#!/bin/sh\n{test}\nexec {compiler()} "$@"\n')
    script.chmod(0o755)
    return str(script)


def child(path: Path, **environment: str) -> subprocess.Popen:
    """A process that runs a kernel; its cache has what all kernels share, which builds slowly."""
    folder = cache.cache_root() / "emulator"
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(build_runtime("core"), folder)
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, str(path)],
        env={**os.environ, **environment},
        stderr=subprocess.PIPE,
        text=True,
    )


def test_processes_that_load_at_once_build_once(own_cache, tmp_path):
    path, log = tmp_path / "mine.cu", tmp_path / "log"
    path.write_text(SOURCE)
    compiler = compiler_that(tmp_path, f"echo once >>{log}; sleep 0.3")
    children = [child(path, CXX=compiler) for _ in range(3)]
    for process in children:
        errors = process.communicate()[1]
        assert process.returncode == 0, errors
    assert log.read_text() == "once\n"


def test_beside_what_all_kernels_share_a_kernel_compiles_only_itself(tmp_path, monkeypatch):
    build.build_shared()
    monkeypatch.setenv("YAIE_CACHE", str(tmp_path))
    ran = []

    def note(given: list[str]) -> str:
        ran.append(given)
        return run_compiler(given)

    monkeypatch.setattr(build, "run_compiler", note)
    build.compile(SOURCE, tmp_path / "mine.cu", checked=True)
    assert [Path(given[-1]).name for given in ran] == ["unit.o", "unit.so"]
    assert "-include" in ran[0]


def test_threads_that_load_at_once(own_cache):
    results = []
    module = jit.load(SOURCE)
    threads = [threading.Thread(target=lambda: results.append(works(module))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 4


def wait_for(condition) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_what_a_killed_build_leaves_is_not_waited_for(own_cache, tmp_path, monkeypatch):
    path, begun = tmp_path / "mine.cu", tmp_path / "begun"
    path.write_text(SOURCE)
    compiler = compiler_that(tmp_path, f"touch {begun}; exec sleep 1")
    process = child(path, CXX=compiler)
    wait_for(begun.exists)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert list((own_cache / "emulator").glob("building-*"))  # it left something

    def sleep(seconds):
        raise AssertionError("it waits")

    monkeypatch.setattr(cache, "time", SimpleNamespace(**vars(time) | {"sleep": sleep}))
    assert works(jit.load(path))


def in_a_fork(work):
    """Run work in a forked child that may take ten seconds; returns what it printed."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        try:
            os.write(write, str(work()).encode())
        except BaseException as error:
            os.write(write, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        said = pipe.read().decode()
    assert os.waitpid(child, 0)[1] == 0, "it hangs"
    return said


def test_a_fork_runs_kernels():
    module = jit.load(SOURCE)
    works(module)
    assert in_a_fork(lambda: works(module)) == "True"


def test_a_fork_amid_a_call_of_another_thread_says_so():
    module = jit.load(SOURCE)
    works(module)
    with launch._one_call:
        said = in_a_fork(lambda: works(module))
    assert re.search(r"KernelError: \w+: this process was forked while another thread ran", said)
    works(module)


def test_a_fork_amid_a_build_of_another_thread_builds(own_cache):
    held, go_on = threading.Event(), threading.Event()

    def hold():
        with jit._building:
            held.set()
            go_on.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    module = jit.load(SOURCE, name="forked.cu")
    try:
        assert in_a_fork(lambda: works(module)) == "True"
    finally:
        go_on.set()
        thread.join()


def test_a_lock_is_given_back_though_a_fork_has_the_file(tmp_path):
    target = tmp_path / "x.so"
    with cache.locked(target):
        (lock,) = tmp_path.glob(".lock-*")
        numbers = [n for n in os.listdir("/proc/self/fd") if _names(n, lock)]
        copy = os.dup(int(numbers[0]))  # as a fork would have it
    with open(lock) as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises if it is not free
    os.close(copy)


def _names(number, path):
    try:
        return os.readlink(f"/proc/self/fd/{number}") == str(path)
    except OSError:
        return False


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_who_else_builds_is_not_seen_in_outputs_that_are_kept(own_cache, monkeypatch, capfd):
    monkeypatch.setattr(cache, "PATIENCE", 0.1)
    target = own_cache / "x.so"
    own_cache.mkdir()
    with cache.locked(target), warnings.catch_warnings():
        warnings.simplefilter("error")
        cache.build_once(target, lambda folder: Path(shutil.copy(__file__, folder)))
    assert target.exists() and capfd.readouterr() == ("", "")


def test_a_build_that_does_not_end_is_not_waited_for_forever(own_cache, tmp_path, monkeypatch):
    path, begun, done = tmp_path / "mine.cu", tmp_path / "begun", tmp_path / "done"
    path.write_text(SOURCE)
    waits = f"touch {begun}; until [ -e {done} ]; do sleep 0.05; done"
    module = jit.load(path)
    process = child(path, CXX=compiler_that(tmp_path, waits), YAIE_CACHE=str(own_cache))
    wait_for(begun.exists)
    monkeypatch.setattr(cache, "PATIENCE", 0.5)
    with monkeypatch.context() as at_a_terminal:
        at_a_terminal.setattr(sys, "stderr", terminal := Terminal())
        assert works(module)
    told = terminal.getvalue()
    assert re.match(r"waiting for another process to build mine-\w+\.so\n", told)
    assert "building it here too" in told
    done.touch()
    errors = process.communicate()[1]
    assert process.returncode == 0, errors


def test_the_cache_has_a_limit_and_evicts_what_was_used_least_recently(tmp_path, monkeypatch):
    def build(folder: Path) -> Path:
        (folder / "x").write_bytes(bytes(1000))
        return folder / "x"

    def there() -> set[str]:
        return {path.name for path in tmp_path.iterdir() if path.suffix in (".so", ".seconds")}

    monkeypatch.setattr(cache, "LIMIT", 2500)
    monkeypatch.setattr(cache, "_clean", cache._clean.__wrapped__)  # each time
    paths = [cache.build_once(tmp_path / f"{name}.so", build).path for name in ("old", "used")]
    left = tmp_path / "building-left"
    left.mkdir()
    paths[1].with_suffix(".seconds").write_text("1.2500\n")
    hour = 3600
    for path, age in (
        (left, 2),
        (paths[0], 9),
        (paths[1], 10),
        *((f, 10) for f in tmp_path.glob("*.seconds")),
    ):
        os.utime(path, (time.time() - age * hour,) * 2)
    again = cache.build_once(paths[1], build)  # used, so it is the newest now
    assert not again.fresh and again.seconds == 1.25
    cache.build_once(tmp_path / "new.so", build)
    assert len(there()) == 6 and not left.exists()
    cache.build_once(tmp_path / "newer.so", build)
    assert there() == {
        "used.so",
        "used.seconds",
        "new.so",
        "new.seconds",
        "newer.so",
        "newer.seconds",
    }
    assert cache.build_once(paths[1], build).seconds == 1.25


# ---------------------------------------------------------------------------- architectures


def test_architectures(monkeypatch):
    for listed in ("", "7.5 8.0 8.6 9.0 10.0 12.0+PTX", "8.0", "Hopper"):
        monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", listed)  # of torch's own kernels, not of these
        assert nvcc.architectures_of((8, 6)) == ("8.6",)
        assert nvcc.architectures_of((9, 0)) == ("9.0a",)
    assert SETUP["parse_architectures"]("8.0 9.0+PTX;") == ("8.0", "9.0+PTX")
    assert nvcc.architecture_flags(("8.0", "9.0+PTX", "10.0a")) == [
        "-gencode=arch=compute_80,code=sm_80",
        "-gencode=arch=compute_90,code=sm_90",
        "-gencode=arch=compute_90,code=compute_90",
        "-gencode=arch=compute_100a,code=sm_100a",
    ]
    for wrong in ("sm_90", "10.0f"):  # no kernel is built for a family
        with pytest.raises(ValueError, match=rf"written like 9\.0, .* got '{wrong}'"):
            SETUP["parse_architectures"](f"8.0,{wrong}")


@pytest.mark.parametrize(
    ("architectures", "capability", "runs"),
    [
        (("8.0",), (8, 0), True),
        (("8.0",), (8, 6), True),
        (("8.6",), (8, 0), False),
        (("8.0",), (9, 0), False),
        (("8.0+PTX",), (9, 0), True),
        (("9.0a",), (9, 0), True),
        (("9.0a",), (10, 0), False),
        (("10.0a",), (10, 3), False),
        (("9.0a+PTX",), (10, 0), False),
        (("7.5", "9.0+PTX"), (12, 0), True),
        (("7.5", "9.0+PTX"), (8, 0), False),
    ],
)
def test_what_runs_on_a_card(architectures, capability, runs):
    assert nvcc.runs_on(architectures, capability) is runs


def test_what_a_source_needs():
    assert nvcc.needs(SOURCE) is None
    tensor_cores = "// Matrix product.\n// Needs     sm_80: mma.sync\n"
    assert nvcc.able(("7.5", "8.0", "9.0+PTX"), tensor_cores) == ("8.0", "9.0+PTX")
    hopper = "// Needs sm_90a: wgmma\n"
    assert nvcc.able(("8.0", "9.0+PTX"), hopper) == nvcc.able(("9.0a",), hopper) == ("9.0a",)
    assert nvcc.able(("8.0", "10.0"), hopper) == ()
    assert nvcc.needs('#include "hopper.cuh"\n' + SOURCE) == "9.0a"


def test_a_card_that_a_source_does_not_run_on(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (8, 6))
    module = jit.load("// Needs sm_90a: wgmma\n" + SOURCE, name="hopper.cu")
    assert module.how("cuda") == jit.Availability("needs sm_90a", available=False)
    works(module)  # emulated
    with pytest.raises(CompileError, match=r"hopper\.cu needs sm_90a: .* 8\.6 cannot run it"):
        nvcc.build_for(module.source, module.path, (8, 6))
    module = jit.load("// Needs sm_100a: tcgen05\n" + SOURCE, name="blackwell.cu")
    assert module.how("cpu") == jit.Availability("needs sm_100a", available=False)
    with pytest.raises(CompileError, match=r"blackwell\.cu needs sm_100a, .* does not have"):
        works(module)


def test_a_library_that_asks_for_another_cuda_runtime(tmp_path, monkeypatch):
    """As nvcc of CUDA 12 makes it beside a torch of CUDA 13: no such runtime is loaded."""
    (tmp_path / "empty.cpp").write_text("")
    link = [compiler(), "-shared", "-fPIC", f"-L{tmp_path}", "-Wl,--no-as-needed"]
    for library, *linked in (["cudart_of_12"], ["kernel", "-lcudart_of_12"]):
        target = tmp_path / f"lib{library}.so"
        subprocess.run([*link, str(tmp_path / "empty.cpp"), *linked, "-o", target], check=True)
    (tmp_path / "libcudart_of_12.so").unlink()
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (8, 6))
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: 0, raising=False)
    module = jit.load(SOURCE)
    monkeypatch.setattr(module, "_library", lambda capability: target)
    told = r"libcudart_of_12.* cannot open .*; nvcc must be of torch's CUDA version, "
    with pytest.raises(CompileError, match=told):
        module.start(next(iter(module.launchers.values())), 0, [])


def test_packed_values_arrive(tmp_path):
    """One argument holds all values, even if the launcher is in a namespace and a template has the
    same name. The C++ compiler stands in for nvcc."""
    source = """namespace own {
template <class T> int take(T*) { return -1; }
extern "C" cudaError_t take(const volatile float* __restrict__ x, float** y, int a,
    unsigned long long b, float c, double d, bool e, int64_t f, cudaStream_t stream) {
  return x == (float*)0x7f0000000008 && !y && a == -3 && b == 18446744073709551615ull &&
         c < -1e38f && d == 0.1 && e && f == -(1ll << 40) && stream == (void*)16;
}
}"""
    unit = tmp_path / "unit.cpp"
    head = "#include <cstdint>\ntypedef int cudaError_t;\ntypedef void* cudaStream_t;\n"
    unit.write_text(head + source + "\n" + nvcc.packed_calls(source))
    target = tmp_path / "unit.so"
    subprocess.run([compiler(), "-shared", "-fPIC", str(unit), "-o", target], check=True)
    launcher = find_launchers(source)["take"]
    take = launcher.packed_in(ctypes.CDLL(str(target)))
    given = [0x7F0000000008, 0, -3, 2**64 - 1, -math.inf, 0.1, True, -(2**40), 16]
    assert take(launcher.pack(*given)) == 1
    first = launcher.pack(8, 8, *given[2:-1], 8)
    again = launcher.packed_again.pack(first, given[0], given[1], given[-1])
    assert again == launcher.pack(*given)
    for place, other in enumerate((8, 8, 3, 1, 0.0, 0.2, False, 0, 8)):
        assert take(launcher.pack(*given[:place], other, *given[place + 1 :])) == 0


def test_what_nvcc_says_of_its_own_files_is_left_out():
    output = (
        "In file included from tmpxft_0000.cudafe1.stub.c:1:\n"
        'mine.cu(7): error: identifier "y" is undefined\n      out[i] = y[i];\n               ^\n\n'
        '1 error detected in the compilation of "cuda.cu".\n'
        "ptxas error   : Entry function 'f' uses too much shared data (0x13880 bytes, 0xc000 max)\n"
    )
    assert nvcc.only_the_message(output, Path("cuda.cu"), Path("mine.cu")).splitlines() == [
        'mine.cu(7): error: identifier "y" is undefined',
        "      out[i] = y[i];",
        "               ^",
        "ptxas error   : Entry function 'f' uses too much shared data (0x13880 bytes, 0xc000 max)",
    ]
    assert nvcc.only_the_message("ld: cannot find -lx\n", Path("a"), Path("b")) == (
        "ld: cannot find -lx"
    )


def test_no_nvcc_is_told(monkeypatch, tmp_path):
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    with pytest.raises(CompileError, match=f"no nvcc: CUDA_HOME is {tmp_path}, which has no bin/"):
        nvcc.nvcc()
    monkeypatch.setattr(nvcc, "find", lambda: None)
    monkeypatch.setenv("CUDA_HOME", "")
    monkeypatch.delenv("CUDA_PATH", raising=False)
    with pytest.raises(CompileError, match="no nvcc: pip install 'nvidia-cuda-nvcc"):
        nvcc.nvcc()


def test_an_nvcc_that_does_not_run_is_told(tmp_path):
    compiler = tmp_path / "nvcc"
    compiler.write_text("#!/bin/sh\necho no license >&2\nexit 3\n")
    compiler.chmod(0o755)
    with pytest.raises(jit.CompileError, match="nvcc --version fails: no license"):
        nvcc.version(compiler)


def test_nvcc_from_a_wheel_is_found_last(monkeypatch, tmp_path):
    wheel = tmp_path / "nvidia" / "cu13"
    (wheel / "bin").mkdir(parents=True)
    (wheel / "bin" / "nvcc").touch()
    (wheel / "lib").mkdir()
    (wheel / "lib" / "libcudart_static.a").touch()
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(nvcc.sysconfig, "get_path", lambda name: str(tmp_path))
    monkeypatch.setattr(nvcc.shutil, "which", lambda name: None)
    if not Path("/usr/local/cuda/bin/nvcc").exists():
        assert nvcc.find() == wheel / "bin" / "nvcc" and nvcc.is_wheel(nvcc.find())
    monkeypatch.setattr(nvcc.shutil, "which", lambda name: str(wheel / "bin" / "nvcc"))
    assert nvcc.find() == wheel / "bin" / "nvcc"


def test_a_stale_file_that_was_built_ahead_is_not_used(tmp_path, monkeypatch):
    monkeypatch.setattr(ahead, "BUILD", tmp_path)
    path = jit.CSRC / "elementwise" / "vector_add.cu"
    source = path.read_text()
    assert ahead.find(source, path, (9, 0)) is None
    built = ahead.target(source, path)
    built.parent.mkdir(parents=True)
    built.write_bytes(b"")
    built.with_suffix(".json").write_text('{"architectures": ["9.0"]}')
    assert ahead.find(source, path, (9, 0)) == built
    assert ahead.find(source, path, (8, 0)) is None  # another card
    assert ahead.find(source + "\n", path, (9, 0)) is None  # another source
    assert ahead.find(source, tmp_path / "mine.cu", (9, 0)) is None
    built.with_suffix(".json").unlink()  # one that is being replaced
    assert ahead.find(source, path, (9, 0)) is None


# ------------------------------------------------------------------------------ on a GPU


@pytest.fixture
def gpu(own_cache, monkeypatch, tmp_path):
    if not torch.cuda.is_available():
        pytest.skip("no CUDA GPU")
    monkeypatch.setattr(ahead, "BUILD", tmp_path / "ahead")
    return torch.device("cuda", torch.cuda.current_device())


@pytest.mark.gpu
def test_gpu_one_module_on_both_devices(gpu, own_cache, monkeypatch, capsys):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    module = jit.load(SOURCE, name="lesson.cu")
    assert works(module, device="cuda") and works(module, device="cpu")
    assert works(module, device="cuda")
    major, minor = torch.cuda.get_device_capability()
    lines = capsys.readouterr().out.splitlines()
    assert [line.rpartition(" in ")[0] for line in lines] == [
        f"compiled lesson.cu for sm_{major}{minor}",
        "compiled lesson.cu for the CPU",
    ]


@pytest.mark.gpu
def test_gpu_kept_between_processes(gpu, own_cache):
    assert works(jit.load(SOURCE), device="cuda")
    (built,) = (own_cache / "cuda").glob("kernel-*.so")
    before = built.stat().st_ino
    jit._loaded.clear()
    assert works(jit.load(SOURCE), device="cuda")
    assert built.stat().st_ino == before
    assert not list((own_cache / "cuda").glob("building-*"))


@pytest.mark.gpu
def test_gpu_a_lock_file_of_torch_is_not_waited_for(gpu, own_cache):
    left = own_cache / "cuda" / "building-left"
    left.mkdir(parents=True)
    (left / "lock").touch()
    assert works(jit.load(SOURCE), device="cuda")


@pytest.mark.gpu
def test_gpu_wrong_arguments(gpu):
    module = jit.load(SOURCE)
    x = torch.zeros(8, device=gpu)
    with pytest.raises(TypeError, match="'out' must be on cuda:0 like 'x', got cpu"):
        module.scale_f32(x, torch.zeros(8), 8)
    with pytest.raises(TypeError, match="'out' must be on cpu like 'x', got cuda:0"):
        module.scale_f32(torch.zeros(8), x, 8)
    with pytest.raises(TypeError, match="must be on the CPU in checked mode, got cuda:0"):
        jit.load(SOURCE, checked=True).scale_f32(x, x, 8)
    with pytest.raises(KernelError, match=r"returned cudaErrorInvalid(Configuration|Value)"):
        module.scale_f32(x, x, 0)
    assert works(module, device="cuda")  # that error was no lasting one


@pytest.mark.gpu
def test_gpu_a_compile_error_is_told_in_the_learners_lines(gpu):
    module = jit.load(SOURCE.replace("x[i]", "y[i]"), name="lesson.cu")
    with pytest.raises(CompileError, match=r'^lesson\.cu\(7\): error: identifier "y" is undefined'):
        works(module, device="cuda")


@pytest.mark.gpu
def test_gpu_a_crash_is_told_by_a_later_call(gpu):
    code = (
        "import sys, torch; from yaie.build import jit\n"
        "module = jit.load(sys.argv[1])\n"
        "x = torch.zeros(8, device='cuda')\n"
        "module.scale_f32(None, x, 8)\n"
        "try: torch.cuda.synchronize()\n"
        "except RuntimeError: pass\n"
        "try: module.scale_f32(x, x, 8)\n"
        "except jit.KernelError as error: print(error)\n"
    )
    command = [sys.executable, "-c", code, SOURCE]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout.startswith(
        "scale_f32 returned cudaErrorIllegalAddress (700): it may be an earlier kernel's"
    ), done.stderr


@pytest.mark.gpu
def test_gpu_the_current_stream_and_graphs(gpu):
    module = jit.load(SOURCE)
    x, out = torch.ones(1 << 20, device=gpu), torch.zeros(1 << 20, device=gpu)
    _, replay = captured(lambda: module.scale_f32(x, out, x.numel()))
    out.zero_()
    replay()
    assert (out == 2).all()


@pytest.mark.gpu
def test_gpu_what_was_built_ahead_is_used(gpu, own_cache):
    capability = torch.cuda.get_device_capability()
    said: list[str] = []
    wanted = nvcc.architectures_of(capability)
    assert SETUP["build_all"](wanted, said.append) == 0
    assert all(line.startswith("compiled ") for line in said), said
    module = jit.load("elementwise/vector_add.cu")
    x, y = torch.randn(1000, device=gpu), torch.randn(1000, device=gpu)
    out = torch.empty_like(x)
    getattr(module, next(n for n in module.launchers if n.endswith("_f32")))(x, y, out, 1000)
    assert torch.equal(out, x + y)
    assert not (own_cache / "cuda").exists()  # nothing was compiled
    again: list[str] = []
    assert SETUP["build_all"](wanted, again.append) == 0
    assert all(line.endswith(": up to date") for line in again), again
