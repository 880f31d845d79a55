"""Eight-bit and sixteen-bit arithmetic on the emulator, bit for bit."""

import bisect
import math

import pytest
import torch
from emulated import ARITHMETIC, CONVERTED, MIXED, with_halves, with_launchers

from yaie.emulator import CompileError, Module


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "checked"])
def kernels(request):
    return Module(with_launchers(ARITHMETIC.read_text()), ARITHMETIC, checked=request.param)


def every_code(dtype: torch.dtype) -> torch.Tensor:
    return torch.arange(256, dtype=torch.int32).to(torch.uint8).view(dtype)


def nearest(value: float, codes: list[float], saturate: bool, overflow: int) -> int:
    """The code, without its sign, of a magnitude: the nearest, of two as near the even one.

    Past the largest by half a step or more it is the largest, or `overflow`.
    """
    step = codes[-1] - codes[-2]
    if value > codes[-1] + step / 2 or (value == codes[-1] + step / 2 and len(codes) % 2 == 0):
        return len(codes) - 1 if saturate else overflow
    above = min(bisect.bisect_left(codes, value), len(codes) - 1)
    around = [above - 1, above] if above else [above]
    return min(around, key=lambda code: (abs(codes[code] - value), code % 2))


def numbers() -> torch.Tensor:
    """Random floats of every size, all middles between two codes, and their neighbors."""
    generator = torch.Generator().manual_seed(0)
    random = torch.randn(4000, generator=generator) * torch.exp2(
        torch.randint(-20, 20, (4000,), generator=generator)
    )
    middles = []
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        values = every_code(dtype)[:128].float()
        values = values[values.isfinite()]
        middles.append((values[1:] + values[:-1]) / 2)
    edges = torch.tensor([0.0, 448.0, 464.0, 480.0, 57344.0, 61440.0, 65536.0, 3e38, math.inf])
    exact = torch.cat([*middles, edges])
    beside = [torch.nextafter(exact, torch.tensor(to)) for to in (0.0, math.inf)]
    positive = torch.cat([random.abs(), exact, *beside])
    return torch.cat([positive, -positive]).contiguous()


def test_to_eight_bits(kernels):
    x = numbers()
    codes = [torch.zeros(x.numel(), dtype=torch.uint8) for _ in range(3)]
    kernels.run_to_fp8(x, *codes, x.numel())
    for found, dtype, saturate, overflow in zip(
        codes,
        (torch.float8_e4m3fn, torch.float8_e4m3fn, torch.float8_e5m2),
        (True, False, True),
        (0x7F, 0x7F, 0x7C),
        strict=True,
    ):
        values = every_code(dtype)[:128].float()
        table = values[values.isfinite()].tolist()
        expected = [
            nearest(abs(v), table, saturate, overflow) | (0x80 if math.copysign(1, v) < 0 else 0)
            for v in x.tolist()
        ]
        triples = zip(x.tolist(), found.tolist(), expected, strict=True)
        wrong = [(value, hex(f), hex(e)) for value, f, e in triples if f != e]
        assert not wrong, (dtype, saturate, wrong[:5])


def test_not_a_number_stays_one(kernels):
    x = torch.tensor([math.nan])
    codes = [torch.zeros(1, dtype=torch.uint8) for _ in range(3)]
    kernels.run_to_fp8(x, *codes, 1)
    assert codes[0].view(torch.float8_e4m3fn).float().isnan().item()
    assert codes[1].view(torch.float8_e4m3fn).float().isnan().item()
    assert codes[2].view(torch.float8_e5m2).float().isnan().item()


def test_from_eight_bits(kernels):
    x, y = every_code(torch.float8_e4m3fn), every_code(torch.float8_e5m2)
    out, other = torch.empty(256), torch.empty(256)
    half = torch.empty(256, dtype=torch.float16)
    kernels.run_from_fp8(x, y, out, half, other, 256)
    torch.testing.assert_close(out, x.float(), rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(half, x.to(torch.float16), rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(other, y.float(), rtol=0, atol=0, equal_nan=True)


def test_four_at_a_time(kernels):
    x = torch.randn(32, 4, generator=torch.Generator().manual_seed(1)) * 100
    packed, out = torch.zeros(32, 4, dtype=torch.uint8), torch.zeros(32, 4)
    halves = torch.zeros(32, 2, dtype=torch.float16)
    kernels.run_four_fp8(x, packed, out, halves)
    expected = x.to(torch.float8_e4m3fn)
    assert torch.equal(packed.view(torch.float8_e4m3fn).float(), expected.float())
    assert torch.equal(out, expected.float())
    assert torch.equal(halves, expected[:, :2].to(torch.float16))


def test_pairs_of_halves(kernels):
    generator = torch.Generator().manual_seed(2)
    n = 96
    a, b = (torch.randn(n, 2, generator=generator).half() for _ in range(2))
    out = torch.zeros(5, n, 2, dtype=torch.float16)
    kernels.run_pairs(a, b, out, n)
    total = (a + b) - 1
    assert torch.equal(out[0], total.abs())
    assert torch.equal(out[1], total.view(-1, 2, 2).flip(1).reshape(n, 2))
    exact = a.double() * b.double() + a.flip(1).double()
    assert torch.equal(out[2], torch.tensor(exact.numpy().astype("float16")))
    assert torch.equal(out[3], torch.stack([total[:, 0], a[:, 1]], 1))
    assert torch.equal(out[4], torch.stack([a[:, 0], b[:, 0]], 1))


def test_pairs_of_bfloat16(kernels):
    generator = torch.Generator().manual_seed(3)
    n = 64
    a, b = (torch.randn(n, 2, generator=generator).bfloat16() for _ in range(2))
    out = torch.zeros(3, n, 2, dtype=torch.bfloat16)
    kernels.run_brain_pairs(a, b, out, n)
    assert torch.equal(out[0], a * b)
    assert torch.equal(out[1], a * b)
    assert torch.equal(out[2], a.view(-1, 2, 2).flip(1).reshape(n, 2))


def test_bits(kernels):
    out = torch.zeros(5, dtype=torch.int32)
    kernels.run_bits(out)
    assert out.tolist() == [2 - 3 + 508 - 640 + 7, 5, 0x38000000, 0x7F800000, 1]


def test_copies_to_shared_memory(kernels):
    x, out = torch.arange(1.0, 13.0), torch.zeros(12)
    kernels.run_copies(x, out)
    assert out.tolist() == [1, 2, 3, 4, 5, 6, 7, 0, 9, 10, 0, 0]
    assert kernels.report is None or kernels.report.clean, kernels.report


def test_a_half_and_another_number_have_no_operator_as_in_cuda(tmp_path):
    """`test_jit_nvcc` shows that nvcc refuses and accepts the same statements."""
    with pytest.raises(CompileError) as refused:
        Module(with_halves(MIXED), tmp_path / "mixed.cu")
    for line in range(4, 4 + len(MIXED)):
        assert str(refused.value).count(f"mixed.cu:{line}:") >= 2, MIXED[line - 4]
    out = torch.zeros(1)
    Module(with_halves(CONVERTED), tmp_path / "converted.cu").run___half(out)
    assert out.item() != 0
