"""The Triton back end against float64, at awkward shapes: interpreted on a CPU, compiled on a GPU.

Memory that a kernel has to write is full of NaN before, and so is all that it must not read, so an
element that is forgotten, or read from a neighbor, cannot pass.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys

import pytest
import torch
from oracles import naive_attention, naive_rotary

triton = pytest.importorskip("triton", reason="Triton exists for Linux only")

from yaie.course.lessons.ops.elementwise import add, add_relu  # noqa: E402
from yaie.course.lessons.ops.matrix import matmul  # noqa: E402
from yaie.course.lessons.ops.rows import row_sum, softmax  # noqa: E402
from yaie.course.lessons.ops.triton import matmul as matmul_module  # noqa: E402
from yaie.ops import registry  # noqa: E402
from yaie.ops.attention import attention_forward, paged_attention_forward  # noqa: E402
from yaie.ops.elementwise import silu_and_mul  # noqa: E402
from yaie.ops.interpreter import how_triton_runs  # noqa: E402
from yaie.ops.kv import reshape_and_cache  # noqa: E402
from yaie.ops.norm import add_rms_norm, rms_norm  # noqa: E402
from yaie.ops.reference.rotary import rotary_tables  # noqa: E402
from yaie.ops.rotary import rotary  # noqa: E402
from yaie.ops.triton import flash, norm, paged, runtime  # noqa: E402

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
INF = float("inf")
# Largest ‖out − wanted‖ / ‖wanted‖: the rounding of the dtype, and of sums in float32. A GPU's
# tensor cores multiply float32 in three parts of 11 bits, and drop the least.
TOLERANCE = {torch.float32: 2e-5 if GPU else 3e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}
dtypes = pytest.mark.parametrize("dtype", TOLERANCE, ids=lambda dtype: str(dtype).split(".")[1])
pytestmark = [pytest.mark.gpu] if GPU else []


@pytest.fixture(autouse=True)
def poison(monkeypatch):
    """Fill memory that is about to be handed to a kernel with NaN."""
    torch.manual_seed(0)
    new_empty, empty_like = torch.Tensor.new_empty, torch.empty_like

    def filled(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.fill_(math.nan) if tensor.is_floating_point() else tensor

    monkeypatch.setattr(torch.Tensor, "new_empty", lambda *a, **k: filled(new_empty(*a, **k)))
    monkeypatch.setattr(torch, "empty_like", lambda *a, **k: filled(empty_like(*a, **k)))


def draw(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, device=DEVICE).to(dtype)


def ints(values, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype, device=DEVICE)


def close(out: torch.Tensor, wanted: torch.Tensor, dtype: torch.dtype) -> None:
    """Same shape, every element written, and near: by norm, and for each element."""
    out, wanted = out.detach().cpu().double(), wanted.cpu().double()
    assert out.shape == wanted.shape
    assert not out.isnan().any()
    infinite = wanted.isinf()
    assert torch.equal(out[infinite], wanted[infinite])
    out, wanted = out.masked_fill(infinite, 0.0), wanted.masked_fill(infinite, 0.0)
    tolerance = TOLERANCE[dtype]
    assert (out - wanted).norm() <= tolerance * wanted.norm() + 1e-12
    torch.testing.assert_close(out, wanted, rtol=30 * tolerance, atol=10 * tolerance)


# ------------------------------------------------------------------------------------- elements

SHAPES = [(0,), (1,), (7, 781), (2048,), (2049,), (3, 1, 5)]
ROWS = [(1, 1), (3, 781), (5, 4096), (2, 4097), (0, 5), (4, 17)]
if GPU:
    SHAPES += [(1823, 781), (5, 1 << 21)]
    ROWS += [(1823, 781), (1024, 4096), (3, 32768), (70000, 3)]


@dtypes
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_sums_are_exact(shape, dtype):
    x, y = draw(*shape, dtype=dtype), draw(*shape, dtype=dtype)
    assert torch.equal(add(x, y, backend="triton"), x + y)
    assert torch.equal(add_relu(x, y, backend="triton"), torch.relu(x + y))


def test_relu_keeps_nan():
    x = ints([math.nan, -1.0, 2.0], torch.float32)
    out = add_relu(x, torch.zeros_like(x), backend="triton")
    assert out.isnan().tolist() == [True, False, False]


@dtypes
@pytest.mark.parametrize("shape", ROWS, ids=str)
def test_silu_and_mul(shape, dtype):
    x = draw(shape[0], 2 * shape[1], dtype=dtype)
    gate, up = x.double().chunk(2, dim=1)
    wanted = gate / (1 + torch.exp(-gate)) * up
    close(silu_and_mul(x, backend="triton"), wanted, dtype)


def test_silu_of_what_overflows():
    x = ints([[1e4, -1e4, 1.0, 1.0]], torch.float32)
    assert silu_and_mul(x, backend="triton").tolist() == [[1e4, 0.0]]


# ------------------------------------------------------------------------------------- rows


@dtypes
@pytest.mark.parametrize("shape", ROWS, ids=str)
def test_row_operators(shape, dtype):
    x, residual = draw(*shape, dtype=dtype), draw(*shape, dtype=dtype)
    weight = draw(shape[1], dtype=dtype)
    close(softmax(x, backend="triton"), x.double().softmax(1), dtype)
    sums = row_sum(x, backend="triton")
    assert sums.dtype == torch.float32
    wanted = x.double().sum(1)
    torch.testing.assert_close(sums.double(), wanted, rtol=1e-5, atol=1e-5 * shape[1] ** 0.5)
    close(rms_norm(x, weight, 1e-5, backend="triton"), normalized(x, weight, 1e-5), dtype)
    out, total = add_rms_norm(x, residual, weight, 1e-5, backend="triton")
    assert torch.equal(total, x + residual)
    close(out, normalized(total, weight, 1e-5), dtype)


def normalized(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    x = x.double()
    return x / (x.square().mean(1, keepdim=True) + eps).sqrt() * weight.double()


@pytest.mark.parametrize("columns", [5, 40000], ids=["in registers", "long"])
def test_softmax_of_extremes(columns):
    x = draw(4, columns)
    x[0] = -INF
    x[1] = 1e4 + x[1]
    x[2, 1:] = -INF
    out = softmax(x, backend="triton")
    assert (out[0] == 0).all()
    close(out[1:], x[1:].double().softmax(1), torch.float32)
    x = draw(2, columns, dtype=torch.float16)
    close(softmax(x, backend="triton"), x.double().softmax(1), torch.float16)
    x = torch.full((2, columns), torch.finfo(torch.float32).min, device=DEVICE)  # a usual mask
    x[1, -1] = 1.0
    close(softmax(x, backend="triton"), x.double().softmax(1), torch.float32)


def test_rows_without_columns():
    x = draw(3, 0)
    assert row_sum(x, backend="triton").tolist() == [0.0] * 3
    assert softmax(x, backend="triton").shape == (3, 0)


@pytest.mark.parametrize("programs", [0, 1, 3])
def test_programs_that_take_several_rows(programs, monkeypatch):
    config = {"num_warps": 4, "programs": programs, "STAGES": 2}
    monkeypatch.setattr(norm, "_row_configs", lambda block: [config])
    monkeypatch.setattr(norm, "num_processors", lambda device: 2)
    runtime.TUNED.clear()
    x, weight = draw(11, 33), draw(33)
    close(softmax(x, backend="triton"), x.double().softmax(1), torch.float32)
    close(rms_norm(x, weight, backend="triton"), normalized(x, weight, 1e-6), torch.float32)


def test_a_norm_of_rows_that_are_too_long_says_so():
    x, weight = torch.zeros(1, 40000, device=DEVICE), torch.ones(40000, device=DEVICE)
    with pytest.raises(ValueError, match="rows have at most 32768 elements, got 40000"):
        rms_norm(x, weight, backend="triton")


# ------------------------------------------------------------------------------------- rotary


@dtypes
@pytest.mark.parametrize(("heads", "dim"), [(1, 2), (9, 64), (3, 80), (40, 128)])
def test_rotary(heads, dim, dtype):
    positions = [0, 1, 17, 99, 99, 1000]
    cos, sin = (table.to(DEVICE) for table in rotary_tables(dim, 1024))
    both = draw(len(positions), heads + 2, dim, dtype=dtype)
    x = both[:, 1:-1]  # heads of a wider tensor, as in the model
    out = rotary(x, ints(positions, torch.int64), cos, sin, backend="triton")
    close(out, naive_rotary(x.cpu(), positions), max(dtype, torch.float16, key=TOLERANCE.get))
    nobody = rotary(x[:0], ints([], torch.int64), cos, sin, backend="triton")
    assert nobody.shape == (0, heads, dim)


FAR = 1 << 30  # elements from one head to the next: the third is beyond what 32 bits count


def far_apart(*shape: int) -> torch.Tensor:
    """Heads of one token in memory that is never touched between them."""
    memory = torch.empty(2 * FAR + 64, dtype=torch.float16, device=DEVICE)
    return memory.as_strided(shape, (64, FAR, 1)).copy_(draw(*shape))


@pytest.mark.parametrize("operator", ["rotary", "paged_attention", "reshape_and_cache"])
def test_heads_that_lie_far_apart(operator):
    x = far_apart(1, 3, 64)
    near = x.contiguous()
    if operator == "rotary":
        cos, sin = (table.to(DEVICE) for table in rotary_tables(64, 8))
        rest = (ints([5], torch.int64), cos, sin)
        assert torch.equal(
            rotary(x, *rest, backend="triton"), rotary(near, *rest, backend="triton")
        )
    elif operator == "paged_attention":
        pools = [draw(2, 4, 3, 64, dtype=torch.float16) for _ in range(2)]
        rest = (*pools, ints([[1]]), ints([3]), ints([0, 1]))
        out, wanted = (paged_attention_forward(q, *rest, backend="triton")[0] for q in (x, near))
        assert torch.equal(out, wanted)
    else:
        pools = [torch.zeros(2, 4, 3, 64, dtype=torch.float16, device=DEVICE) for _ in range(2)]
        reshape_and_cache(x, x, *pools, ints([6], torch.int64), backend="triton")
        assert all(torch.equal(pool[1, 2], near[0]) for pool in pools)


# ------------------------------------------------------------------------------------- matmul

SIZES = [(1, 1, 1), (65, 130, 33), (128, 64, 96), (200, 136, 72), (0, 3, 4), (3, 0, 4), (3, 4, 0)]
if GPU:
    SIZES += [(1823, 781, 345), (1, 4096, 4096), (1024, 1024, 1024), (513, 2056, 264)]


@dtypes
@pytest.mark.parametrize("large", [False, True], ids=["pointers", "descriptors"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_matmul(size, large, dtype, monkeypatch):
    monkeypatch.setattr(matmul_module, "LARGE", 0 if large else 1 << 60)
    for configs in ("CONFIGS", "DESCRIPTOR_CONFIGS"):
        monkeypatch.setattr(matmul_module, configs, getattr(matmul_module, configs)[:1])
    m, n, k = size
    a, b = draw(m, k, dtype=dtype), draw(k, n, dtype=dtype)
    close(matmul(a, b, backend="triton"), a.double() @ b.double(), dtype)


@pytest.mark.parametrize("index", range(len(matmul_module.DESCRIPTOR_CONFIGS)))
def test_every_tile_of_matmul(index, monkeypatch):
    if not GPU and index % 5:
        pytest.skip("interpreted, the configurations differ little")
    config = matmul_module.DESCRIPTOR_CONFIGS[index]
    monkeypatch.setattr(matmul_module, "LARGE", 0)
    monkeypatch.setattr(matmul_module, "DESCRIPTOR_CONFIGS", [config])
    runtime.TUNED.clear()
    a, b = draw(300, 136, dtype=torch.float16), draw(136, 520, dtype=torch.float16)
    close(matmul(a, b, backend="triton"), a.double() @ b.double(), torch.float16)


def test_grouped_order_visits_every_tile_once():
    """The order of the grid in plain Python, with a last group that is lower than the others."""
    order = matmul_module.grouped_tile.fn
    tiles = [order(i, 11, 7, 4) for i in range(77)]
    assert sorted(tiles) == [(m, n) for m in range(11) for n in range(7)]
    assert [m for m, _ in tiles[:8]] == [0, 1, 2, 3, 0, 1, 2, 3]


# ------------------------------------------------------------------------------------- flash

LENGTHS = {  # of queries and keys
    "prompts": [(n, n) for n in (0, 1, 17, 127, 128, 129)],
    "chunks": [(1, 40), (17, 130), (64, 64), (3, 3), (0, 9), (5, 0), (20, 10)],
    "one": [(1, 1)],
    "nobody": [(0, 0), (0, 0)],
    "no keys": [(3, 0)],
}
if GPU:
    LENGTHS["prompts"].append((1000, 1000))
    LENGTHS["chunks"].append((129, 1000))
HEADS = [(1, 1), (3, 1), (16, 2)]
HEAD_DIMS = [32, 64, 80, 128, 256]
# Interpreted, one head_dim is enough to see how half precision is treated.
DIMS = [(d, t) for d in HEAD_DIMS for t in TOLERANCE if GPU or t == torch.float32 or d == 80]
dims = pytest.mark.parametrize(("dim", "dtype"), DIMS, ids=str)


# A configuration takes tens of seconds to compile: each is a test of its own.
FLASH_TILES = [(d, i) for d in (64, 128, 256) for i in range(len(flash._configs(d, 2)))]
if not GPU:
    FLASH_TILES = [(d, len(flash._configs(d, 2)) - 1) for d in (64, 128, 256)]


def ragged_case(lengths, heads, kv_heads, dim, dtype):
    queries, keys = ([pair[i] for pair in lengths] for i in (0, 1))
    q = draw(sum(queries), heads, dim, dtype=dtype)
    k, v = (draw(sum(keys), kv_heads, dim, dtype=dtype) for _ in range(2))
    starts = [ints([sum(each[:i]) for i in range(len(each) + 1)]) for each in (queries, keys)]
    return q, k, v, *starts


def check_ragged(lengths, heads, kv_heads, dim, dtype, causal=True, scale=None):
    q, k, v, *starts = ragged_case(lengths, heads, kv_heads, dim, dtype)
    out, lse = attention_forward(q, k, v, causal, scale, *starts, backend="triton")
    assert out.dtype == dtype and lse.dtype == torch.float32
    at_q = at_k = 0
    for num_q, num_k in lengths:
        rows, columns = slice(at_q, at_q + num_q), slice(at_k, at_k + num_k)
        each = naive_attention(q[rows].cpu(), k[columns].cpu(), v[columns].cpu(), causal, scale)
        close(out[rows], each[0], dtype)
        close(lse[rows], each[1], dtype)
        at_q, at_k = rows.stop, columns.stop


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "full"])
@pytest.mark.parametrize("mix", LENGTHS)
def test_flash_attention_of_any_lengths(mix, causal):
    check_ragged(LENGTHS[mix], 2, 1, 32, torch.float32, causal)
    check_ragged(LENGTHS[mix], 2, 1, 64, torch.float16, causal)


@dims
@pytest.mark.parametrize(("heads", "kv_heads"), HEADS)
def test_flash_attention_of_any_heads(heads, kv_heads, dim, dtype):
    check_ragged([(17, 17), (2, 70)], heads, kv_heads, dim, dtype)
    if GPU:
        check_ragged([(200, 200), (129, 300)], heads, kv_heads, dim, dtype, causal=False)


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "full"])
@pytest.mark.parametrize(("dim", "index"), FLASH_TILES)
def test_every_tile_of_flash_attention(dim, index, causal, monkeypatch):
    config = flash._configs(dim, 2)[index]
    monkeypatch.setattr(flash, "_configs", lambda *_: [config])
    runtime.TUNED.clear()
    lengths = [(300, 300), (0, 7), (1, 1), (129, 513), (20, 10), (0, 0)]
    check_ragged(lengths if GPU else lengths[2:], 2, 1, dim, torch.float16, causal)


@pytest.mark.parametrize("scale", [0.5, -0.5, 0.0])
def test_flash_attention_with_a_scale(scale):
    check_ragged([(5, 20), (7, 3)], 2, 1, 32, torch.float32, True, scale)
    check_ragged([(5, 20), (7, 3)], 2, 1, 32, torch.float32, False, scale)


def test_one_sequence_needs_no_starts():
    q, k, v, *_ = ragged_case([(17, 40)], 4, 2, 32, torch.float32)
    out, lse = attention_forward(q, k, v, backend="triton")
    wanted = naive_attention(q.cpu(), k.cpu(), v.cpu())
    close(out, wanted[0], torch.float32)
    close(lse, wanted[1], torch.float32)


@pytest.mark.filterwarnings("ignore:All-NaN slice")
def test_a_sequence_sees_nothing_of_its_neighbors():
    q, k, v, *starts = ragged_case([(30, 30), (40, 40), (30, 30)], 2, 1, 32, torch.float32)
    wanted = naive_attention(q[30:70].cpu(), k[30:70].cpu(), v[30:70].cpu())
    for x in (q, k, v):
        x[:30] = x[70:] = math.nan
    for causal in (True, False):
        out, lse = attention_forward(q, k, v, causal, None, *starts, backend="triton")
        assert out[30:70].isfinite().all() and lse[30:70].isfinite().all()
    out, _ = attention_forward(q, k, v, True, None, *starts, backend="triton")
    close(out[30:70], wanted[0], torch.float32)


def test_heads_of_a_wider_tensor():
    q, k, v, *starts = ragged_case([(9, 20)], 2, 2, 32, torch.float32)
    wide = [torch.cat((torch.full_like(x, math.nan), x), dim=1)[:, 2:] for x in (q, k, v)]
    out, _ = attention_forward(*wide, True, None, *starts, backend="triton")
    close(out, naive_attention(q.cpu(), k.cpu(), v.cpu())[0], torch.float32)


@pytest.mark.parametrize("dim", [3, 512])
def test_flash_attention_says_what_it_cannot(dim):
    q = torch.zeros(2, 1, dim, device=DEVICE)
    with pytest.raises(ValueError, match="'triton' cannot: head_dim is at most 256"):
        attention_forward(q, q, q, backend="triton")


# ------------------------------------------------------------------------------------- paged

PAGED = {  # of queries and context
    "decode": [(1, 1), (1, 17), (1, 33), (1, 5), (1, 128), (1, 129)],
    "prompts": [(7, 7), (1, 1), (16, 16), (33, 33)],
    "chunks": [(3, 20), (16, 17), (2, 33)],
    "mixed": [(1, 40), (9, 9), (1, 1), (4, 21), (0, 6), (1, 16)],
    "nobody": [(0, 5)],
}
if GPU:
    PAGED["decode"] += [(1, 1000), (1, 127)]
    PAGED["mixed"] += [(129, 1000), (1, 999)]


def paged_case(lengths, block_size, heads, kv_heads, dim, dtype):
    """Blocks in random order; whatever nobody may read is NaN, or points outside."""
    needed = [-(-context // block_size) for _, context in lengths]
    order = torch.randperm(sum(needed) + 3).tolist()
    shape = (len(order), block_size, kv_heads, dim)
    pools = [torch.full(shape, math.nan, dtype=dtype, device=DEVICE) for _ in range(2)]
    tables = torch.full((len(lengths), max(needed) + 2), 10**6, dtype=torch.int32)
    queries, wanted = [], []
    for i, (count, context) in enumerate(lengths):
        q = draw(count, heads, dim, dtype=dtype)
        sources = [draw(context, kv_heads, dim, dtype=dtype) for _ in pools]
        for j in range(needed[i]):
            tables[i, j] = block = order.pop()
            part = slice(j * block_size, min((j + 1) * block_size, context))
            for pool, source in zip(pools, sources, strict=True):
                pool[block, : part.stop - part.start] = source[part]
        queries.append(q)
        wanted.append(naive_attention(q.cpu(), *(source.cpu() for source in sources)))
    counts = [count for count, _ in lengths]
    starts = ints([sum(counts[:i]) for i in range(len(counts) + 1)])
    contexts = ints([context for _, context in lengths])
    arguments = (torch.cat(queries), *pools, tables.to(DEVICE), contexts, starts)
    return arguments, [torch.cat(parts) for parts in zip(*wanted, strict=True)]


def check_paged(lengths, block_size, heads, kv_heads, dim, dtype, scale=None):
    arguments, wanted = paged_case(lengths, block_size, heads, kv_heads, dim, dtype)
    out, lse = paged_attention_forward(*arguments, scale, backend="triton")
    assert out.dtype == dtype and lse.dtype == torch.float32
    if scale is None:
        close(out, wanted[0], dtype)
        close(lse, wanted[1], dtype)
    return out


@pytest.fixture(params=[1, 100], ids=["whole", "split"])
def processors(request, monkeypatch):
    """As many multiprocessors as leave contexts whole, or split them as far as they go."""
    monkeypatch.setattr(paged, "num_processors", lambda device: request.param)


@pytest.mark.parametrize("block_size", [1, 4, 16])
@pytest.mark.parametrize("mix", PAGED)
def test_paged_attention_of_any_lengths(mix, block_size, processors):
    check_paged(PAGED[mix], block_size, 4, 2, 32, torch.float32)
    check_paged(PAGED[mix], block_size, 4, 2, 64, torch.float16)


@dims
@pytest.mark.parametrize(("heads", "kv_heads"), [*HEADS, (40, 2)])
def test_paged_attention_of_any_heads(heads, kv_heads, dim, dtype, processors):
    check_paged([(1, 70), (3, 20)], 16, heads, kv_heads, dim, dtype)
    if GPU:
        check_paged(PAGED["mixed"], 16, heads, kv_heads, dim, dtype)


@pytest.mark.parametrize("index", range(len(paged._configs(16, 64, 2))))
def test_every_tile_of_paged_attention(index, monkeypatch):
    if not GPU and index % 8:
        pytest.skip("interpreted, the configurations differ little")
    config = paged._configs(16, 64, 2)[index]
    monkeypatch.setattr(paged, "_configs", lambda *_: [config])
    runtime.TUNED.clear()
    check_paged([(1, 300), (1, 513), (1, 1)], 16, 4, 1, 64, torch.float16)


@pytest.mark.parametrize("scale", [-0.5, 0.0])
def test_paged_attention_with_a_scale(scale, processors):
    arguments, _ = paged_case(PAGED["mixed"], 4, 4, 2, 32, torch.float32)
    out, lse = paged_attention_forward(*arguments, scale, backend="triton")
    wanted = paged_attention_forward(*(x.cpu() for x in arguments), scale, backend="reference")
    close(out, wanted[0], torch.float32)
    close(lse, wanted[1], torch.float32)


def test_splits_are_no_more_than_the_tiles():
    assert paged._num_splits(1, 0, 1000) == 1
    assert paged._num_splits(512, 64, 132 * 16) == 8
    assert paged._num_splits(1, 512, 132 * 16) == 128
    assert paged._num_splits(5000, 512, 132 * 16) == 1


def test_paged_attention_says_what_it_cannot():
    q, pool = torch.zeros(1, 1, 512, device=DEVICE), torch.zeros(1, 4, 1, 512, device=DEVICE)
    with pytest.raises(ValueError, match="'triton' cannot: head_dim is at most 256"):
        paged_attention_forward(
            q, pool, pool, ints([[0]]), ints([1]), ints([0, 1]), backend="triton"
        )


# ------------------------------------------------------------------------------------- cache


@pytest.mark.parametrize("dtype", [*TOLERANCE, torch.float64], ids=str)
@pytest.mark.parametrize(("kv_heads", "dim"), [(1, 8), (3, 80), (40, 64)])
def test_reshape_and_cache(kv_heads, dim, dtype):
    both = draw(5, 2 * kv_heads + 1, dim, dtype=dtype)
    keys, values = both[:, :kv_heads], both[:, kv_heads:-1]
    pools = [torch.zeros(7, 4, kv_heads, dim, dtype=dtype, device=DEVICE) for _ in range(2)]
    slots = ints([27, 0, 5, 9, 12], torch.int64)
    reshape_and_cache(keys, values, *pools, slots, backend="triton")
    for pool, source in zip(pools, (keys, values), strict=True):
        memory = pool.flatten(0, 1)
        assert torch.equal(memory[slots], source)
        memory[slots] = 0.0
        assert not memory.any()
    reshape_and_cache(keys[:0], values[:0], *pools, slots[:0], backend="triton")


# ------------------------------------------------------------------------------------- runtime


def test_where_triton_runs():
    if runtime.INTERPRETED:
        assert "interpreter" in how_triton_runs()
    else:
        assert torch.cuda.get_device_name() in how_triton_runs()


def test_float64_is_refused_and_auto_passes_on(monkeypatch):
    x = draw(2, 3, dtype=torch.float64)
    with pytest.raises(ValueError, match="'triton' cannot: the kernels compute in float32"):
        softmax(x, backend="triton")
    monkeypatch.setitem(registry.ORDER, DEVICE, ("triton", "reference"))
    monkeypatch.setattr(registry, "_announced", set())
    with pytest.warns(registry.FallbackWarning, match="compute in float32"):
        out = softmax(x)
    torch.testing.assert_close(out, x.softmax(1))


def run(code: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"} | environment,
    )


@pytest.mark.skipif(GPU, reason="about machines without a GPU")
def test_triton_that_came_too_early_is_an_error_that_says_how():
    done = run("import triton; import yaie.ops.triton.runtime")
    assert "triton was imported before TRITON_INTERPRET=1 was set" in done.stderr


def test_where_triton_does_not_exist_it_is_said():
    done = run(
        "import sys; sys.modules['triton'] = None\n"
        "import importlib.util as u; u.find_spec = lambda name: None\n"
        "import torch\n"
        "from yaie.ops.interpreter import how_triton_runs; print(how_triton_runs())\n"
        "from yaie.course.lessons.ops.rows import softmax\n"
        "try: softmax(torch.ones(2, 2), backend='triton')\n"
        "except ValueError as error: print(error)\n"
    )
    said = "Triton is not installed (it exists for Linux only): the reference is used instead."
    first, second = done.stdout.splitlines()
    assert first == said and second == f"softmax: backend 'triton' cannot: {said}"


def test_a_configuration_is_timed_once_a_key(monkeypatch):
    monkeypatch.setattr(runtime, "INTERPRETED", False)
    monkeypatch.setattr(runtime, "TUNED", {})
    timed = []

    def time(launch, config):
        timed.append(config["n"])
        return {1: 3.0, 2: 1.0, 3: 2.0}[config["n"]]

    monkeypatch.setattr(runtime, "_time", time)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    configs = [{"n": 1}, {"n": 2}, {"n": 3}]
    choose = runtime.fastest
    assert choose(("small",), configs, print, large=False) == {"n": 1} and not timed
    assert choose(("k", 7), configs, print, large=True) == {"n": 2}
    assert choose(("k", 7), configs, print, large=False) == {"n": 2} and timed == [1, 2, 3]
    assert runtime.tuned() == "('k', 7): {'n': 2}, 1.0000 ms"
