"""What the emulator and the way to it cost, beside what they may cost.

Each figure is the least of several rounds: what else the machine does can only add to it. What
runs on one core is measured in CPU time. The compilers are timed in processes of their own, from an
empty cache and from a full one, without the time that Python takes to import torch.
"""

import os
import platform
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Callable
from dataclasses import dataclass

import torch
from rich.console import Console
from rich.table import Table

from yaie import emulator
from yaie.bench.machine import processor
from yaie.build import jit
from yaie.emulator.compiler import compiler_version

SOURCE = r"""#include <cuda_runtime.h>

__global__ void empty() {}

__global__ void barriers(int times) {
    for (int i = 0; i < times; ++i) __syncthreads();
}

__global__ void shuffles(int* out, int times) {
    int value = threadIdx.x;
    for (int i = 0; i < times; ++i) value += __shfl_xor_sync(0xffffffffu, value, 1);
    out[threadIdx.x] = value;
}

__global__ void copy(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i];
}

constexpr int TILE = 16;

__global__ void matmul(const float* a, const float* b, float* c, int n) {
    __shared__ float a_tile[TILE][TILE], b_tile[TILE][TILE];
    int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
    float sum = 0;
    for (int k = 0; k < n; k += TILE) {
        a_tile[threadIdx.y][threadIdx.x] = a[row * n + k + threadIdx.x];
        b_tile[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * n + column];
        __syncthreads();
        for (int i = 0; i < TILE; ++i) sum += a_tile[threadIdx.y][i] * b_tile[i][threadIdx.x];
        __syncthreads();
    }
    c[row * n + column] = sum;
}

extern "C" cudaError_t run_empty(cudaStream_t stream) {
    empty<<<1, 1, 0, stream>>>();
    return cudaGetLastError();
}
extern "C" cudaError_t run_on(const int* nothing, cudaStream_t stream) {
    empty<<<1, 1, 0, stream>>>();
    return cudaGetLastError();
}
extern "C" cudaError_t run_barriers(int times, cudaStream_t stream) {
    barriers<<<1, 256, 0, stream>>>(times);
    return cudaGetLastError();
}
extern "C" cudaError_t run_shuffles(int* out, int times, cudaStream_t stream) {
    shuffles<<<1, 256, 0, stream>>>(out, times);
    return cudaGetLastError();
}
extern "C" cudaError_t run_copy(const float* x, float* out, int n, cudaStream_t stream) {
    copy<<<n / 256 + 1, 256, 0, stream>>>(x, out, n);
    return cudaGetLastError();
}
extern "C" cudaError_t run_matmul(const float* a, const float* b, float* c, int n,
                                  cudaStream_t stream) {
    matmul<<<dim3(n / TILE, n / TILE), dim3(TILE, TILE), 0, stream>>>(a, b, c, n);
    return cudaGetLastError();
}
"""

THREADS = 256
N = 256  # of the matrix product

# Loads a kernel and calls it once; prints the seconds from one to the other.
CHILD = """
import sys, time, torch
from yaie.build import jit
from yaie.bench.jit import SOURCE
nothing = torch.zeros(1, dtype=torch.int32, device=sys.argv[1])
begun = time.perf_counter()
jit.load(SOURCE, checked=len(sys.argv) > 2).run_on(nothing)
print(time.perf_counter() - begun)
"""


@dataclass(frozen=True)
class Figure:
    """A measured figure and the most it should be; None: no target."""

    name: str
    value: float
    unit: str
    target: float | None = None


def run(rounds: int = 5) -> list[Figure]:
    """Measure, print a table with the targets, and return the figures."""
    if rounds < 1:
        raise ValueError(f"rounds must be 1 or more, got {rounds}")
    print("kernels are compiled again and again: this takes a minute or two ...", flush=True)
    on_gpu = torch.cuda.is_available()
    figures = [*_compiling("cpu", rounds), *_emulating(rounds)]
    if on_gpu:
        figures += [*_compiling("cuda", rounds), _launching(rounds)]
    table = Table("", title="From a .cu file to its result", title_justify="left")
    for name in ("measured", "target"):
        table.add_column(name, justify="right")
    for f in figures:
        most = "" if f.target is None else f"≤ {f.target:g} {f.unit}"
        table.add_row(f.name, f"{f.value:.3g} {f.unit}", most)
    console = Console()
    console.print(table)
    gpu = f", {torch.cuda.get_device_name()}" if on_gpu else ""
    cores = len(os.sched_getaffinity(0))
    console.print(
        f"least of {rounds} rounds; {processor()}, {cores} cores{gpu}; {compiler_version()}; "
        f"Python {platform.python_version()}, torch {torch.__version__}",
        soft_wrap=True,
    )
    return figures


