"""What the emulator refuses as a GPU would, and what it says that it did not look at."""

import pytest
import torch
from emulated import launcher, with_launchers

from yaie.emulator import CompileError, KernelError, Module, settings

HEAD = "#include <cuda_runtime.h>\n#include <cuda_fp16.h>\n"


@pytest.mark.parametrize("checked", [False, True])
def test_static_shared_memory_has_a_limit(tmp_path, checked):
    kernel = """
template <typename T>
__global__ void tile(float* out) {
    __shared__ T large[96][128];
    __shared__ float small[%d];
    large[threadIdx.x][0] = small[0] = 1;
    out[threadIdx.x] = (float)large[threadIdx.x][0] + small[0];
}
"""
    run = launcher("run", "float* out", "    tile<float><<<1, 1, 0, stream>>>(out);")
    both = run.replace("    return", "    tile<int><<<1, 1, 0, stream>>>(out);\n    return")
    with pytest.raises(CompileError) as caught:
        Module(HEAD + kernel % 1 + run, tmp_path / "mine.cu", checked)
    assert str(caught.value).startswith(
        f"{tmp_path}/mine.cu:6: error: tile has 49,156 bytes of static __shared__ memory, but at "
        "most 49,152 may be"
    )
    fits = (kernel % 1).replace("[96][128]", "[95][128]")
    out = torch.zeros(1)
    Module(HEAD + fits + both, tmp_path / "mine.cu", checked).run(out)  # each on its own
    assert out.item() == 2


def test_more_dynamic_shared_memory_is_allowed_to_one_kernel(tmp_path):
    source = (
        HEAD
        + """
namespace kernels {
template <typename T, int N>
__global__ void fill(T* out) {
    extern __shared__ char bytes[];
    bytes[0] = N;
    out[0] = bytes[0];
}
}
// <<<1, 1, bytes>>>
__global__ void other(float* out, int bytes) { out[0] = 5; }
"""
    )
    source += launcher(
        "run_fill",
        "float* out, int bytes, int allowed",
        """    cudaError_t error = cudaFuncSetAttribute(
        kernels::fill<float, 4>, cudaFuncAttributeMaxDynamicSharedMemorySize, allowed);
    if (error != cudaSuccess) return error;
    kernels::fill<float, 4><<<1, 1, bytes, stream>>>(out);""",
    )
    source += launcher(
        "run_pointer",
        "float* out, int bytes",
        """    auto kernel = &kernels::fill<float, 3>;
    cudaFuncSetAttribute((const void*)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    kernel<<<1, 1, bytes, stream>>>(out);""",
    )
    module = Module(with_launchers(source), tmp_path / "mine.cu")
    out = torch.zeros(1)
    module.run_fill(out, 100_000, 100_000)
    assert out.item() == 4
    module.run_pointer(out, 200_000)
    assert out.item() == 3
    for bytes, allowed in [(100_001, 100_000), (0, 227 * 1024 + 1)]:
        with pytest.raises(KernelError, match="run_fill returned cudaErrorInvalidValue"):
            module.run_fill(out, bytes, allowed)
    module.run_other(out, 48 * 1024)
    with pytest.raises(KernelError, match="run_other returned cudaErrorInvalidValue"):
        module.run_other(out, 48 * 1024 + 1)


def test_a_tensor_too_large_to_keep_track_of_is_named(tmp_path):
    source = """// <<<1, 64, 0>>>
__global__ void f(const unsigned char* x, float* out) {
    out[0] = x[threadIdx.x];
}
"""
    module = Module(with_launchers(HEAD + source), tmp_path / "mine.cu", checked=True)
    out = torch.zeros(1)
    x = torch.arange(100, dtype=torch.uint8)
    module.run_f(x, out)
    assert len(module.report.races) == 1 and not module.report.untracked
    module.run_f(torch.nn.functional.pad(x, (0, 1 << 27)), out)
    assert module.report.untracked == ["x"]
    assert [race.memory for race in module.report.races] == ["global"]  # in out, all the same
    assert "No races were looked for in x: too large to keep track of." in str(module.report)


@pytest.mark.parametrize(
    ("warps", "expected"),
    [(2, {(7, 9)}), (3, {(7, 9), (9, 11)}), (5, {(7, 9), (9, 11), (7, 12)})],
)
def test_races_are_found_at_every_size_of_access(tmp_path, warps, expected):
    """Cells begin at four bytes and become finer: what was noted before is not lost."""
    source = """// <<<1, threads, 0>>>
__global__ void f(float* x, int threads, int after) {
    __half* halves = (__half*)x;
    char* bytes = (char*)x;
    if (threadIdx.x == 0) x[0] = 1;
    if (after) __syncthreads();
    if (threadIdx.x == 32) halves[1] = 2.0f;
    if (after) __syncthreads();
    if (threadIdx.x == 64) bytes[2] = 3;
    if (threadIdx.x == 96) bytes[0] = 4;
    if (threadIdx.x == 128) x[1] = 5;
}
"""
    module = Module(with_launchers(HEAD + source), tmp_path / "mine.cu", checked=True)
    x = torch.zeros(4)
    module.run_f(x, 32 * warps, 1)
    assert module.report.clean, module.report
    module.run_f(x, 32 * warps, 0)
    lines = {tuple(sorted((race.line, race.other_line))) for race in module.report.races}
    assert lines == expected  # byte 2 is the half's, byte 0 only the float's


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize(("order", "ran"), [("forward", [0, 1]), ("reverse", [6, 7])])
def test_only_some_thread_blocks_run(tmp_path, order, ran, checked):
    source = "// <<<8, 1, 0>>>\n__global__ void f(float* x) { x[blockIdx.x] = gridDim.x; }\n"
    module = Module(with_launchers(HEAD + source), tmp_path / "mine.cu", checked=checked)
    x = torch.zeros(8)
    with settings(order=order, most_blocks=2):
        module.run_f(x)
    assert x.nonzero().flatten().tolist() == ran and set(x[ran].tolist()) == {8.0}
    module.run_f(x)
    assert x.eq(8).all()


def test_time_in_which_a_kernel_does_not_compute_does_not_count(tmp_path):
    """As when others have the processor: on a busy machine a right kernel may take its time."""
    source = """#include <unistd.h>
// <<<1, 1, 0>>>
__global__ void f(float* out) {
    usleep(300000);
    out[0] = 1;
}
"""
    out = torch.zeros(1)
    with settings(time_limit=0.15):
        Module(with_launchers(HEAD + source), tmp_path / "mine.cu").run_f(out)
    assert out.item() == 1
