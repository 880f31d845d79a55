"""What is said of a launcher that is not found, and of a launch that is refused."""

import os
import shutil
import warnings

import pytest
import torch
from emulated import launcher
from warm import python

from yaie.build.jit import load
from yaie.emulator import KernelError, Module
from yaie.emulator.advice import no_launcher
from yaie.emulator.build import build_runtime
from yaie.emulator.compiler import CompileError

KERNEL = "__global__ void fill(float* x) { x[0] = 1; }\n"
BODY = "(float* x) {\n    fill<<<1, 1>>>(x);\n    return cudaGetLastError();\n}\n"
RULE = 'a launcher begins with extern "C" cudaError_t {}(...) {{'.format


@pytest.mark.parametrize(
    ("source", "name", "said"),
    [
        (f"cudaError_t go{BODY}", "go", f'go is there, but without extern "C"; {RULE("go")}'),
        (f"cudaError_t go{BODY}", "", f'go is there, but without extern "C"; {RULE("go")}'),
        (f'extern "C" void go{BODY}', "go", f"go is there, but returns void; {RULE('go')}"),
        (f'extern "C" void go{BODY}', "", f"go is there, but returns void; {RULE('go')}"),
        (f'extern "C" {{\nvoid go{BODY}}}', "go", f"go is there, but returns void; {RULE('go')}"),
        (
            "#define MAKE(name) extern...\nMAKE(go)\n",
            "go",
            f"go is there, but not written out, as when a macro makes it; {RULE('go')}",
        ),
        (
            "",
            "fill",
            f"fill is a kernel, and Python calls what launches it; {RULE('name')}",
        ),
        ("", "", RULE("name")),
        (
            '#define MAKE(name) extern "C" cudaError_t name(float* x) {}\nMAKE(go)\n',
            "",
            RULE("name"),
        ),
        ("// go\n", "go", ""),
    ],
)
def test_why_there_is_no_launcher(source, name, said):
    there = f" {name!r}, but " if name else ""
    assert no_launcher(KERNEL + source, name) == f"has no launcher{there}{': ' * bool(said)}{said}"


def test_a_source_without_text_is_refused():
    with pytest.raises(FileNotFoundError, match="no file '', neither here nor in"):
        load("")
    with pytest.raises(ValueError, match='go is there, but without extern "C"'):
        load(f"{KERNEL}cudaError_t go{BODY}")


SOURCE = """__global__ void fill(float* x) { x[0] = 1; }
extern "C" cudaError_t go(float* x, int gx, int gy, int bx, int bz, int bytes) {
    fill<<<dim3(gx, gy), dim3(bx, 1, bz), bytes>>>(x);
    return cudaGetLastError();
}
extern "C" cudaError_t forgets(float* x) {
    fill<<<1, 2000>>>(x);
    return cudaSuccess;
}
extern "C" cudaError_t tries_again(float* x) {
    fill<<<1, 2000>>>(x);
    if (cudaGetLastError() != cudaSuccess) fill<<<1, 1>>>(x);
    return cudaGetLastError();
}
extern "C" cudaError_t asks(float* x, int bytes) {
    cudaError_t error =
        cudaFuncSetAttribute(fill, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (error != cudaSuccess) return error;
    fill<<<1, 1, bytes + 1>>>(x);
    return cudaGetLastError();
}
"""
REFUSED = [
    ("go", (1, 1, 1025, 1, 0), 3, "1025 threads per thread block, at most 1024 are allowed"),
    ("go", (1, 1, 0, 1, 0), 3, "a thread block needs threads"),
    ("go", (1, 1, 1, 65, 0), 3, "blockDim.z is 65, at most 64"),
    ("go", (0, 1, 1, 1, 0), 3, "a grid needs thread blocks"),
    ("go", (1, 70000, 1, 1, 0), 3, "gridDim.y is 70000, at most 65535"),
    ("go", (1, 1, 1, 1, 60000), 3, "60000 bytes of dynamic shared memory, 49152 are allowed"),
    ("asks", (100000,), 19, "100001 bytes of dynamic shared memory, 100000 are allowed"),
    ("asks", (300000,), 17, "asks for 300000 bytes of dynamic shared memory for fill, at most"),
]


@pytest.mark.parametrize("checked", [False, True], ids=["plain", "checked"])
def test_a_refused_launch_says_which_number_is_wrong(tmp_path, checked):
    module, x = Module(SOURCE, tmp_path / "mine.cu", checked), torch.zeros(1)
    for name, arguments, line, said in REFUSED:
        with pytest.raises(KernelError) as caught:
            getattr(module, name)(x, *arguments)
        assert f"{name} returned cuda" in str(caught.value)
        assert f"line {line}: " in str(caught.value) and said in str(caught.value)
    module.forgets(x)
    assert x.item() == 0
    if checked:
        (finding,) = module.report.of_kind("refused")
        assert finding.message.startswith("line 7: fill<<<(1, 1, 1), (2000, 1, 1), 0>>> is refused")
    module.tries_again(x)
    assert x.item() == 1 and (not checked or module.report.clean)


