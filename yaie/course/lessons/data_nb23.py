"""What notebook 23 and the script that measured for it share: kernels with a planted fault."""

import re
from functools import partial

from yaie.course.core import manifest, paths, render

kept = partial(paths.kept, "23_tools_h200")  # the record of `yaie.course.author.gpu.tools`


def reports() -> list[dict]:
    """What compute-sanitizer said of the draft of exercise 23.3, tool by tool.

    The kept reports name lines of the file that was compiled. Its code is the draft's, but the card
    above the code may be longer by now, so the lines are those where the same code stands today.
    """
    draft = [line.strip() for line in render.stub(manifest.find("23.3")).splitlines()]
    rows = []
    for row in paths.kept("14_load_inline_h200")["reports"]:
        now = {number: str(draft.index(code) + 1) for number, code in row["lines"].items()}
        text = re.sub(
            r"(?<=_moving_sum\.cu:)\d+", lambda match, now=now: now[match[0]], row["text"]
        )
        lines = {now[number]: code for number, code in row["lines"].items()}
        rows.append(row | {"text": text, "lines": lines})
    return rows


PLANTED = r"""#include <cuda_runtime.h>

__global__ void next_one(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i + 1];  // the last thread reads past the end
}

__global__ void sum_of_256(const float* x, float* out) {
    __shared__ float part[256];
    part[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    for (int half = 128; half > 0; half /= 2)  // no barrier between two iterations
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    if (threadIdx.x == 0) out[0] = part[0];
}

__global__ void add_to(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] += x[i];  // was out written before?
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
