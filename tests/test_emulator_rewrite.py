"""From CUDA C++ to C++: what is replaced, what is left alone, and that lines stay lines."""

import mmap
from pathlib import Path

import pytest
import torch

from yaie.course.lessons.changed import changed
from yaie.emulator import CompileError, KernelError, Module
from yaie.emulator.rewrite import rewrite
from yaie.emulator.signature import find_launchers

PATH = Path("mine.cu")


def body(source: str) -> str:
    code = rewrite(source, PATH).code
    return code.split('#line 1 "mine.cu"\n', 1)[1]


def call(kernel: str) -> str:
    return f"run([=](auto... emulator_arguments) {{ {kernel}(emulator_arguments...); }}"


@pytest.mark.parametrize(
    "launch, kernel, configuration, arguments",
    [
        ("f<<<1, 32>>>(x)", "f", "1, 32", ", x"),
        ("f <<< 1, 32 >>> (x)", "f ", " 1, 32 ", ", x"),
        ("f<<<g(1, 2), b[0], n * sizeof(float), s>>>()", "f", "g(1, 2), b[0], n * sizeof(float), s",
         ""),
        ("a::f<T, 4><<<1, 2>>>(x, y)", "a::f<T, 4>", "1, 2", ", x, y"),
        ("f<V<int>><<<(n >> 3), 1>>>(h(x, 1), y)", "f<V<int>>", "(n >> 3), 1", ", h(x, 1), y"),
    ],
)  # fmt: skip
def test_launches(launch, kernel, configuration, arguments):
    kernel = kernel.strip()
    assert body(f"{launch};") == (
        f"::emulator::configure(EMULATOR_NAME({kernel}), {configuration}).{call(kernel)}"
        f"{arguments});"
    )


@pytest.mark.parametrize("text", ["// f<<<1, 2>>>(x)\n", "/* f<<< */", 'p = "f<<<1>>>(x)";'])
def test_comments_and_strings_are_left_alone(text):
    assert body(text) == text


def test_a_launch_over_several_lines_keeps_them():
    source = "f<T,\n  4><<<dim3(1,\n 2),\n 3>>>(\n x,\n y);\nz;\n"
    assert body(source).count("\n") == source.count("\n")


@pytest.mark.parametrize("launch", ["f<<<1, 2(x);", "f<<<1, 2>>> x;", "<<<1, 2>>>(x);"])
def test_a_launch_that_is_none(launch):
    with pytest.raises(SyntaxError, match=r"mine\.cu:3: a kernel launch is written"):
        rewrite(f"\n\n{launch}", PATH)


def test_the_names_of_kernels():
    source = """
    template <int N> __global__ void __launch_bounds__(256, 2) one(int* p) {}
    __global__ __launch_bounds__(N * (2 + 2)) void two() {}
    static __global__ void three(float x) {}  // __global__ void four()
    """
    assert rewrite(source, PATH).kernels == ("one", "two", "three")


HEADER = "#pragma once\n#include <cuda_runtime.h>\nconstexpr int SIZE = 32;\n"
KERNEL = """#include "shared.cuh"
#include "shared.cuh"

__device__ __noinline__ float twice(float x) { return 2.0f * x; }

__global__ void reverse(const float* x, float* out, int n) {
    __shared__ alignas(16) float a[32], b[SIZE][2];
    volatile __shared__ float c[32];
    __shared__ int d, *e;
    extern __shared__ float4 f[];
    int i = threadIdx.x;
    if (i == 0) { d = n; e = &d; }
    a[i] = x[i]; b[i][1] = twice(x[i]); c[i] = x[i];
    f[i] = make_float4(x[i], 0.0f, 0.0f, 0.0f);
    __syncthreads();
    out[i] = a[31 - i] + b[31 - i][1] + c[31 - i] + f[31 - i].x + *e;
}
extern "C" cudaError_t run(const float* x, float* out, int n, cudaStream_t stream) {
    reverse<<<1, 32, 32 * sizeof(float4), stream>>>(x, out, n);
    return cudaGetLastError();
}
"""


@pytest.mark.parametrize("checked", [False, True])
def test_every_way_to_declare_shared_memory(tmp_path, checked):
    (tmp_path / "shared.cuh").write_text(HEADER)
    module = Module(KERNEL, tmp_path / "mine.cu", checked=checked)
    x, out = torch.randn(32), torch.zeros(32)
    module.run(x, out, 7)
    torch.testing.assert_close(out, 5 * x.flip(0) + 7)
    assert not checked or module.report.clean, module.report


