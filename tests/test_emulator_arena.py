"""A plain call's tensors lie apart: an index that is off harms nothing, and is told."""

import json

import pytest
import torch
from warm import python

from yaie.emulator import KernelError, Module
from yaie.emulator.arena import LARGEST

SOURCE = """
__global__ void fill(float* x, int first, int n) {
    const int i = first + blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = i;
}
extern "C" cudaError_t fill(float* x, int first, int n, cudaStream_t stream) {
    fill<<<(n - first + 63) / 64, 64, 0, stream>>>(x, first, n);
    return cudaGetLastError();
}
__global__ void shift(float* to, const float* from, int n) {
    for (int i = 0; i < n; ++i) to[i] = from[i] + 1;
}
extern "C" cudaError_t shift(float* to, const float* from, int n, cudaStream_t stream) {
    shift<<<1, 1, 0, stream>>>(to, from, n);
    return cudaGetLastError();
}
__global__ void fill_all(float* const* tables, int n) {
    tables[blockIdx.x][threadIdx.x] = blockIdx.x + 1;
    if (n > 0) tables[blockIdx.x][n] = 1;
}
extern "C" cudaError_t fill_all(float* const* tables, int count, int n, cudaStream_t stream) {
    fill_all<<<count, 8, 0, stream>>>(tables, n);
    return cudaGetLastError();
}
extern "C" cudaError_t where(const float* x, int64_t* address, cudaStream_t stream) {
    *address = (int64_t)x;
    return cudaSuccess;
}
"""

# What writes beyond a tensor in a process of its own: there the allocator's own data would be hit.
SCRIPT = """
import json, sys, torch
from yaie.emulator import KernelError, Module
source, calls = json.loads(sys.argv[1])
module = Module(source, "mine.cu")
for size, first, n in calls:
    x = torch.zeros(size)
    try:
        module.fill(x, first, n)
        said = ""
    except KernelError as error:
        said = str(error)
    print(json.dumps([said, x.tolist()[:4]]), flush=True)
    del x
    assert all(torch.ones(k).sum() == k for k in (1, 5, 16, 100, 1000, 4096))
"""


def test_a_store_beyond_a_tensor_harms_nothing_and_is_told() -> None:
    sizes = (1, 5, 16, 100, 1000, 1024, 4096)
    calls = [(size, 0, size + past) for size in sizes for past in (0, 1, 7, 100, 900)]
    calls += [(size, -before, size) for size in sizes for before in (1, 100, 1500)]
    done = python(SCRIPT, json.dumps([SOURCE, calls]))
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    for (size, first, n), (said, values) in zip(calls, rows, strict=True):
        if first == 0 and n == size:
            assert not said and values == list(range(size))[:4]
            continue
        assert f"x ({4 * size:,} bytes)" in said or "before x" in said, (size, first, n, said)
        assert ("before" in said) == (first < 0)
        assert "line 4: a store" in said or "checked mode names its line" in said
        if n - size > 100:
            assert "line 4: a store" in said, "a page further it faults"


@pytest.fixture(scope="module")
def module() -> Module:
    return Module(SOURCE, "mine.cu")


def test_views_of_one_storage_still_share_it(module: Module) -> None:
    x = torch.arange(8.0)
    module.shift(x[1:], x[:-1], 7)  # each reads what the one before has written
    assert x.tolist() == list(range(8))
    x = torch.zeros(8)
    module.fill(x[4:], -4, 4)  # outside the view, inside the storage
    assert x.tolist() == [-4, -3, -2, -1, 0, 1, 2, 3]
    assert module.shift(torch.zeros(0), torch.zeros(0), 0) is None


def test_what_is_only_read_is_not_written_back(module: Module) -> None:
    frozen = torch.frombuffer(bytearray(16), dtype=torch.float32)
    to = torch.zeros(4)
    module.shift(to, frozen, 4)
    assert to.tolist() == [1] * 4


def test_the_tensors_of_a_list_lie_apart_too(module: Module) -> None:
    tensors = [torch.zeros(8) for _ in range(3)]
    module.fill_all(tensors, 3, 0)
    assert [t.tolist() for t in tensors] == [[i + 1] * 8 for i in range(3)]
    with pytest.raises(KernelError, match=r"past the end of tables\[0\] \(32 bytes\)"):
        module.fill_all(tensors, 3, 8)


def test_a_large_storage_stays_where_it_is(module: Module) -> None:
    address = torch.zeros(1, dtype=torch.int64)
    for count, stays in ((LARGEST // 4, False), (LARGEST // 4 + 1, True)):
        x = torch.zeros(count)
        module.where(x, address)
        assert (address.item() == x.data_ptr()) == stays
        assert (address.item() - x.data_ptr()) % 32 == 0, "as aligned as before"
