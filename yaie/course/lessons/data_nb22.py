"""What notebook 22 and the script that measured for it share: kernels with a planted fault."""

from __future__ import annotations

from functools import cache, partial

from yaie.build import nvcc
from yaie.course.core import paths
from yaie.course.lessons.ways import Way

kept = partial(paths.kept, "22_tools_h200")  # the record of `yaie.course.author.gpu.tools`

PLANTED = r"""#include <cuda_runtime.h>

__global__ void next_one(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i + 1];  // the last thread reads past the end
}

__global__ void sum_of_256(const float* x, float* out) {
    __shared__ float part[256];
    part[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    for (int half = 128; half > 0; half /= 2)  // and no barrier between two turns
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    if (threadIdx.x == 0) out[0] = part[0];
}

__global__ void add_to(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] += x[i];  // who wrote out before?
}

extern "C" cudaError_t out_of_bounds(const float* x, float* out, int n, cudaStream_t stream) {
    next_one<<<(n + 255) / 256, 256, 0, stream>>>(x, out, n);
    return cudaGetLastError();
}

extern "C" cudaError_t race(const float* x, float* out, int n, cudaStream_t stream) {
    sum_of_256<<<1, 256, 0, stream>>>(x, out);
    return cudaGetLastError();
}

extern "C" cudaError_t never_written(const float* x, float* out, int n, cudaStream_t stream) {
    add_to<<<(n + 255) / 256, 256, 0, stream>>>(x, out, n);
    return cudaGetLastError();
}
"""
FAULTS = {"out_of_bounds": "memcheck", "race": "racecheck", "never_written": "initcheck"}

CARDS = {
    "V100 (7.0)": (7, 0),
    "T4 (7.5)": (7, 5),
    "A100 (8.0)": (8, 0),
    "RTX 4090 (8.9)": (8, 9),
    "H200 (9.0)": (9, 0),
    "B200 (10.0)": (10, 0),
}


@cache
def measured_ways() -> list[Way]:
    """The ways to build of notebook 22, with the seconds that they took there."""
    took = {row["way"]: row["seconds"] for row in kept()["builds"]["rows"]}
    built = frozenset(c for c in CARDS.values() if nvcc.runs_on(("7.5", "8.0", "9.0+PTX"), c))
    classic, both = "load_inline, classic", "load, two files: torch's headers in the .cpp only"
    lean, ahead = "yaie.jit.load", "ahead of time, 7.5; 8.0; 9.0+PTX"
    device = "NVRTC, in the process: torch.cuda._compile_kernel"
    # An extension's build is that of its two files; what was built is then only loaded.
    loaded = took["yaie.jit.load, kept from before"]
    return [
        Way("load_inline, classic", took[classic], took[classic], True),
        Way("yaie.jit.load", took[lean], took[lean], True),
        Way("NVRTC", took[device], took[device], False, launcher=False),
        Way("csrc/setup.py, ahead of time", took[ahead], loaded, False, cards=built),
        Way("CUDAExtension", took[both], loaded, False, operator=True, cards=built),
    ]
