"""Inline PTX against what the PTX ISA says, computed by Python and torch."""

from pathlib import Path

import pytest
import torch
from emulated import with_launchers

from yaie.emulator import CompileError, runtime
from yaie.emulator.launch import Module

SOURCE = Path(__file__).parent / "emulator" / "ptx.cu"
INT, WIDE = torch.int32, (1 << 32) - 1


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "checked"])
def module(request):
    return Module(with_launchers(SOURCE.read_text()), SOURCE, checked=request.param)


@pytest.fixture(params=["forward", "random"])
def ptx(module, request):
    """The kernels, whose threads run in this order; the checks must find nothing."""
    with runtime.settings(order=request.param, seed=5):
        yield module
    assert module.report is None or module.report.clean, module.report


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def signed(value: int, bits: int = 32) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def test_integers(ptx):
    generator = torch.Generator().manual_seed(1)
    a, b = torch.randint(-(2**31), 2**31, (2, 64), generator=generator).to(INT)
    a[:3] = torch.tensor([0, -1, -(2**31)])
    out = torch.zeros(16, 64, dtype=INT)
    ptx.run_integers(a, b, out)
    for i, (x, y) in enumerate(zip(a.tolist(), b.tolist(), strict=True)):
        u, v, z = x & WIDE, y & WIDE, i * 77777
        at, into = i % 28, i % 24
        hole = ((1 << 9) - 1) << into
        wanted = [
            *(x + y, x * y + 7, x * y >> 32, x << i, x >> i, u >> i),
            (u & v) | (u & z) | (v & z),  # lop3 by the table 0xE8: the majority
            (v & 0xFFFF) << 16 | u & 0xFFFF,
            signed(u >> at, 5) if at + 5 <= 32 else None,
            v & ~hole | u << into & hole,
            u.bit_count(),
            x if x < y else y + 1000,
            max(3, -(-i // 3) * 3),
            int(f"{u:032b}"[::-1], 2),
            u.bit_length() - 1,
            i % 32,
        ]
        assert out[:, i].tolist() == [signed(w) for w in wanted], (i, x, y)


def test_conversions_and_floats(ptx):
    x = random(64) * 10.0 ** torch.arange(64).fmod(13).sub(2)
    x[:6] = torch.tensor([torch.nan, torch.inf, -torch.inf, 2.5, -2.5, 1e-40])
    out, whole = torch.zeros(3, 64), torch.zeros(7, 64, dtype=INT)
    ptx.run_conversions(x, out, whole)
    y, exact = x.flip(0), x.double().nan_to_num(0.0)
    assert whole[0].tolist() == exact.round().clamp(-(2**31), 2**31 - 1).tolist()
    assert whole[1].tolist() == exact.trunc().clamp(-(2**31), 2**31 - 1).tolist()
    floors = exact.floor().clamp(0, 2**32 - 1).tolist()
    assert [value & WIDE for value in whole[2].tolist()] == floors
    for row, dtype in ((3, torch.float16), (4, torch.bfloat16)):
        pairs = whole[row].view(dtype).view(64, 2)
        assert torch.equal(pairs.nan_to_num(7), torch.stack([y, x], 1).to(dtype).nan_to_num(7))
    cut = (x.view(INT) & ~0xFFFF).view(torch.float32)
    got = whole[5].view(torch.bfloat16)[:64].float()
    assert torch.equal(got[1:], cut[1:]) and got[0].isnan()
    product = (x.double() * y.double() + 1).float()
    assert torch.equal(out[0].nan_to_num(7), product.nan_to_num(7))
    powers = torch.exp2(x.double())
    powers[powers < 2.0**-126] = 0
    torch.testing.assert_close(out[1].double(), powers.float().double(), equal_nan=True)
    assert torch.equal(out[2].nan_to_num(7), torch.fmax(x, y).nan_to_num(7))
    halves = torch.stack([y, x], 1).half().double()
    squares = (halves * halves + halves).half()
    got = whole[6].view(torch.float16).view(64, 2)
    assert torch.equal(got.nan_to_num(7), squares.nan_to_num(7))


def test_edges_of_comparisons_and_conversions(ptx):
    x = torch.tensor([torch.nan, 1e-10, -1e-10, 1.00001, -1.00001, 7e4, -7e4, 0])
    out, halves = torch.zeros(3, 8, dtype=INT), torch.zeros(2, 8).half()
    ptx.run_edges(x, out, halves.view(torch.int16))
    n = torch.arange(8).int() * 100 - 200
    assert out[0].tolist() == [2] + [0] * 7  # unordered and unequal, not ordered and unequal
    assert out[1:].equal(torch.stack([n.clamp(-128, 127), n.clamp(0, 255)]))
    near = x.half()
    above, below = (near.nextafter(torch.tensor(far).half()) for far in (torch.inf, -torch.inf))
    up = torch.where(near.double() < x.double(), above, near)
    down = torch.where(near.double() > x.double(), below, near)
    assert torch.equal(halves[:, 1:], torch.stack([up, down])[:, 1:]) and halves[:, 0].isnan().all()


def test_memory_atomics_and_shuffles(ptx):
    x, out = random(64, 4), torch.full((64, 4), -7.0)
    total = torch.zeros(1, dtype=torch.int64)
    ptx.run_memory(x, out, total, 50)
    assert torch.equal(out[:50], x.flip(1)[:50])
    assert torch.equal(out[50:, :3], x.flip(1)[50:, :3])
    assert (out[50:, 3] == -7).all()
    assert total.item() == sum(range(64))


@pytest.mark.parametrize("n", [0, 40, 64])
def test_asynchronous_copies(ptx, n):
    x, out = random(128, 4), torch.full((128, 4), torch.nan)
    ptx.run_copies(x, out, n)
    second = x[64:].clone()
    second[n:] = 0
    assert torch.equal(out[:64], x[:64].flip(0))
    assert torch.equal(out[64:], second.flip(0))


def test_products_of_tiles(ptx):
    a, b = random(16, 16, seed=1), random(16, 8, seed=2)
    c, c16 = torch.full((2, 16, 8), torch.nan)
    ptx.run_product(a.half(), b.half(), a.bfloat16(), b.bfloat16(), c, c16)
    for got, dtype in ((c, torch.float16), (c16, torch.bfloat16)):
        wanted = a.to(dtype).double() @ b.to(dtype).double()
        torch.testing.assert_close(got, wanted.float(), rtol=1e-6, atol=1e-6)


def test_products_of_other_shapes(ptx):
    a, b = random(16, 8, seed=3), random(8, 8, seed=4)
    c, c8 = torch.full((16, 8), torch.nan), torch.zeros(16, 8, dtype=INT)
    ch = torch.full((16, 8), torch.nan, dtype=torch.float16)
    a8, b8 = (torch.randint(-128, 128, (n, 32)).to(torch.int8) for n in (16, 8))
    ptx.run_other_products(a, b, c, a8, b8, c8, a.half(), b.half(), ch)
    short = [(t.view(INT) & ~0x1FFF).view(torch.float32).double() for t in (a, b)]
    torch.testing.assert_close(c, (short[0] @ short[1].T).float(), rtol=1e-6, atol=1e-6)
    assert torch.equal(c8, a8.to(INT) @ b8.to(INT).T)
    wanted = (a.half().double() @ b.half().double().T).half()
    torch.testing.assert_close(ch, wanted, rtol=2e-3, atol=1e-3)


@pytest.mark.parametrize(
    "statement, told",
    [
        ('asm volatile("tcgen05.wait::ld.sync;");', "`tcgen05.wait::ld.sync` is not emulated"),
        ('asm("add.s32 %0, q, 1;" : "=r"(x));', "operand `q` is not emulated"),
        ('asm("bar.red.popc.u32 %0, 1, p;" : "=r"(x));', "`bar.red.popc.u32` is not emulated"),
        ('asm("add.sat.s32 %0, %0, 1;" : "+r"(x));', "`add.sat.s32` is not emulated"),
        ('asm("add.cc.u32 %0, %0, 1;" : "+r"(x));', "`add.cc.u32` is not emulated"),
        ('asm("exit;");', "`exit` is not emulated"),
        (
            'asm("red.async.relaxed.cluster.global.add.u32 [%0], 1, [%0];" :: "l"(0ll));',
            "`red.async.relaxed.cluster.global.add.u32` is not emulated",
        ),
        (
            'asm("st.async.weak.shared::cluster.b32 [%0], %0, [%0];" :: "r"(x));',
            "`st.async.weak.shared::cluster.b32` is not emulated",
        ),
        ('asm("add.s32 %0, %0;" : "+r"(x));', "`add.s32 %0, %0` cannot be read"),
        ('asm("ld.global.s32 %0, 12;" : "=r"(x));', "address `12` cannot be read"),
        ('asm(NAME : "=r"(x));', "whose text is not a string is not emulated"),
    ],
)
def test_what_is_not_emulated_is_named(statement, told):
    text = f'__global__ void f(int x) {{\n\n{statement} }}\nextern "C" cudaError_t run(int n, '
    text += "cudaStream_t s) { f<<<1, 1, 0, s>>>(n); return cudaGetLastError(); }\n"
    with pytest.raises(CompileError) as error:
        Module(text, Path("mine.cu"))
    assert f"inline PTX {told}" in str(error.value)
    assert "mine.cu:3:" in str(error.value)


def test_what_is_not_compiled_may_be_unknown():
    """As with nvcc, whose assembler does not see a branch for other GPUs or an unused function."""
    text = """
template <int SIZE> __device__ int load(const int* x) {
    int value = 0;
    if constexpr (SIZE == 8) asm volatile("ld.global.v8.b32 {%0}, [%1];" : "=r"(value) : "l"(x));
    else asm volatile("ld.global.b32 %0, [%1];" : "=r"(value) : "l"(x));
    return value;
}
__device__ inline void wait() { asm volatile("tcgen05.wait::ld.sync;"); }
__global__ void f(int* x) { x[1] = load<4>(x); }
extern "C" cudaError_t run(int* x) { f<<<1, 1>>>(x); return cudaGetLastError(); }
"""
    x = torch.tensor([7, 0], dtype=INT)
    Module(text, Path("mine.cu")).run(x)
    assert x.tolist() == [7, 7]


def test_macros_that_spell_ptx():
    """A number made a string, a list of operands, a name that is joined, a whole statement."""
    text = """
#define REGISTER(n) "%" #n
#define PLUS "add"
#define TYPED(type) PLUS "." #type " "
#define INTO(...) "=r"(out[0]), __VA_ARGS__
#define NAME(a, b) a ## b
#define ADD_PAIR(type, x, y)                                        \\
    asm volatile(TYPED(type) REGISTER(0) ", %2, %3;\\n"              \\
                 TYPED(type) REGISTER(1) ", %2, 1;"                 \\
                 : INTO("=r"(NAME(o, ut)[1]))                       \\
                 : "r"(x), "r"(y))
__global__ void f(int* out, int x, int y) {
    // ADD_PAIR(s32, not this one)
    if (x) ADD_PAIR(s32,
                    (x), y + 1);
}
extern "C" cudaError_t run(int* out, int x, int y, cudaStream_t s) {
    f<<<1, 1, 0, s>>>(out, x, y);
    return cudaGetLastError();
}
"""
    out = torch.zeros(2, dtype=INT)
    Module(text, Path("macros.cu")).run(out, 40, 2)
    assert out.tolist() == [43, 41]


HALVES = r"""#include <cuda_fp16.h>
__global__ void f(__half* x, __half2* pairs) {
    unsigned short one;
    unsigned two;
    asm("ex2.approx.f16 %0, %1;" : "=h"(one) : "h"(__half_as_ushort(x[0])));
    x[1] = __ushort_as_half(one);
    asm("ex2.approx.f16x2 %0, %1;" : "=r"(two) : "r"(*(unsigned*)&pairs[0]));
    *(unsigned*)&pairs[1] = two;
    asm("min.f16x2 %0, %1, %2;" : "=r"(two) : "r"(*(unsigned*)&pairs[0]), "r"(two));
    *(unsigned*)&pairs[2] = two;
}
extern "C" cudaError_t run(__half* x, __half2* pairs) {
    f<<<1, 1>>>(x, pairs);
    return cudaGetLastError();
}
"""


def test_functions_of_halves_and_pairs():
    x, pairs = torch.tensor([1.5, 0]).half(), torch.tensor([2, -1, 0, 0, 0, 0]).half()
    Module(HALVES, Path("mine.cu")).run(x, pairs)
    assert x[1] == (2**1.5 * torch.ones(1)).half()
    assert pairs.tolist() == [2, -1, 4, 0.5, 2, -1]
