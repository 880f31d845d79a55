"""Headers of NVIDIA's libraries that the emulator replaces: CUB, cuRAND, libcu++."""

import math
import struct
from itertools import accumulate, chain
from pathlib import Path

import pytest
import torch
from emulated import with_launchers
from test_emulator_meaning import VALUES

from yaie.build.jit import load
from yaie.emulator import CompileError, Module, settings

SOURCES = Path(__file__).parent / "emulator"
INT, INT64 = torch.int32, torch.int64


def module_of(name: str, checked: bool) -> Module:
    path = SOURCES / f"{name}.cu"
    return Module(with_launchers(path.read_text()), path, checked)


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "checked"])
def checked(request):
    return request.param


@pytest.fixture(scope="module")
def cub(checked):
    return module_of("cub", checked)


@pytest.fixture(autouse=True, params=["forward", "reverse", "random"])
def order(request):
    with settings(order=request.param, seed=5):
        yield request.param


def clean(module: Module) -> bool:
    return module.report is None or module.report.clean


def numbers(n: int, seed: int = 1) -> torch.Tensor:
    return torch.randint(-50, 50, (n,), generator=torch.Generator().manual_seed(seed), dtype=INT)


def test_a_warp_reduces_and_scans(cub):
    x = numbers(288)
    total, most = torch.zeros(9, dtype=INT), torch.zeros(9, dtype=INT)
    inclusive, exclusive = torch.zeros(288, dtype=INT), torch.zeros(288, dtype=INT)
    cub.run_warps(x, total, most, inclusive, exclusive)
    assert torch.equal(total, x.view(9, 32).sum(1, dtype=INT))
    assert torch.equal(most, x.view(9, 32)[:, :20].max(1).values)
    parts = x.view(36, 8)
    sums = parts.cumsum(1, dtype=INT)
    assert torch.equal(inclusive.view(36, 8), sums)
    assert torch.equal(exclusive.view(36, 8), sums - parts + 1000 * sums[:, -1:])
    assert clean(cub), cub.report


@pytest.mark.parametrize("threads, valid", [(64, 64), (64, 33), (64, 5), (80, 80), (80, 65)])
def test_a_thread_block_reduces(cub, threads, valid):
    x = numbers(2 * threads).float()
    out, best = torch.zeros(2), torch.zeros(12, dtype=torch.uint8)
    getattr(cub, f"reduce_{threads}")(x, out, best, valid)
    assert out.tolist() == [x.sum().item(), x[:valid].max().item()]
    value, index, weight = struct.unpack("fii", bytes(best.tolist()))
    first = x[:threads].max().item()
    assert (value, index, weight) == (first, x[:threads].tolist().index(first), threads)
    assert clean(cub), cub.report


@pytest.mark.parametrize("threads", [64, 80])
def test_a_thread_block_scans(cub, threads):
    n = 4 * threads - 7
    x, out = numbers(4 * threads), torch.zeros(15 * threads, dtype=INT)
    getattr(cub, f"scan_{threads}")(x, out, n)
    rows, values = out.view(15, threads).tolist(), x.tolist()
    assert rows[0] == list(accumulate(values[:threads]))
    assert rows[1] == list(accumulate([100, *values[: threads - 1]], max))
    assert rows[2] == [max(values[:threads])] * threads
    assert list(chain(*rows[3:7]))[:n] == [0, *accumulate(values[: n - 1])]
    sums = list(accumulate([*values[:n], *[-1] * 7]))
    striped = [sums[i * 4 + item] for item in range(4) for i in range(threads)]
    assert list(chain(*rows[7:11])) == striped
    assert rows[11] == [sums[-1]] * threads
    assert rows[12] + rows[13] == [0, *accumulate(values[: 2 * threads - 1])]
    assert rows[14] == [0] * threads
    assert clean(cub), cub.report


