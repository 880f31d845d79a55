"""Clusters: what reaches another thread block's shared memory, and how faults of it are told."""

from pathlib import Path

import pytest
import torch
from emulated import launcher

from yaie.build import jit
from yaie.emulator import KernelError
from yaie.emulator.launch import Module
from yaie.emulator.runtime import ORDERS, settings

SOURCE = """
#include "hopper.cuh"
constexpr int TURNS = 6, STAGES = 2;
__global__ void __cluster_dims__(2, 1, 1)
    ring(const __grid_constant__ CUtensorMap map, float* out) {
    extern __shared__ __align__(128) float rows[];
    __shared__ uint64_t full[STAGES], empty[STAGES];
    int t = threadIdx.x, rank = cluster_rank(), cluster = blockIdx.x / 2;
    for (int i = t; i < STAGES; i += 64) mbarrier_init(&full[i], 1), mbarrier_init(&empty[i], 2);
    fence_mbarrier_init();
    cluster_sync();
    if (t == 0) {
        for (int i = 0; i < TURNS; ++i) {
            mbarrier_wait_cluster(&empty[i % STAGES], (i / STAGES & 1) ^ 1);
            mbarrier_arrive_expect(&full[i % STAGES], 256);
            float* half = rows + i % STAGES * 64 + rank * 32;
            tma_load_multicast(half, map, &full[i % STAGES], rank * 32, cluster * TURNS + i, 3);
        }
    } else if (t >= 32) {
        for (int i = 0; i < TURNS; ++i) {
            mbarrier_wait(&full[i % STAGES], i / STAGES & 1);
            float value = rows[i % STAGES * 64 + t - 32] + rows[i % STAGES * 64 + t];
            __syncwarp();
            if (t < 34) mbarrier_arrive_at(&empty[i % STAGES], t - 32);
            out[(blockIdx.x * TURNS + i) * 32 + t - 32] = value;
        }
    }
    cluster_sync();
}
"""
LAUNCH = """
    CUtensorMap map;
    size_t sizes[] = {64, 12}, stride = 64;
    int box[] = {32, 1};
    cudaError_t error = make_tensor_map(&map, x, sizes, &stride, box, Swizzle::NONE);
    if (error != cudaSuccess) return error;
    ring<<<4, 64, 512, stream>>>(map, out);
"""


@pytest.mark.parametrize("checked", [False, True])
def test_a_ring_is_right_whenever_its_copies_land(checked):
    module = jit.load(SOURCE + launcher("run", "const float* x, float* out", LAUNCH), checked)
    x = torch.randn(12, 64, generator=torch.Generator().manual_seed(0))
    wanted = (x[:, :32] + x[:, 32:]).view(2, 1, 6, 32).expand(2, 2, 6, 32)
    for order in ORDERS:
        for seed in range(12 if order == "random" else 1):
            out = torch.full((2, 2, 6, 32), torch.nan)
            with settings(order=order, seed=seed, time_limit=5):
                module.run(x, out)
            assert torch.equal(out, wanted), (order, seed)
            assert not checked or module.report.clean, (order, seed, module.report)


EXTENDED = """cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {{{}, 1, 1}};
    cudaLaunchConfig_t config = {{4, 32, 0, stream, &attribute, 1}};"""


def test_an_attribute_that_agrees_with_the_kernel():
    code = "__global__ void __cluster_dims__(2) k(float* out) { out[threadIdx.x] = gridDim.x; }\n"
    body = f"{EXTENDED.format(2)} cudaLaunchKernelEx(&config, k, out);"
    jit.load(code + launcher("run", "float* out", body)).run(out := torch.zeros(32))
    assert (out == 4).all()


REFUSED = {
    "a grid that is no multiple": (
        "k<<<3, 32, 0, stream>>>(out);",
        r"912.*k<<<\(3, 1, 1\), .* \(2, 1",
    ),
    "a mask of a launch without clusters": (
        "j<<<1, 32, 0, stream>>>(out);",
        "block 1 of a cluster of 1",
    ),
    "an attribute that contradicts the kernel": (
        f"{EXTENDED.format(4)} cudaLaunchKernelEx(&config, k, out);",
        r"912.*k<<<\(4, 1, 1\), .*clusters of \(4, 1, 1\), its __cluster_dims__ are \(2, 1, 1\)",
    ),
    "an attribute of no cluster": (
        f"{EXTENDED.format(1)} cudaLaunchKernelEx(&config, k, out);",
        r"912.*clusters of \(1, 1, 1\), its __cluster_dims__ are \(2, 1, 1\)",
    ),
}