def _compiling(device: str, rounds: int) -> list[Figure]:
    """The first call of a kernel: from an empty cache, from a full one, and in checked mode."""
    cold, kept, checked = [], [], []
    for number in range(1, min(rounds, 3) + 1):
        print(f"compiling for {device}, round {number}", flush=True)
        with tempfile.TemporaryDirectory() as cache:
            cold.append(_first_call(device, cache))
            kept.append(_first_call(device, cache))
        if device == "cpu":
            with tempfile.TemporaryDirectory() as cache:
                checked.append(_first_call(device, cache, "checked"))
    of, most = ("GPU: ", 3.0) if device == "cuda" else ("", 1.5)
    figures = [
        Figure(f"{of}first kernel, from an empty cache", min(cold), "s", most),
        Figure(f"{of}first kernel, kept", min(kept), "s", 0.1),
    ]
    if checked:
        figures.append(Figure("from an empty cache in checked mode", min(checked), "s"))
    return figures


def _first_call(device: str, cache: str, *options: str) -> float:
    done = subprocess.run(
        [sys.executable, "-c", CHILD, device, *options],
        env={**os.environ, "YAIE_CACHE": cache},
        stdout=subprocess.PIPE,  # stderr goes to the terminal, with any error
        text=True,
        check=True,
    )
    return float(done.stdout)


def _emulating(rounds: int) -> list[Figure]:
    """What the emulator takes for what GPUs have in hardware."""
    kernels, checked = jit.load(SOURCE), jit.load(SOURCE, checked=True)
    out, times = torch.zeros(THREADS, dtype=torch.int32), 2000
    x, y = torch.ones(1 << 16), torch.zeros(1 << 16)
    a, b, c = torch.randn(N, N), torch.randn(N, N), torch.zeros(N, N)

    def least(function: Callable[[], None], rounds: int = rounds, timer=time.thread_time) -> float:
        function()
        return min(timeit.repeat(function, timer=timer, repeat=rounds, number=1))

    def per_thread(launch: Callable[[int], None]) -> float:
        """Nanoseconds per thread and repetition, without what the launch itself takes."""
        much = least(lambda: launch(times))
        return (much - least(lambda: launch(0))) / (times * THREADS) * 1e9

    with emulator.settings(cores=1):
        barrier = per_thread(kernels.run_barriers)
        shuffle = per_thread(lambda n: kernels.run_shuffles(out, n))
        many = least(lambda: checked.run_copy(x, y, x.numel()))
        few = least(lambda: checked.run_copy(x, y, 0))
    product = least(lambda: kernels.run_matmul(a, b, c, N), 5 * rounds, time.perf_counter)
    torch.testing.assert_close(c, a @ b, atol=1e-3, rtol=1e-4)
    return [
        Figure("an empty launch, from Python", least(kernels.run_empty, 1000) * 1e6, "µs"),
        Figure("a barrier, per thread", barrier, "ns", 15.0),
        Figure("a shuffle, per thread", shuffle, "ns"),
        Figure("a checked access", (many - few) / (2 * x.numel()) * 1e9, "ns", 60.0),
        Figure(f"tiled matrix product, {N}³", product * 1e3, "ms", 60.0),
    ]


def _launching(rounds: int) -> Figure:
    """What a launch takes of the host's time."""
    kernels, times = jit.load(SOURCE), 200
    nothing = torch.zeros(1, dtype=torch.int32, device="cuda")
    kernels.run_on(nothing)
    found = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        found.append(timeit.timeit(lambda: kernels.run_on(nothing), number=times) / times)
    return Figure("GPU: an empty launch, from Python", min(found) * 1e6, "µs")
