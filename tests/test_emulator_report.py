"""What checked mode counts, against the hardware's rules, and how it is told and drawn."""

import random
import re

import pytest
import torch

from yaie.course.author.gpu import agreement
from yaie.course.viz.memory import draw_access, draw_banks, draw_sectors
from yaie.emulator.checks import LIMITS, Report
from yaie.emulator.compiler import CompileError
from yaie.emulator.launch import Module
from yaie.emulator.runtime import settings

SOURCE = agreement.HERE / "counters.cu"


@pytest.fixture(scope="module")
def kernels():
    return agreement.load("counters")


def line_of(text: str) -> int:
    rows = SOURCE.read_text().splitlines()
    return 1 + next(i for i, row in enumerate(rows) if text in row)


def run(kernels, name: str, number: int, elements: int = 4096):
    x = torch.randn(elements)
    out = torch.zeros(elements)
    getattr(kernels, f"run_{name}")(x, out, number)
    assert kernels.report.clean, kernels.report
    return kernels.report


def test_accesses_are_counted_when_they_are_asked_for():
    counted = []
    report = Report([], lambda: counted.append(1) or [])
    assert report.clean and not counted
    assert report.accesses == report.accesses == [] and counted == [1]


@pytest.mark.parametrize("name", ["transpose_32", "transpose_naive"])
def test_a_launcher_compiled_apart_reports_the_same(kernels, name):
    source = f"{kernels.source}// no newline follows \\"
    apart = Module(source, SOURCE, checked=True, apart=True)
    assert str(run(apart, name, 64)) == str(run(kernels, name, 64))
    assert list(apart._libraries) == [f"run_{name}"], "only this one was compiled"


INSTANCES = """
#include <cstdio>
#include <cuda_runtime.h>
template <int N> __device__ __noinline__ void add_to(float* x) { x[threadIdx.x] += N; }
template <int N> __global__ void add(float* x) { add_to<N>(x); }
template <int N> cudaError_t add_twice(float* x, cudaStream_t stream) {
    add<N><<<1, 32, 0, stream>>>(x);
    auto kernel = add<10 * N>;
    kernel<<<1, 32, 0, stream>>>(x);
    cudaError_t error = cudaGetLastError();
    if (error != cudaSuccess) fprintf(stderr, "add: error %d\\n", error);
    return error;
}
extern "C" cudaError_t add_f32(float* x, int n, cudaStream_t stream) {
    if (n == 1) return add_twice<1>(x, stream);
    return n == 2 ? add_twice<2>(x, stream) : add_twice<3>(x, stream);
}
"""


def test_only_the_instances_that_are_launched_are_compiled(tmp_path, capfd) -> None:
    """With n = 2 the second launch is missing after the first has run, so tensors are restored, and
    the launcher sees no error. A launch by pointer is told apart as well."""

    def compiled() -> set[int]:
        text = module._libraries["add_f32"].built.path.read_bytes()
        return {n for n in (1, 2, 3, 10, 20, 30) if b"_Z6add_toILi%dEEvPf" % n in text}

    def added(n: int) -> tuple[float, set[int]]:
        x = torch.zeros(32)
        module.add_f32(x, n)
        assert module.report.clean and bool((x == x[0]).all())
        return float(x[0]), compiled()

    module = Module(INSTANCES, tmp_path / "all.cu", checked=True, apart=True)
    assert added(1) == (11, {1, 2, 3, 10, 20, 30}), "no module has called this launcher yet"
    module = Module(INSTANCES, tmp_path / "some.cu", checked=True, apart=True)
    assert [added(1), added(2), added(1)] == [(11, {1, 10}), (22, {2, 20}), (11, {1, 10})]
    module = Module(INSTANCES, tmp_path / "named.cu", checked=True, apart=True)
    module.prepare("add_f32", "N = 3; N = 30")
    assert compiled() == {3, 30} and added(3) == (33, {3, 30}) and added(2) == (22, {2, 20})
    wrong = INSTANCES.replace("add_to<N>(x); }", "add_to<N>(x); static_assert(N != 30); }")
    with pytest.raises(CompileError, match="static assertion failed"):
        Module(wrong, tmp_path / "wrong.cu", checked=True, apart=True).add_f32(torch.zeros(32), 1)
    for variable in ("__device__ int kept = 0;", "static int calls;", "static float* room = 0;"):
        module = Module(INSTANCES + variable, tmp_path / "state.cu", checked=True, apart=True)
        assert added(1)[1] == {1, 2, 3, 10, 20, 30}, "libraries would not share the variable"
    assert capfd.readouterr().err == ""


