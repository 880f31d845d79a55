"""What C++ leaves undefined and a GPU does not, and what nvcc refuses."""

import math
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from emulated import launcher, together, with_launchers

from yaie.emulator import CompileError, Module, settings
from yaie.emulator.rewrite import rewrite

SOURCE = Path(__file__).parent / "emulator" / "meaning.cu"
HEAD = "#include <cuda_runtime.h>\n#include <vector>\n#include <algorithm>\n"
VALUES = [0.0, -0.0, 1.5, -1.5, 2.5, -0.5, 127.0, 300.7, -200.2, 70000.0, 2.0**31, -(2.0**31)]
VALUES += [2.0**31 - 128, 2.0**32, 3e9, -3e9, 2.0**63, -(2.0**63), 2.0**64, 1e30, -1e30]
VALUES += [math.inf, -math.inf, math.nan]


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "checked"])
def kernels(request):
    return Module(with_launchers(SOURCE.read_text()), SOURCE, checked=request.param)


def saturated(value: float, bits: int, signed: bool, narrow: bool = True) -> int:
    """As the PTX manual says of cvt.rzi; `narrow`: from 32 bits or fewer."""
    if math.isnan(value):
        code = 0 if narrow and bits == 32 else 1 << bits - 1
        return code - (1 << bits) if signed and code else code
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    if math.isinf(value):
        return high if value > 0 else low
    return max(low, min(high, int(value)))


def wrapped(value: int, bits: int, signed: bool = True) -> int:
    value %= 1 << bits
    return value - (1 << bits) if signed and value >> bits - 1 else value


def converted(x: float, narrow: bool) -> list[int]:
    whole = saturated(x, 32, True, narrow)
    return [
        whole,
        saturated(x, 32, False, narrow),
        saturated(x, 64, True, narrow),
        wrapped(saturated(x, 64, False, narrow), 64),
        wrapped(whole, 16),
        wrapped(saturated(x, 32, False, narrow), 8, signed=False),
        wrapped(whole - 1, 32),
        int(saturated(-x, 32, True, narrow) / 2),
    ]


def test_casts_saturate(kernels):
    x, y = torch.tensor(VALUES), torch.tensor(VALUES, dtype=torch.float64)
    out, wide = (torch.zeros(len(VALUES), 8, dtype=torch.int64) for _ in range(2))
    kernels.run_casts(x, y, out, wide, len(VALUES))
    for value, narrow, double in zip(x.tolist(), out.tolist(), wide.tolist(), strict=True):
        assert narrow == converted(value, True), value
        assert double == converted(value, False), value
    assert kernels.report is None or kernels.report.clean, kernels.report


def test_intrinsics_saturate(kernels):
    x, y = torch.tensor(VALUES), torch.tensor(VALUES, dtype=torch.float64)
    out = torch.zeros(len(VALUES), 16, dtype=torch.int64)
    kernels.run_rounded(x, y, x.half(), out, len(VALUES))

    def rounded(value: float, way) -> float:
        return way(value) if math.isfinite(value) else value

    for i, row in enumerate(out.tolist()):
        f, d, h = x[i].item(), y[i].item(), x.half()[i].item()
        assert row[:4] == [
            saturated(rounded(f, way), 32, True) for way in (round, int, math.floor, math.ceil)
        ]
        assert row[4:8] == [
            saturated(rounded(f, round), 32, False),
            saturated(f, 32, False),
            saturated(rounded(f, math.floor), 64, True),
            wrapped(saturated(rounded(f, math.ceil), 64, False), 64),
        ]
        assert row[8:12] == [
            saturated(rounded(d, round), 32, True, False),
            saturated(d, 32, False, False),
            saturated(rounded(d, round), 64, True, False),
            wrapped(saturated(rounded(d, math.floor), 64, False, False), 64),
        ]
        assert row[12:15] == [
            saturated(rounded(h, round), 32, True),
            saturated(h, 32, True),
            saturated(h, 32, False),
        ]
    assert kernels.report is None or kernels.report.clean, kernels.report


def test_code_for_the_device_is_compiled(kernels):
    out = torch.zeros(2, dtype=torch.int32)
    kernels.run_macros(out)
    assert out.tolist() == [800, 1]


UNDEFINED = """// <<<1, 4, 0>>>
__global__ void f(const float* x, const int* by, int* out, unsigned long long* wide) {
    int i = threadIdx.x;
    int rounded = floorf(x[i]);
    out[i] = rounded;
    out[4 + i] = 3 << by[i];
    unsigned j = out[i];
    out[8 + i] = j >> (by[i] + 1);
    wide[i] = 1ull << (by[i] * 2);
}
"""


