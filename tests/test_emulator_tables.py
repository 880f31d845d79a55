"""A list of tensors as an argument: the launcher gets an array of pointers."""

import pytest
import torch
from launches import on_gpu

from yaie.build import jit

SOURCE = r"""
#include <cuda_runtime.h>

__global__ void add_number(float* const* pools, const float* const* more, int count, int n) {
    for (int p = 0; p < count; ++p)
        if (threadIdx.x < n) pools[p][threadIdx.x] += p + more[p][threadIdx.x];
}

extern "C" cudaError_t add_number_f32(float* const* pools, const float* const* more, int count,
                                      int n, cudaStream_t stream) {
    add_number<<<1, 64, 0, stream>>>(pools, more, count, n);
    return cudaGetLastError();
}
"""


@pytest.mark.parametrize(
    ("device", "checked"),
    [("cpu", False), ("cpu", True), pytest.param("cuda", False, marks=on_gpu.marks)],
)
def test_each_tensor_is_reached(device, checked):
    kernels = jit.load(SOURCE, checked, name="tables.cu")
    pools = [torch.full((40,), 10.0 * i, device=device) for i in range(5)]
    more = [torch.full((40,), 0.5, device=device)] * 5  # one tensor may stand several times
    kernels.add_number_f32(pools, more, 5, 40)
    for i, pool in enumerate(pools):
        assert pool.tolist() == [11.0 * i + 0.5] * 40
    kernels.add_number_f32([], [], 0, 40)
    assert not checked or kernels.report.clean


def test_findings_name_the_tensor():
    kernels = jit.load(SOURCE, checked=True, name="tables.cu")
    pools = [torch.zeros(40), torch.zeros(30)]
    kernels.add_number_f32(pools, pools, 2, 40)
    assert {found.name for found in kernels.report.out_of_bounds} == {"pools[1] and more[1]"}
    kernels.add_number_f32(pools[:1], [pools[0].clone()] * 2, 2, 30)
    assert "pools" in {found.name for found in kernels.report.out_of_bounds}


@pytest.mark.parametrize(
    ("pools", "message"),
    [
        (torch.zeros(4), "'pools' must be a list of tensors, got Tensor"),
        ([torch.zeros(4), 3], "'pools' must be a tensor or None, got int"),
        ([torch.zeros(4).half()], "'pools' must be a tensor of float32, got float16"),
        ([torch.zeros(4, 4).t()], "'pools' must be contiguous"),
        ([torch.zeros(4), torch.zeros(4, device="meta")], "'pools' must be on cpu like 'pools'"),
    ],
)
def test_what_is_no_list_of_tensors_is_refused(pools, message):
    kernels = jit.load(SOURCE, name="tables.cu")
    with pytest.raises(TypeError, match=message):
        kernels.add_number_f32(pools, [torch.zeros(4)], 1, 4)
