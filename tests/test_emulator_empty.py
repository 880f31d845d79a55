"""Memory of `torch.empty` that a kernel reads unwritten is told; what was written never is."""

import ctypes

import pytest
import torch
from emulated import launcher

from yaie.build import jit
from yaie.emulator import unwritten, watch_empty

SOURCE = (
    "#include <cuda_fp16.h>\n"
    "template <typename T> __global__ void add(const T* x, T* out, int first, int n) {\n"
    "    int i = first + threadIdx.x;\n"
    "    if (i < n) out[i] += x[i];\n"
    "}\n"
    "__global__ void fill(float* out, int n) { if (threadIdx.x < n) out[threadIdx.x] = 1; }\n"
) + "".join(
    launcher(
        f"run_{name}",
        f"const {kind}* x, {kind}* out, int first, int n, int fills",
        ("if (fills) fill<<<1, 128, 0, stream>>>((float*)out, fills);" if name == "f" else "")
        + f"add<{kind}><<<1, 128, 0, stream>>>(x, out, first, n);",
    )
    for name, kind in (("f", "float"), ("b", "unsigned char"), ("d", "double"), ("h", "__half"))
)
DTYPES = {"f": torch.float32, "b": torch.uint8, "d": torch.float64, "h": torch.float16}


@pytest.fixture(scope="module")
def module():
    return jit.load(SOURCE, checked=True, name="empty.cu")


def told(module, name, x, out, first=0, n=97, fills=0):
    getattr(module, f"run_{name}")(x, out, first, n, fills)
    return [(f.kind, f.line, f.name) for f in module.report.findings]


@pytest.mark.parametrize("name", DTYPES)
def test_a_read_before_the_first_write_is_told(module, name):
    with watch_empty():
        made = [
            torch.empty(97, dtype=DTYPES[name]),
            torch.empty_like(torch.zeros(97, dtype=DTYPES[name])),
            torch.zeros(1, dtype=DTYPES[name]).new_empty(97),
            torch.empty(200, dtype=DTYPES[name])[50:147],
        ]
    x = torch.ones(97, dtype=DTYPES[name])
    for out in (*made, unwritten(torch.empty(97, dtype=DTYPES[name]))):
        assert told(module, name, x, out) == [("uninitialized", 4, "out")]
    message = module.report.findings[0].message
    assert "reads out[0], which neither a kernel nor a copy has written" in message
    assert told(module, name, made[0].fill_(1), x) == []


def test_the_argument_that_is_only_read_is_told(module):
    assert told(module, "f", unwritten(torch.empty(97)), torch.zeros(97)) == [
        ("uninitialized", 4, "x")
    ]


@pytest.mark.parametrize("name", DTYPES)
def test_what_was_written_is_not_accused(module, name):
    x, dtype = torch.ones(97, dtype=DTYPES[name]), DTYPES[name]
    with watch_empty():
        outs = [torch.empty(97, dtype=dtype) for _ in range(7)]
        made = [torch.zeros(97, dtype=dtype), torch.full((97,), 2, dtype=dtype), x * x, x.clone()]
    outs[0].zero_()
    outs[1].data.copy_(x)
    outs[2].numpy()[:] = 3
    size = x.nbytes
    ctypes.memmove(outs[3].data_ptr(), x.data_ptr(), size)
    torch.add(x, x, out=outs[4])
    ctypes.memset(outs[5].data_ptr(), 0xFF, size)  # the pattern of no element
    outs[6].view(torch.uint8)[:] = 0xA5
    for out in (*outs, *made):
        assert told(module, name, x, out) == []


def test_a_part_that_was_written(module):
    x = torch.ones(97)
    with watch_empty():
        out = torch.empty(97)
    out[:50] = 1
    assert told(module, "f", x, out, n=50) == []
    assert told(module, "f", x, out, first=50) == [("uninitialized", 4, "out")]
    out = unwritten(torch.empty(97))
    assert told(module, "f", x, out, n=60, fills=60) == []  # by a kernel of the same call
    assert told(module, "f", x, out, n=60) == []  # or of the one before
    assert told(module, "f", x, out) == [("uninitialized", 4, "out")]
    half = unwritten(torch.empty(97, dtype=torch.float16))
    half[0] = 1
    assert told(module, "h", x.half(), half, n=1) == []


def test_a_large_tensor(module):
    x, out = torch.zeros(1 << 20), unwritten(torch.empty(1 << 20))
    out[: 1 << 19] = 0  # so much that it is not looked at
    assert told(module, "f", x, out, first=1 << 19, n=1 << 20) == []
    out = unwritten(torch.empty(1 << 20))
    assert told(module, "f", x, out, n=1 << 20) == [("uninitialized", 4, "out")]


def test_only_memory_of_the_cpu():
    with pytest.raises(TypeError, match="must be on the CPU, got meta"):
        unwritten(torch.empty(3, device="meta"))