@pytest.mark.parametrize("order", ["forward", "reverse", "random"])
def test_what_c_leaves_undefined_is_reported(tmp_path, order):
    module = Module(with_launchers(HEAD + UNDEFINED), tmp_path / "mine.cu", checked=True)
    x, by = torch.tensor([1.5, -2.5, 3.0, 4.0]), torch.tensor([0, 1, 30, 1], dtype=torch.int32)
    out, wide = torch.zeros(12, dtype=torch.int32), torch.zeros(4, dtype=torch.int64)
    with settings(order=order, seed=2):
        module.run_f(x, by, out, wide)
        assert module.report.clean, module.report
        assert out[:4].tolist() == [1, -3, 3, 4]
        x[2], by[1] = 3e10, 32
        module.run_f(x, by, out, wide)
    found = {(finding.kind, finding.line): finding.message for finding in module.report.findings}
    assert set(found) == {("conversion", 7), ("shift", 9), ("shift", 11), ("shift", 12)}
    assert "line 7: converts 3e+10 to int, which does not fit" in found["conversion", 7]
    assert "line 9: shifts int of 32 bits by 32" in found["shift", 9]
    assert "shifts long long unsigned int of 64 bits by 64" in found["shift", 12]


REFUSED = {
    "atomicMax takes a pointer to int, unsigned int or unsigned long long or long long; there is "
    "none for float": "__global__ void k(float* x) {\n    atomicMax(x, 1.0f);\n}",
    "atomicAdd takes a pointer to int": "__global__ void k(long* x) {\n    atomicAdd(x, 1);\n}",
    "twice is a function of the host, which the kernel k cannot call: declare it __device__": (
        "float twice(float a) { return a; } __global__ void k(float* x) {\n    *x = twice(*x);\n}"
    ),
    "twice is a function of the host, which the device function g cannot call": (
        "template <class T> T twice(T a) { return 2 * a; } __device__ float g(float a) {\n"
        "    return twice(a);\n} __global__ void k(float* x) { *x = g(*x); }"
    ),
    "rand is a function of the host, which the kernel k cannot call: there is none on a GPU": (
        "__global__ void k(float* x) {\n    *x = rand();\n}"
    ),
    "std::vector is the host's, and the kernel k cannot use it": (
        "__global__ void k(float* x) {\n    std::vector<float> v(3);\n    *x = v[0];\n}"
    ),
    "the kernel k launches a kernel": (
        "__global__ void l(float* x) {} __global__ void k(float* x) {\n    l<<<1, 1>>>(x);\n}"
    ),
    "the kernel k writes table, which is __constant__": (
        "__constant__ float table[4]; __global__ void k(float* x) {\n    table[1] += *x;\n}"
    ),
    "the kernel k takes a reference": "\n__global__ void k(float*& x) { *x = 1; }",
    "the kernel k must return void": "\n__global__ int k(float* x) { return 1; }",
    "the __shared__ variable c cannot be initialized where it is declared": (
        "__global__ void k(float* x) {\n    __shared__ int c = 0;\n    *x = c;\n}"
    ),
    "the __shared__ variable d cannot be initialized": (
        "__global__ void k(float* x) {\n    __shared__ float d[2][3]{};\n    *x = d[0][0];\n}"
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_refused_as_by_nvcc(tmp_path, message):
    kernel = REFUSED[message]
    kind = "long*" if "long*" in kernel else "float*"
    call = "    k<<<1, 1, 0, stream>>>(x);"
    source = HEAD + kernel + "\n" + launcher("run", f"{kind} x", call)
    with pytest.raises((CompileError, SyntaxError)) as caught:
        Module(source, tmp_path / "mine.cu")
    assert message in str(caught.value)
    assert f"{tmp_path}/mine.cu:5:" in str(caught.value)


ACCEPTED = """#define BOTH __host__ __device__
BOTH inline float twice(float a) { return 2 * a; }
float half_of(float a) { return a / 2; }
__device__ float half_of(int a) { return a / 2.0f; }
float add(float a, float b) { return a + b; }
constexpr int four() { return 4; }
__constant__ float table[4];
template <class F, int N = four()>
__global__ void k(float* x, F add, const int n) {
    auto three = [](float a) { return 3 * a; };
    __shared__ float kept[N == 4 ? 2 : 1];
    kept[0] = table[0] == 1 ? 1 : 2;
    float table[1] = {kept[0]};
    *x = std::max(twice(three(half_of(n))), 1.0f) + add(1, 2) + table[0];
}
"""


def test_accepted_as_by_nvcc(tmp_path):
    call = "    k<<<1, 1, 0, stream>>>(x, [] __device__ (float a, float b) { return a * b; }, 3);"
    source = HEAD + ACCEPTED + launcher("run", "float* x", call)
    x = torch.zeros(1)
    Module(source, tmp_path / "mine.cu").run(x)
    assert x.item() == 9 + 2 + 2


@pytest.mark.skipif(not shutil.which("nvcc"), reason="needs nvcc")
def test_nvcc_compiles_the_same_sources(tmp_path):
    names = ("meaning", "cub", "atomics", "pipeline", "barriers")
    source = tmp_path / "all.cu"
    source.write_text(together(SOURCE.with_name(f"{name}.cu") for name in names))
    command = ["nvcc", "-arch=sm_80", "-std=c++17", "-cubin", source, "-o", tmp_path / "out"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert not done.returncode, done.stdout + done.stderr


def test_an_argument_that_a_macro_quotes_is_left_as_it_is():
    text = "#define CHECK(call) \\\n  report(#call, call)\nCHECK(f((int)x));\nint y = (int)z;\n"
    code = rewrite(text, Path("mine.cu")).code
    assert "CHECK(f((int)x));" in code and "y = ::emulator::cast<int>(z)" in code
