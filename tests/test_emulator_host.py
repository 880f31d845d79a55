"""Host code as CUDA programs write it: names, launches, the runtime library's functions."""

from pathlib import Path

import pytest
import torch

from yaie.build.jit import load
from yaie.emulator.launch import Module

SOURCE = Path(__file__).parent / "emulator" / "host.cu"


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "checked"])
def host(request):
    return Module(SOURCE.read_text(), SOURCE, checked=request.param)


@pytest.fixture(autouse=True)
def clean(host):
    yield
    assert host.report is None or host.report.clean, host.report


def test_variables_named_like_built_in_ones_and_a_launch_by_function(host):
    out = torch.full((500,), torch.nan)
    host.run_named_like_built_in(out, 500)
    assert out.tolist() == [-2.0 * i for i in range(500)]


def test_symbols_pinned_memory_and_occupancy(host):
    out = torch.full((333,), torch.nan)
    host.run_from_a_symbol(out, 333)
    assert out.tolist() == [1.5 * i for i in range(333)]


def test_streams_events_and_clocks(host):
    out, launches = torch.full((96,), torch.nan), torch.zeros(1, dtype=torch.int32)
    host.run_timed(out, launches)
    assert out.tolist() == [3.0] * 96
    assert launches.item() == 6


def test_an_address_of_shared_memory_in_32_bits(host):
    out = torch.full((64,), -1, dtype=torch.int32)
    host.run_through_shared_address(out)
    assert out.tolist() == [*range(31, -1, -1), *range(131, 99, -1)]


def test_null_for_a_pointer(host):
    out = torch.zeros(4, dtype=torch.int32)
    host.run_without_pointers(out)
    assert out.tolist() == [20] * 4


def test_a_copy_of_rows(host):
    wide, narrow = torch.arange(28.0).view(4, 7), torch.zeros(4, 5)
    host.run_copy_of_rows(narrow, wide)
    assert torch.equal(narrow[:, :3], wide[:, :3])
    assert not narrow[:, 3:].any()


SPELLED = """// {}
#include "helper.cuh"
__global__ void f(int* x) {{ x[threadIdx.x] = ADDED; }}
extern "C" cudaError_t run(int* x, cudaStream_t stream) {{
    f<<<1, 4, 0, stream>>>(x);
    return cudaGetLastError();
}}
"""


@pytest.mark.parametrize(
    "mark, encoding", [("\ufeff", "utf-8"), ("", "latin-1")], ids=["mark", "latin-1"]
)
def test_encodings_of_other_editors(tmp_path, mark, encoding):
    header, source = tmp_path / "helper.cuh", tmp_path / "spelled.cu"
    header.write_bytes(f"{mark}#define ADDED 7 // größer\r\n".encode(encoding))
    source.write_bytes((mark + SPELLED.format("größer")).replace("\n", "\r\n").encode(encoding))
    x = torch.zeros(4, dtype=torch.int32)
    load(source).run(x)
    assert x.tolist() == [7] * 4