def test_the_grid_is_that_of_the_last_launch(tmp_path) -> None:
    source = """#include <cuda_runtime.h>
__global__ void fill(float* x) { x[threadIdx.x] = 1; }
extern "C" cudaError_t one(float* x, int n, cudaStream_t stream) {
    if (n > 0) fill<<<dim3(n, 3), dim3(8, 4, 2), 0, stream>>>(x);
    return cudaGetLastError();
}
extern "C" cudaError_t two(float* x, int n, cudaStream_t stream) {
    one(x, n, stream);
    fill<<<1, n, 0, stream>>>(x);
    return cudaGetLastError();
}
"""
    module = Module(source, tmp_path / "grids.cu", checked=True)
    seen = []
    for name, n in (("one", 5), ("two", 5), ("one", 0)):
        getattr(module, name)(torch.zeros(32), n)
        seen.append(module.report.grid_shape)
    assert seen == [(15, 64), (1, 5), (0, 0)]


def test_barriers_are_counted_once_per_thread_block(tmp_path) -> None:
    source = """#include <cuda_runtime.h>
__global__ void wait(float* x, int n) {
    for (int i = 0; i < n; ++i) __syncthreads();
    x[threadIdx.x] = __syncthreads_count(1);
}
extern "C" cudaError_t waits(float* x, int n, cudaStream_t stream) {
    wait<<<1, 64, 0, stream>>>(x, n);
    wait<<<dim3(3, 2), 64, 0, stream>>>(x + 64, 2);
    return cudaGetLastError();
}
"""
    module = Module(source, tmp_path / "waits.cu", checked=True)
    seen = []
    for n in (5, 0):
        module.waits(torch.zeros(128), n)
        seen.append(module.report.num_barriers)
    assert seen == [6 + 6 * 3, 1 + 6 * 3]


@pytest.mark.parametrize(
    ("name", "number", "text", "memory", "kind", "cost"),
    [
        ("strided", 8, "in[threadIdx.x * stride]", "global", "load", (32, 4, 4)),
        ("shifted", 4, "out[threadIdx.x] = in[threadIdx.x];", "global", "load", (17, 16, 16)),
        ("broadcast", 0, "in[0]", "global", "load", (1, 1, 4)),
        ("transpose_naive", 64, "out[x * n + y]", "global", "store", (32, 4, 4)),
        ("transpose_naive", 64, "out[x * n + y]", "global", "load", (4, 4, 4)),
        ("transpose_32", 64, "out[y * n + x] = tile", "shared", "load", (32, 1, 4)),
        ("transpose_33", 64, "out[y * n + x] = tile", "shared", "load", (1, 1, 4)),
        ("transpose_33", 64, "tile[threadIdx.y][threadIdx.x] =", "shared", "store", (1, 1, 4)),
    ],
)
def test_what_an_access_costs_and_what_is_ideal(kernels, name, number, text, memory, kind, cost):
    """`test_emulator_agreement` compares the costs of all kernels with the hardware's."""
    access = run(kernels, name, number).line(line_of(text)).access(memory, kind)
    assert (access.per_request, access.ideal, access.size) == cost


def test_lanes_that_go_different_ways(kernels):
    report = run(kernels, "branches", 0)
    every_lane = report.line(line_of("sum += in[k * 32 + i];")).access("global")
    odd = report.line(line_of("if (i % 2) sum")).access("global")
    assert (every_lane.requests, every_lane.lanes, every_lane.per_request) == (4, 128, 4)
    assert (odd.requests, odd.lanes, odd.per_request) == (4, 64, 4)
    assert (odd.by_lanes, odd.first_lanes) == ({16: 4}, [0xAAAAAAAA] * 4)
    words = f"line {odd.line}, global load of in: 16 of 32 lanes active per request; 4 requests: "
    assert f"{words}4 with 16" in report.activity().splitlines()
    assert run(kernels, "transpose_32", 64).activity() == "every request has 32 active lanes"


def test_the_report_in_words(kernels):
    text = str(run(kernels, "transpose_naive", 64))
    assert text.startswith("no fault found")
    assert LIMITS in text
    row = next(r for r in text.splitlines() if "global store" in r)
    assert re.search(r"out +128 +32 sectors +4\*", row)
    with pytest.raises(ValueError, match="line 1 touches no memory; lines that do: "):
        kernels.report.line(1)
    with pytest.raises(ValueError, match="no access in shared memory"):
        kernels.report.line(line_of("out[x * n + y]")).access("shared")


def test_the_message_of_an_access_out_of_bounds(kernels):
    x, out = torch.randn(200), torch.zeros(32)
    kernels.run_strided(x, out, 8)
    (found,) = kernels.report.out_of_bounds
    assert (found.thread, found.thread_block, found.count) == ((25, 0, 0), (0, 0, 0), 7)
    assert found.message == (
        f"line {line_of('in[threadIdx.x * stride]')}: a load of 4 bytes, 0 bytes past the end of "
        "in (800 bytes); thread block (0, 0, 0), thread (25, 0, 0) (7 times)"
    )
    assert torch.equal(out[:25], x[::8])
    assert not out[25:].any()  # those threads ended before they did harm