@pytest.mark.parametrize("fault", REFUSED)
def test_what_cannot_run_is_told(fault):
    body, words = REFUSED[fault]
    kernels = """#include <cooperative_groups.h>
        __global__ void __cluster_dims__(2) k(float* out) {}
        __global__ void j(float* out) {
            __shared__ float own;
            *cooperative_groups::this_cluster().map_shared_rank(&own, 1) = 0;
        }
    """
    with pytest.raises(KernelError, match=words):
        jit.load(kernels + launcher("run", "float* out", body)).run(torch.zeros(32))


def test_shared_arrays_outside_functions_are_refused():
    code = "__shared__ float own[32];\n__global__ void __cluster_dims__(2) k(float* out) {}\n"
    with pytest.raises(jit.CompileError, match=r":1: a __shared__ variable outside a function"):
        jit.load(code + launcher("run", "float* out", "k<<<2, 32, 0, stream>>>(out);"))


GRID = """
#include <cooperative_groups.h>
#include <cuda_runtime.h>
__global__ void turned(const float* x, float* out, float* scratch) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, last = gridDim.x * blockDim.x - 1;
    scratch[i] = x[i];
    cooperative_groups::this_grid().sync();
    out[i] = scratch[last - i];
}
extern "C" cudaError_t run(const float* x, float* out, float* scratch, int blocks, int threads,
                           cudaStream_t stream) {
    void* arguments[] = {&x, &out, &scratch};
    return cudaLaunchCooperativeKernel((void*)turned, dim3(blocks), dim3(threads), arguments, 0,
                                       stream);
}
"""


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("blocks, threads", [(132, 32), (256, 5), (20, 200)])
def test_a_cooperative_grid_of_many_small_thread_blocks(blocks, threads, checked):
    module = Module(GRID, Path("grid.cu"), checked)
    x = torch.arange(blocks * threads, dtype=torch.float32)
    out, scratch = torch.zeros_like(x), torch.zeros_like(x)
    module.run(x, out, scratch, blocks, threads)
    assert torch.equal(out, x.flip(0))
    assert module.report is None or module.report.clean, module.report


def test_a_cooperative_grid_that_cannot_run_together_is_refused():
    many = torch.zeros(65 * 129)
    with pytest.raises(KernelError, match="run together, here at most 8192, not 16640"):
        Module(GRID, Path("grid.cu"), False).run(many, many.clone(), many.clone(), 65, 129)


BOTH = """
#include <cooperative_groups.h>
__global__ void k(float* out) {
    unsigned block = blockIdx.y * gridDim.x + blockIdx.x;
    if (threadIdx.x == 0) out[block] = cooperative_groups::this_cluster().block_rank();
    cooperative_groups::this_cluster().sync();
    cooperative_groups::this_grid().sync();
    if (threadIdx.x == 0) out[8 + block] = out[7 - block];
}
"""
BOTH_ATTRIBUTES = """cudaLaunchAttribute attributes[2];
    attributes[0].id = cudaLaunchAttributeCooperative;
    attributes[0].val.cooperative = 1;
    attributes[1].id = cudaLaunchAttributeClusterDimension;
    attributes[1].val.clusterDim = {2, 2, 1};
    cudaLaunchConfig_t config = {dim3(4, 2), 33, 0, stream, attributes, 2};
    cudaLaunchKernelEx(&config, k, out);"""


@pytest.mark.parametrize("checked", [False, True])
def test_a_cooperative_grid_may_have_clusters(checked):
    module = jit.load(BOTH + launcher("run", "float* out", BOTH_ATTRIBUTES), checked)
    ranks = [0.0, 1, 0, 1, 2, 3, 2, 3]
    for order in ORDERS:
        with settings(order=order, seed=2):
            module.run(out := torch.full((16,), torch.nan))
        assert out.tolist() == ranks + ranks[::-1], order
        assert not checked or module.report.clean, module.report