def test_atomics_of_libcu(checked):
    module = module_of("atomics", checked)
    x = (numbers(256) % 20).clamp(-1, 2)  # few are 1, to keep the product small
    x[x == 1] *= torch.arange(int((x == 1).sum()), dtype=INT) < 9
    out, bits = torch.zeros(10, dtype=INT), torch.zeros(2, dtype=torch.int64)
    out[1], out[2], out[3], bits[1] = 100, -100, 1, 12345
    module.run_operations(x, out, bits)
    odd = int((x == 1).sum())
    assert 0 < odd < 10
    assert out[:4].tolist() == [x.sum().item(), x.min().item(), x.max().item(), 2**odd]
    assert out[5] == 1 and 1 <= out[4] <= 256
    assert out[6:].tolist() == [5 + 64 + part for part in x.view(4, 64).sum(1).tolist()]
    assert bits.tolist() == [-1, 12345]
    assert clean(module), module.report

    parts, done, total = (torch.zeros(n, dtype=INT) for n in (6, 1, 1))
    module.run_last_adds(x, parts, done, total)
    assert total.item() == x[:192].sum().item()
    assert clean(module), module.report


def philox(counter: list[int], key: list[int]) -> list[int]:
    """Philox4x32-10 as its paper gives it."""
    a, b, c, d = counter
    k, m = key
    for _ in range(10):
        left, right = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = (right >> 32) ^ b ^ k, right % 2**32, (left >> 32) ^ d ^ m, left % 2**32
        k, m = (k + 0x9E3779B9) % 2**32, (m + 0xBB67AE85) % 2**32
    return [a, b, c, d]


def sequence(seed: int, subsequence: int, offset: int, n: int) -> list[int]:
    """cuRAND's numbers: the counter is the place / 4 and, above it, the subsequence."""
    found = []
    for group in range(offset // 4, (offset + n) // 4 + 1):
        whole = (subsequence << 64) + group
        counter = [whole >> shift & 0xFFFFFFFF for shift in (0, 32, 64, 96)]
        found += philox(counter, [seed & 0xFFFFFFFF, seed >> 32])
    return found[offset % 4 :][:n]


def test_the_oracle_gives_the_published_answers():
    """Known answers that come with Random123."""
    ones, pi = [0xFFFFFFFF] * 4, [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344]
    assert philox([0] * 4, [0] * 2) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert philox(ones, ones[:2]) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]
    answer = [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]
    assert philox(pi, [0xA4093822, 0x299F31D0]) == answer


def doubles(numbers: list[int]) -> list[float]:
    """What `draw` makes of 17: a uniform number of one, two of two each, two pairs and a half."""
    found = [(numbers[0] + 1) / 2**32]
    wide = [
        ((x ^ (y << 21)) + 0.5) / 2**53 for x, y in zip(numbers[1::2], numbers[2::2], strict=True)
    ]
    for first, second in zip(wide[2::2], wide[3::2], strict=True):
        radius, angle = math.sqrt(-2 * math.log(first)), 2 * math.pi * second
        found += [radius * math.sin(angle), radius * math.cos(angle)]
    pairs = found[1:]
    return [found[0], *wide[:2], *pairs[:3], *pairs[4:]]