RACES = """
constexpr int TILE = 8, PAD = 4;
template <typename T>
__global__ void f(const T* x, T* out) {
    __shared__ T tile[TILE][TILE + PAD / sizeof(T)];
    __shared__ float one[4], rows[2][64];
    int column = threadIdx.x % TILE, row = threadIdx.x / TILE;
    tile[row][column] = x[threadIdx.x];
    out[threadIdx.x] = tile[column][row];
    rows[1][threadIdx.x] = 1;
    out[threadIdx.x] = rows[1][63 - threadIdx.x];
    one[0] = threadIdx.x;
}
__global__ void g(const float* x, float* out) {
    extern __shared__ float sums[];
    if (threadIdx.x < 33) atomicAdd(&sums[threadIdx.x], 1.0f);
    out[threadIdx.x] = sums[threadIdx.x / 2 + 2];
}
extern "C" cudaError_t run(const float* x, float* out, cudaStream_t stream) {
    f<float><<<1, 64, 0, stream>>>(x, out);
    return cudaGetLastError();
}
extern "C" cudaError_t blocks(const float* x, float* out, cudaStream_t stream) {
    g<<<2, 64, 1024, stream>>>(x, out);
    return cudaGetLastError();
}
"""


def test_races_in_words(tmp_path):
    """Lines, threads, and the element as the file declares it."""
    kernels = Module(RACES, tmp_path / "mine.cu", checked=True)
    x, out = torch.zeros(64), torch.zeros(64)
    no_barrier = "and no barrier stands between the two"
    kernels.run(x, out)
    assert {finding.message for finding in kernels.report.races} == {
        f"In line 9 thread 1 reads tile[1][0], which thread 8 writes in line 8, {no_barrier} "
        "(28 times).",
        f"In line 11 thread 31 reads rows[1][32], which thread 32 writes in line 10, {no_barrier} "
        "(32 times).",
        "In line 12 thread 1 and thread 0 both write one[0] (63 times).",
    }
    with settings(cores=1):
        kernels.blocks(x, out)
    assert {finding.message for finding in kernels.report.races} == {
        f"In line 17 thread 0 reads sums[2], which thread 2 changes atomically in line 16, "
        f"{no_barrier} (4 times).",
        "In line 17 thread 0 of thread block 1 and thread 0 of thread block 0 both write out[0] "
        "(64 times).",
    }


def test_pictures(kernels):
    report = run(kernels, "transpose_32", 64)
    for access in report.accesses:
        assert draw_access(access)._repr_png_()[0].startswith(b"\x89PNG")
    store = run(kernels, "transpose_naive", 64).line(line_of("out[x * n + y]"))
    texts = [t.get_text() for t in draw_access(store.access("global")).axes[0].texts]
    assert "32 sectors of 32 bytes for 128 bytes that are used" in texts


@pytest.mark.parametrize("seed", range(3))
def test_pictures_of_anything(seed):
    rng = random.Random(seed)
    lanes = rng.sample(range(32), rng.randint(1, 32))
    size = rng.choice([1, 2, 4, 8, 16])
    offsets = {lane: rng.randrange(4096) * size for lane in lanes}
    draw_sectors(offsets, size)
    draw_banks(offsets, size)
    with pytest.raises(ValueError, match="offsets must have lanes"):
        draw_sectors({}, 4)
    with pytest.raises(ValueError, match="size must be from 1 to 16"):
        draw_banks(offsets, 32)


def test_lines_of_a_header_are_told_as_such(tmp_path):
    """A function of a header that is not inlined: its lines are not the source's."""
    (tmp_path / "parts.cuh").write_text(
        "#pragma once\n#include <cuda_runtime.h>\n"
        "__device__ __noinline__ void put(float* out, int i) {\n    out[i] = i;\n}\n"
    )
    source = (
        '#include "parts.cuh"\n\n\n// not this line\n'
        "__global__ void f(float* out) { put(out, threadIdx.x); }\n"
        'extern "C" cudaError_t run(float* out, cudaStream_t stream) {\n'
        "    f<<<1, 32, 0, stream>>>(out);\n    return cudaGetLastError();\n}\n"
    )
    module = Module(source, tmp_path / "mine.cu", checked=True)
    module.run(torch.zeros(20))
    (access,) = module.report.accesses
    assert (access.line, access.header) == (4, "parts.cuh")
    assert "(of parts.cuh)" in module.report.table()
    assert "not this line" not in str(module.report)
    assert str(module.report.out_of_bounds[0]).startswith("line 4 of parts.cuh: a store of 4 bytes")
    with pytest.raises(ValueError, match=r"line 4 touches no memory; lines that do: \[\]"):
        module.report.line(4)