# Prints what comes of each source; the folder is the only one in which a compiler is looked for.
WITHOUT = """
import os, sys
os.environ.pop("CXX", None)
os.environ["PATH"], *sources = sys.argv[1:]
import torch
from yaie.build.jit import CompileError, load
x = torch.zeros(1)
for source in sources:
    try:
        load(source).go(x, 1, 1, 1, 1, 0)
        print("ran", x.item())
    except CompileError as error:
        print(error)
"""


def come_of(path, *sources: str) -> list[str]:
    done = python(WITHOUT, path, *sources)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_kept_build_needs_no_compiler(tmp_path, monkeypatch):
    runtime, mine = build_runtime("core"), tmp_path / "cache"
    monkeypatch.setenv("YAIE_CACHE", str(mine))
    (missing,) = come_of(tmp_path, SOURCE)
    assert missing.startswith("no C++ compiler: install g++")
    (mine / "emulator").mkdir(parents=True)
    shutil.copy(runtime, mine / "emulator")
    assert come_of(os.environ["PATH"], SOURCE) == ["ran 1.0"]

    new = SOURCE + "// new"
    assert come_of(tmp_path, SOURCE, new) == ["ran 1.0", missing]
    broken = tmp_path / "g++"
    broken.write_text("#!/bin/sh\necho 'cannot execute cc1plus' >&2; exit 1\n")
    broken.chmod(0o755)
    said = "g++ --version fails: cannot execute cc1plus"
    assert come_of(tmp_path, SOURCE) == ["ran 1.0"]
    (mine / "compiler.txt").unlink()
    assert come_of(tmp_path, SOURCE) == [said]
    broken.write_text("#!/bin/sh\n[ $1 = --version ] && echo 'g++ 99' || exit 3\n")
    assert come_of(tmp_path, SOURCE) == ["g++ ended with status 3 and said nothing"]


WARNED = """template <typename T>
__global__ void countdown(T* x, int n) {
    for (unsigned i = n - 1; i >= 0; --i) x[i % 8] = 1;
    if (n = 3) x[0] = 2;
    x[1] == 5;
}
extern "C" cudaError_t go(float* x, int* y, int n) {
    countdown<<<1, 1>>>(x, n);
    countdown<<<1, 1>>>(y, n);
    return cudaGetLastError();
}
"""


@pytest.mark.parametrize("checked", [False, True], ids=["plain", "checked"])
def test_what_the_compiler_warns_of_is_told_once_and_again_of_a_kept_build(tmp_path, checked):
    path = tmp_path / "warned.cu"
    for _ in range(2):
        with pytest.warns(UserWarning) as told:
            Module(WARNED, path, checked)
        assert [(w.filename, w.lineno) for w in told] == [(str(path), line) for line in (3, 4, 5)]
        said = "comparison of unsigned expression in '>= 0' is always true"
        assert str(told[0].message) == said
    right = (
        WARNED.replace("i >= 0", "i < 8").replace("n = 3", "n == 3").replace("x[1] ==", "x[1] =")
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Module(right, path, checked)


def test_an_error_is_told_without_warnings(tmp_path):
    with pytest.raises(CompileError) as error:
        Module(WARNED.replace("x[0] = 2", "x[0] = y"), tmp_path / "warned.cu")
    assert "'y' was not declared" in str(error.value) and "warning" not in str(error.value)


ROWS = """constexpr int COLUMNS = 17;
__global__ void row(const float* x, float* out) {
    __shared__ float s[4][COLUMNS];
    s[0][threadIdx.x] = x[threadIdx.x];
    out[threadIdx.x] = s[0][threadIdx.x + 14];
}
extern "C" cudaError_t rows(const float* x, float* out) {
    row<<<1, 4>>>(x, out);
    return cudaGetLastError();
}
"""


def test_an_index_past_a_row_is_told_as_the_line_writes_it(tmp_path):
    """`test_emulator_planted` has the messages of the other kinds of faults."""
    module = Module(ROWS, tmp_path / "told.cu", checked=True)
    module.rows(torch.ones(32), torch.zeros(32))
    said = "line 5: s[0][threadIdx.x + 14] with the index 17, where 0 to 16 are allowed"
    assert any(finding.message.startswith(said) for finding in module.report.findings)


KEEPS = """__device__ const float* kept;
__global__ void keep(const float* x, float* out, int which) {
    if (which == 0) kept = x;
    if (which == 2) out[0] = kept[1];
}
"""


@pytest.mark.parametrize("calls_between", [0, 1, 4])
def test_a_pointer_that_was_kept_from_an_earlier_call_leads_nowhere(tmp_path, calls_between):
    text = KEEPS + launcher(
        "run", "const float* x, float* out, int which", "    keep<<<1, 1>>>(x, out, which);"
    )
    module = Module(text, tmp_path / "keeps.cu", checked=True)
    for which in [0, *[1] * calls_between]:
        module.run(torch.ones(32), torch.zeros(32), which)
        assert module.report.clean
    module.run(torch.ones(32), torch.zeros(32), 2)
    (found,) = module.report.findings
    assert found.message.startswith("line 4: a load of 4 bytes outside every argument"), found