@pytest.mark.parametrize(
    "seed, first", [(0, 0), (1234, 3), (2**63 + 5, 2**64 - 40), (7, 2**34 + 2)]
)
def test_random_numbers(checked, seed, first):
    module = module_of("random", checked)
    n = 32
    bits, uniform = torch.zeros(n, 9, dtype=INT), torch.zeros(n, 9)
    normal, double = torch.zeros(n, 9), torch.zeros(n, 8, dtype=torch.float64)
    module.run_draw(seed, first, bits, uniform, normal, double, n)
    for i in range(n):
        numbers = sequence(seed, 2**31 * i, first, 28)
        assert [b % 2**32 for b in bits[i].tolist()] == numbers[:9]
        expected = torch.tensor(numbers[9:18], dtype=torch.float32) * 2**-32 + 2**-33
        assert torch.equal(uniform[i], expected)
        pairs = torch.tensor(numbers[18:28], dtype=torch.float64).view(5, 2)
        radius = (-2 * ((pairs[:, 0] + 0.5) / 2**32).log()).sqrt()
        angle = (pairs[:, 1] + 0.5) * 2 * torch.pi / 2**32
        both = torch.stack([radius * angle.sin(), radius * angle.cos()], 1).flatten()
        torch.testing.assert_close(normal[i].double(), both[:9], rtol=1e-5, atol=3e-6)
        expected = doubles(sequence(seed, 2**31 * i, first + 28, 17))
        assert double[i, :3].tolist() == expected[:3]
        assert double[i].tolist() == pytest.approx(expected, rel=1e-12, abs=1e-13)
    assert clean(module), module.report


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_a_gpu_draws_the_same_numbers_and_converts_alike():
    """What the emulator claims of cuRAND and of saturation, by the originals."""
    n = 32
    results = {}
    for device in ("cpu", "cuda"):
        random = load(with_launchers((SOURCES / "random.cu").read_text()), name="random")
        bits = torch.zeros(n, 9, dtype=INT, device=device)
        uniform, normal = (torch.zeros(n, 9, device=device) for _ in range(2))
        wide = torch.zeros(n, 8, dtype=torch.float64, device=device)
        random.run_draw(2**62 + 5, 2**34 + 3, bits, uniform, normal, wide, n)
        casts = load(with_launchers((SOURCES / "meaning.cu").read_text()), name="meaning")
        x = torch.tensor(VALUES, device=device)
        out, long = (torch.zeros(len(VALUES), 8, dtype=INT64, device=device) for _ in range(2))
        casts.run_casts(x, x.double(), out, long, len(VALUES))
        rounded = torch.zeros(len(VALUES), 16, dtype=INT64, device=device)
        casts.run_rounded(x, x.double(), x.half(), rounded, len(VALUES))
        exact = [bits, uniform, wide[:, :3], out, long, rounded]
        results[device] = [tensor.cpu() for tensor in (*exact, normal, wide[:, 3:])]
    for mine, theirs in zip(results["cpu"][:-2], results["cuda"][:-2], strict=True):
        assert torch.equal(mine, theirs)
    torch.testing.assert_close(results["cpu"][-2], results["cuda"][-2], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(results["cpu"][-1], results["cuda"][-1], rtol=1e-12, atol=1e-13)


def test_the_other_generator_is_refused(tmp_path):
    source = """#include <curand_kernel.h>
// <<<1, 1, 0>>>
__global__ void f(float* out) {
    curandState state;
    curand_init(1, 0, 0, &state);
    *out = curand_uniform(&state);
}
"""
    with pytest.raises(CompileError, match=r"mine\.cu:5.*curandState is not emulated"):
        Module(with_launchers(source), tmp_path / "mine.cu")


def test_a_pipeline_of_stages(checked):
    module = module_of("pipeline", checked)
    x, out = torch.arange(320.0), torch.zeros(64)
    for run in (module.run_staged, module.run_together):
        run(x, out.zero_(), 320)
        assert torch.equal(out, x.view(5, 64).sum(0).flip(0))
        assert clean(module), module.report
    module.run_divided(x, out, 320)
    assert torch.equal(out[:32], x.view(10, 32).sum(0).flip(0))
    assert clean(module), module.report


def test_barriers_of_libcu(checked):
    module = module_of("barriers", checked)
    x, out = numbers(576), torch.zeros(576, dtype=INT)
    module.run_shared_copy(x, out)
    assert torch.equal(out.view(6, 96), x.view(6, 96).flip(1))
    assert clean(module), module.report
    out = torch.zeros(8, 2, 32, dtype=INT)
    module.run_specialized(x, out, 8)
    expected = 2 * x[:256].view(8, 32).flip(1)
    assert torch.equal(out, torch.stack([expected + 1, expected + 2], 1))
    assert clean(module), module.report