FILL = """template <int N, bool B>
__global__ void fill(float* x) { x[threadIdx.x] = N + B; }
"""
FILLS = """#include <fill.h>
extern "C" cudaError_t run(float* x, cudaStream_t stream) {
    fill < 1 << 3, (2 > 1) > /* not <<< */ <<<1, 2, 0, stream>>>(x);
    launch(x + 2);
    return cudaGetLastError();
}
"""


def test_a_header_in_angle_brackets_that_is_beside_the_source(tmp_path):
    """It may launch kernels, and a build with what it said before is not taken again."""
    for value in (3, 4):
        launch = f"inline void launch(float* x) {{ fill<{value}, 0><<<1, 1>>>(x); }}\n"
        (tmp_path / "fill.h").write_text(FILL + launch)
        x = torch.zeros(3)
        Module(FILLS, tmp_path / "mine.cu").run(x)
        assert x.tolist() == [9, 9, value]


def test_lines_after_a_header_are_the_learners(tmp_path):
    (tmp_path / "shared.cuh").write_text(HEADER)
    wrong = KERNEL.replace("d = n;", "d = nothing;")
    with pytest.raises(CompileError, match=r"mine\.cu:12:23: error: .nothing. was not declared"):
        Module(wrong, tmp_path / "mine.cu")


def test_memory_that_is_only_read_may_be_read_only(tmp_path):
    source = KERNEL.replace("#include", "//").replace("SIZE", "32")
    module = Module("#include <cuda_runtime.h>\n" + source, tmp_path / "mine.cu", checked=True)
    (tmp_path / "weights").write_bytes(torch.ones(32).numpy().tobytes())
    with open(tmp_path / "weights", "rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        with pytest.warns(UserWarning, match="not writable"):
            x = torch.frombuffer(mapped, dtype=torch.float32)
        out = torch.zeros(32)
        module.run(x, out, 1)
        assert torch.equal(out, torch.full((32,), 6.0))
        del x


def test_signatures():
    found = find_launchers(KERNEL)["run"]
    assert [(p.name, p.kind, p.pointer, p.constant) for p in found.wanted] == [
        ("x", "float", True, True),
        ("out", "float", True, False),
        ("n", "int", False, False),
    ]
    with pytest.raises(TypeError, match="run: parameter 'd' has the type 'dim3 d'"):
        find_launchers('extern "C" cudaError_t run(dim3 d) {')


def test_what_is_added_to_a_source_moves_no_line(tmp_path):
    """Before a header that follows, which begins the count of lines again, and in a kernel."""
    (tmp_path / "x.cuh").write_text("#pragma once\n")
    head = '#include <cuda_runtime.h>\n#include "x.cuh"\n__global__ void stop() {\n'
    launcher = (
        'extern "C" cudaError_t run(cudaStream_t stream) {\n    stop<<<1, 1, 0, stream>>>();\n'
    )
    source = (
        f"{head}    int one = 1;\n    __trap();\n}}\n{launcher}    return cudaGetLastError();\n}}\n"
    )
    first, later = "#include <cuda_runtime.h>\n", "    int one = 1;\n"
    added = {first: f"{first}\n\n\n", later: f"{later}    ++one;\n    ++one;\n"}
    module = Module(changed(source, tmp_path / "x.cu", added), tmp_path / "x.cu")
    with pytest.raises(KernelError, match=r"line 5: __trap\(\) was called"):
        module.run()


F = "template <typename T>\n__global__ void f(T* x) {}\n"


@pytest.mark.parametrize("call", ["f(x);", "f<float>(x);", "if (x) f(x);"])
def test_a_kernel_that_is_called_as_a_function_is_refused(call: str) -> None:
    with pytest.raises(SyntaxError, match=r"mine.cu:4: f is a __global__ function.*f<<<"):
        rewrite(f"{F}void g(float* x) {{\n  {call}\n}}\n", PATH)


@pytest.mark.parametrize(
    "source",
    [
        "void g(float* x) { f<<<1, 1>>>(x); f<float><<<1, 1>>>(x); take(f<float>); }",
        "__device__ int f(int x) { return x; }\nvoid g() { f(1); }",
        "void g(int x) { auto f = [](int) {}; f(x); }",
        "void g(A a) { a.f(1); space::f(1); A f(1); }  // f(x);",
    ],
)
def test_names_that_mean_something_else_are_left_alone(source: str) -> None:
    rewrite(F + source, PATH)


def test_members_of_an_aligned_struct_are_no_local_variables():
    text = "typedef struct __align__(8) { float x, y; } pair;\n"
    assert text in rewrite(text, Path("mine.cu"), checked=True).code
