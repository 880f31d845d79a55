"""The kernels of `csrc/kv/` and their operators: equal in every bit, whatever is copied.

Pools are full of NaN before, and what no slot, pair or table names has to stay as it was.
"""

from __future__ import annotations

import random
from functools import partial

import pytest
import torch

from yaie.build import jit
from yaie.course.lessons.ops import kv
from yaie.emulator import settings
from yaie.ops import kv as blocks

FP8 = torch.float8_e4m3fn
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64, FP8)
FLOATS = DTYPES[:3]
ORDERS = (("forward", 0), ("reverse", 0), ("random", 1))
has_gpu = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU"),
]
each_device = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=has_gpu)])
each_order = pytest.mark.parametrize("order", ORDERS, ids=lambda order: "-".join(map(str, order)))
# tokens, KV heads, head_dim, block_size
SHAPES = (
    *((5, 3, 64, 16), (7, 2, 33, 3), (9, 1, 5, 17), (4, 8, 32, 1), (3, 2, 256, 16)),
    *((1, 1, 1, 1), (0, 2, 8, 4), (40, 1, 80, 16), (6, 3, 7, 5), (2, 5, 96, 16)),
)


def bits(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous().view(torch.uint8)


def same(x: torch.Tensor, y: torch.Tensor) -> bool:
    return x.dtype == y.dtype and x.shape == y.shape and torch.equal(bits(x), bits(y))


def noise(*shape: int, dtype: torch.dtype, seed: int, device: str = "cpu") -> torch.Tensor:
    """Random bytes: every bit counts, and NaN of every kind occurs."""
    size = torch.empty(0, dtype=dtype).element_size()
    generator = torch.Generator().manual_seed(seed)
    found = torch.randint(256, (*shape, size), generator=generator, dtype=torch.uint8)
    return found.view(dtype).reshape(shape).to(device)


def shifted(x: torch.Tensor) -> torch.Tensor:
    """The same, an element behind an address that is a multiple of 16."""
    room = torch.empty(x.numel() + 1, dtype=x.dtype, device=x.device)
    return room[1:].view(x.shape).copy_(x)


# ------------------------------------------------------------------------- reshape_and_cache


def writes(shape, dtype, device="cpu"):
    """keys, values, pools and slots; the pool has more slots than there are tokens."""
    tokens, heads, dim, block_size = shape
    blocks = -(-tokens // block_size) + 3
    new = [noise(tokens, heads, dim, dtype=dtype, seed=i, device=device) for i in range(2)]
    pools = [
        noise(blocks, block_size, heads, dim, dtype=dtype, seed=i, device=device) for i in (2, 3)
    ]
    generator = torch.Generator().manual_seed(tokens)
    slots = torch.randperm(blocks * block_size, generator=generator)[:tokens].to(device)
    return *new, *pools, slots


def written(pool: torch.Tensor, new: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
    """One row after the other, in Python."""
    rows = pool.clone().flatten(0, 1)
    for token, slot in enumerate(slots.tolist()):
        if slot >= 0:
            bits(rows)[slot] = bits(new)[token]
    return rows.view(pool.shape)


@each_device
@pytest.mark.parametrize("dtype", DTYPES[:4], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_reshape_and_cache(shape, dtype, device):
    keys, values, key_pool, value_pool, slots = writes(shape, dtype, device)
    wanted = (
        written(key_pool.cpu(), keys.cpu(), slots),
        written(value_pool.cpu(), values.cpu(), slots),
    )
    kv.reshape_and_cache(keys, values, key_pool, value_pool, slots, backend="cuda")
    assert same(key_pool.cpu(), wanted[0]) and same(value_pool.cpu(), wanted[1])


def launch_write(name, checked, keys, values, key_pool, value_pool, slots):
    size = keys.element_size()
    row = keys.shape[1] * keys.shape[2] * size
    module = jit.load(f"kv/{name}.cu", checked)
    arguments = (keys, values, key_pool, value_pool, slots, len(keys), row, row, row)
    getattr(module, name)(*arguments)
    assert not checked or module.report.clean, module.report


@each_order
@pytest.mark.parametrize("name", ["reshape_and_cache", "reshape_and_cache_simple"])
def test_writes_are_clean_in_any_order(name, order):
    for shape in SHAPES:
        for move in (lambda x: x, shifted):
            keys, values, *pools, slots = map(move, writes(shape, torch.float16))
            slots = slots.clone()
            slots[1::3] = -1  # padding
            wanted = [written(p, n, slots) for p, n in zip(pools, (keys, values), strict=True)]
            with settings(order=order[0], seed=order[1]):
                launch_write(name, True, keys, values, *pools, slots)
            assert all(map(same, pools, wanted)), shape


@each_device
def test_tokens_may_lie_apart(device):
    """As slices of one product, of which a launcher takes the whole memory."""
    fused = noise(6, 9, 16, dtype=torch.bfloat16, seed=0, device=device)
    for keys, values in (
        (fused[:, 3:6], fused[:, 6:]),
        (fused[::2, 1:2], fused[1::2, 8:]),
        (fused.transpose(1, 2)[:, :9], fused.transpose(1, 2)[:, 7:16]),  # not even the heads touch
        (fused[:, :3, ::2], fused[:, 3:6, 1::2]),
        (fused[:1].expand(4, 9, 16)[:, :2], fused[:4, :2]),
    ):
        tokens, heads, dim = keys.shape
        key_pool, value_pool = (
            noise(5, 2, heads, dim, dtype=torch.bfloat16, seed=i, device=device) for i in (2, 3)
        )
        slots = torch.arange(9, 9 - tokens, -1, device=device)
        wanted = [
            written(p.cpu(), n.cpu(), slots) for p, n in ((key_pool, keys), (value_pool, values))
        ]
        kv.reshape_and_cache(keys, values, key_pool, value_pool, slots, backend="cuda")
        assert same(key_pool.cpu(), wanted[0]) and same(value_pool.cpu(), wanted[1])


def test_sixteen_bytes_a_thread_where_addresses_allow():
    for dim, size in ((64, 16), (4, 8), (66, 4), (33, 2)):
        arguments = writes((4, 1, dim, 16), torch.float16)
        for name in ("reshape_and_cache", "reshape_and_cache_simple"):
            launch_write(name, True, *arguments)
            report = jit.load(f"kv/{name}.cu", checked=True).report
            moved = {a.size for a in report.accesses if a.name != "slots"}
            assert moved == {size}, (name, dim)


# -------------------------------------------------------------------------------- copy_blocks


def cache(layers, blocks, shape, dtype, device="cpu"):
    """The pools of keys, then those of values."""
    return [noise(blocks, *shape, dtype=dtype, seed=i, device=device) for i in range(2 * layers)]


def copied(pool: torch.Tensor, pairs: list[tuple[int, int]]) -> torch.Tensor:
    """All sources are read before a target is written."""
    found, before = pool.clone(), pool.clone()
    for source, target in pairs:
        bits(found)[target] = bits(before)[source]
    return found


MAPPINGS = {
    "none": [],
    "one": [(0, 5)],
    "apart": [(0, 5), (1, 6), (2, 7), (1, 8)],
    "itself": [(3, 3), (3, 4)],
    "chain": [(0, 1), (1, 2), (2, 3), (4, 5)],
    "chain, backwards": [(2, 3), (1, 2), (0, 1)],
    "exchange": [(0, 1), (1, 0)],
    "circle": [(4, 0), (0, 7), (7, 3), (3, 4), (5, 6)],
    "circle with branches": [(0, 1), (1, 2), (2, 0), (1, 5), (5, 6), (5, 7), (3, 3), (3, 8)],
    "tree": [(0, 1), (1, 2), (1, 3), (2, 4), (2, 5), (3, 6), (0, 7)],
    "two circles": [(0, 1), (1, 0), (2, 3), (3, 4), (4, 2), (8, 5)],
}


@each_device
@pytest.mark.parametrize("pairs", MAPPINGS.values(), ids=MAPPINGS)
def test_copies_read_before_they_write(pairs, device):
    pools = cache(2, 9, (3, 2, 8), torch.float16, device)
    wanted = [copied(pool.cpu(), pairs) for pool in pools]
    mapping = torch.tensor(pairs, dtype=torch.int64, device=device).view(-1, 2)
    blocks.copy_blocks_cuda(pools[:2], pools[2:], mapping)
    assert all(same(pool.cpu(), want) for pool, want in zip(pools, wanted, strict=True))


@pytest.mark.parametrize("seed", range(8))
def test_random_copies(seed):
    rng = random.Random(seed)
    num_blocks = rng.randrange(2, 40)
    count = rng.randrange(1, num_blocks + 1)
    targets = rng.sample(range(num_blocks), count)
    pairs = [(rng.randrange(num_blocks), target) for target in targets]
    if seed % 2:  # a permutation: circles only
        pairs = list(zip(rng.sample(targets, count), targets, strict=True))
    pools = cache(1, num_blocks, (1, 1, 5), torch.float32)
    wanted = [copied(pool, pairs) for pool in pools]
    blocks.copy_blocks_cuda(pools[:1], pools[1:], torch.tensor(pairs))
    assert all(map(same, pools, wanted)), pairs


@each_device
@pytest.mark.parametrize("backend", ["reference", "cuda"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(16, 3, 64), (1, 2, 33), (3, 1, 5), (17, 2, 32), (16, 0, 8)])
def test_blocks_of_any_size(shape, dtype, backend, device):
    pairs = [(0, 3), (2, 1)]
    pools = cache(3, 5, shape, dtype, device)
    wanted = [copied(pool.cpu(), pairs) for pool in pools]
    mapping = torch.tensor(pairs, device=device)
    blocks.copy_blocks(pools[:3], pools[3:], mapping, backend=backend)
    assert all(same(pool.cpu(), want) for pool, want in zip(pools, wanted, strict=True))


@each_order
@pytest.mark.parametrize("pairs", MAPPINGS.values(), ids=MAPPINGS)
def test_copies_are_clean_in_any_order(pairs, order):
    module = jit.load("kv/copy_blocks.cu", checked=True)
    pools = cache(1, 9, (3, 2, 100), torch.float16)
    wanted = [copied(pool, pairs) for pool in pools]
    mapping = torch.tensor(pairs, dtype=torch.int64).view(-1, 2)
    with settings(order=order[0], seed=order[1]):
        module.copy_blocks(pools, mapping, 2, len(pairs), 1200, 16)
    assert module.report is None or module.report.clean, module.report
    assert all(map(same, pools, wanted))


@each_order
@pytest.mark.parametrize("unit", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("thread_blocks", [1, 3, 40])
def test_one_pair_after_the_other(unit, thread_blocks, order):
    """Rung 1 copies as the list says, whatever the grid."""
    module = jit.load("kv/copy_blocks_simple.cu", checked=True)
    pools = cache(2, 9, (4, 1, 64), torch.float16)
    pairs = [(2, 3), (1, 2), (0, 1), (3, 8), (0, 0)]
    wanted = [pool.clone() for pool in pools]
    for pool in wanted:
        for source, target in pairs:
            bits(pool)[target] = bits(pool)[source]
    with settings(order=order[0], seed=order[1]):
        module.copy_blocks_simple(pools, torch.tensor(pairs), 4, 5, 512, unit, thread_blocks)
    assert module.report.clean, module.report
    assert all(map(same, pools, wanted))


def test_pools_at_any_address():
    pairs = [(0, 3), (2, 1)]
    pools = [shifted(pool) for pool in cache(1, 4, (2, 1, 8), torch.float16)]
    wanted = [copied(pool, pairs) for pool in pools]
    blocks.copy_blocks_cuda(pools[:1], pools[1:], torch.tensor(pairs))
    assert all(map(same, pools, wanted))


def test_what_copies_cannot_do_is_said():
    pools = cache(1, 3, (2, 1, 8), torch.float16)
    with pytest.raises(ValueError, match=r"cannot: there may be 4096 pairs, got 4097"):
        many = torch.zeros(4097, 2, dtype=torch.int64)
        torch.ops.yaie.copy_blocks(pools[:1], pools[1:], many, backend="cuda")
    with pytest.raises(ValueError, match=r"cannot: blocks must have one size in all pools, below"):
        blocks.copy_blocks_cuda(pools[:1], [pools[1][:, :1].contiguous()], torch.tensor([[0, 1]]))
    with pytest.raises(ValueError, match=r"cannot: pools must be contiguous"):
        blocks.copy_blocks_cuda(pools[:1], [pools[1].transpose(1, 3)], torch.tensor([[0, 1]]))


# ------------------------------------------------------------------------------------- gather

LENGTHS = ((), (0,), (1,), (5, 0, 9), (16, 17, 15, 1, 0), (3,) * 7)


def sequences(lengths, block_size, heads, dim, dtype, device="cpu"):
    """Pools, tables in random order with rubbish behind the ends, starts, and the slots."""
    needed = [-(-n // block_size) for n in lengths]
    width, blocks = max(needed, default=0) + 2, sum(needed) + 3
    order = torch.randperm(blocks, generator=torch.Generator().manual_seed(0)).tolist()
    tables = torch.full((len(lengths), width), 10**9, dtype=torch.int32)
    slots = []
    for row, (n, count) in enumerate(zip(lengths, needed, strict=True)):
        mine, order = order[:count], order[count:]
        tables[row, :count] = torch.tensor(mine, dtype=torch.int32)
        slots += [mine[t // block_size] * block_size + t % block_size for t in range(n)]
    starts = torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0).int()
    pools = [
        noise(blocks, block_size, heads, dim, dtype=dtype, seed=i, device=device) for i in (0, 1)
    ]
    return (*pools, tables.to(device), starts.to(device), len(slots)), slots


@each_device
@pytest.mark.parametrize("backend", ["reference", "cuda"])
@pytest.mark.parametrize("dtype", DTYPES[:4], ids=str)
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_gather(lengths, dtype, backend, device):
    for block_size, heads, dim in ((1, 2, 8), (3, 1, 33), (16, 3, 64), (17, 2, 5)):
        arguments, slots = sequences(lengths, block_size, heads, dim, dtype, device)
        got = kv.gather_kv(*arguments, backend=backend)
        for pool, found in zip(arguments[:2], got, strict=True):
            assert same(found.cpu(), pool.cpu().flatten(0, 1)[slots])


@each_order
def test_gather_is_clean_in_any_order(order):
    module = jit.load("kv/gather_kv.cu", checked=True)
    for lengths in LENGTHS:
        (key_pool, value_pool, tables, starts, total), slots = sequences(
            lengths, 3, 2, 20, torch.float16
        )
        out = [torch.full((total, 2, 20), torch.nan).half() for _ in range(2)]
        with settings(order=order[0], seed=order[1]):
            module.gather_kv(key_pool, value_pool, tables, starts, *out, *tables.shape, 3, 80)
        assert module.report is None or module.report.clean, module.report
        assert same(out[0], key_pool.flatten(0, 1)[slots])


def test_what_is_written_is_gathered():
    keys, values, key_pool, value_pool, _ = writes((9, 3, 16, 4), torch.bfloat16)
    tables, starts = torch.tensor([[4, 1, 3]], dtype=torch.int32), torch.tensor([0, 9]).int()
    slots = torch.tensor([16, 17, 18, 19, 4, 5, 6, 7, 12])
    kv.reshape_and_cache(keys, values, key_pool, value_pool, slots, backend="cuda")
    got = kv.gather_kv(key_pool, value_pool, tables, starts, 9, backend="cuda")
    assert same(got[0], keys) and same(got[1], values)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_tokens": 13}, "cu_seqlens must rise from 0 to num_tokens = 13"),
        ({"num_tokens": -1}, "num_tokens must be 0 or more, got -1"),
        ({"num_tokens": 14.0}, "num_tokens must be an int, got float"),
        ({"cu_seqlens": torch.tensor([0, 9, 5, 14]).int()}, "cu_seqlens must rise"),
        ({"block_tables": torch.zeros(3, 2).int()}, "block_tables has 2 blocks a sequence"),
        ({"block_tables": torch.full((3, 4), 99).int()}, "block_tables must be from 0 to"),
        ({"key_scale": torch.ones(1)}, "key_scale is for pools of float8_e4m3fn"),
    ],
)
def test_sequences_that_do_not_fit(change, message):
    names = ("key_pool", "value_pool", "block_tables", "cu_seqlens", "num_tokens")
    arguments = dict(zip(names, sequences((5, 0, 9), 3, 2, 8, torch.float32)[0], strict=True))
    with pytest.raises((ValueError, TypeError), match=message):
        kv.gather_kv(**arguments | change)


# ---------------------------------------------------------------------------------------- fp8

CODES = torch.arange(256, dtype=torch.uint8).view(FP8)


def nearest(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """The e4m3 numbers nearest to x / scale, of two as near the one with the even code.

    Searched for among all codes; the quotient is rounded to float32 as the operators promise.
    """
    scaled = (x.float() / scale.view(1, -1, 1)).double().flatten()
    codes = torch.arange(0x7F, dtype=torch.uint8)  # all that are positive and finite, rising
    numbers = codes.view(FP8).double()
    magnitudes = scaled.abs().clamp(max=1000.0)  # beyond the last code they are all alike
    distance = (magnitudes[:, None] - numbers).abs()
    best = distance == distance.min(dim=1, keepdim=True).values
    even = best & (codes % 2 == 0)
    picked = torch.where(even.any(1), even.int().argmax(1), best.int().argmax(1))
    found = numbers[picked].copysign(scaled)
    found[scaled.isnan()] = torch.nan
    return found.view(x.shape)


def awkward(tokens, heads, dim, dtype):
    """Numbers of every size, middles between codes, infinities, NaN, zeros of both signs."""
    generator = torch.Generator().manual_seed(dim)
    x = torch.randn(tokens, heads, dim, generator=generator)
    x = x * torch.exp2(torch.randint(-14, 12, x.shape, generator=generator).float())
    codes = CODES.float()
    middles = (codes[:0x7E] + codes[1:0x7F]) / 2
    special = torch.tensor([0.0, -0.0, 448.0, 464.0, 480.0, -1e30, torch.nan, torch.inf])
    flat = x.view(-1)
    picks = torch.cat((special, middles, -middles))[: flat.numel() // 2]
    flat[: len(picks)] = picks
    return x.to(dtype)


@each_device
@pytest.mark.parametrize("backend", ["reference", "cuda"])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape", [(9, 3, 64, 4), (7, 2, 33, 3), (2, 1, 5, 16), (0, 2, 8, 1)])
def test_fp8_is_the_nearest_and_saturates(shape, dtype, backend, device):
    tokens, heads, dim, block_size = shape
    keys, values = awkward(tokens, heads, dim, dtype), awkward(tokens, heads, dim + 1, dtype)
    values = values[..., 1:]
    blocks = -(-tokens // block_size) + 2
    slots = torch.randperm(blocks * block_size)[:tokens]
    for scale in (torch.ones(1), torch.tensor([0.37]), torch.rand(heads) + 0.1):
        scales = scale.to(device), 3 * scale.to(device)
        pools = [noise(blocks, block_size, heads, dim, dtype=FP8, seed=i) for i in (0, 1)]
        before = [pool.clone() for pool in pools]
        on_device = [pool.to(device) for pool in pools]
        kv.reshape_and_cache(
            keys.to(device), values.to(device), *on_device, slots.to(device),
            key_scale=scales[0], value_scale=scales[1], backend=backend,
        )  # fmt: skip
        for pool, old, new, one in zip(
            on_device, before, (keys, values), (scale, 3 * scale), strict=True
        ):
            rows = pool.cpu().flatten(0, 1)
            want = nearest(new, one)
            torch.testing.assert_close(rows[slots].double(), want, rtol=0, atol=0, equal_nan=True)
            bits(rows)[slots] = bits(old.flatten(0, 1))[slots]
            assert same(rows.view(pool.shape), old)  # nothing else was touched


@each_device
@pytest.mark.parametrize("backend", ["reference", "cuda"])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_fp8_comes_back_times_its_scale(dtype, backend, device):
    for lengths in LENGTHS:
        arguments, slots = sequences(lengths, 3, 2, 33, FP8, device)
        for scale in (torch.tensor([0.37]), torch.tensor([0.5, 3.0])):
            got = kv.gather_kv(
                *arguments, key_scale=scale.to(device), value_scale=2 * scale.to(device),
                dtype=dtype, backend=backend,
            )  # fmt: skip
            for pool, found, one in zip(arguments[:2], got, (scale, 2 * scale), strict=True):
                codes = pool.cpu().flatten(0, 1)[slots].double()
                want = (codes * one.double().view(1, -1, 1)).float().to(dtype)
                torch.testing.assert_close(found.cpu(), want, rtol=0, atol=0, equal_nan=True)


@each_order
def test_fp8_is_clean_in_any_order(order):
    keys, values, *_, slots = writes((7, 2, 33, 3), torch.float16)
    slots[2] = -1
    pools = [noise(6, 3, 2, 33, dtype=FP8, seed=i) for i in (0, 1)]
    scale = torch.tensor([0.5, 2.0])
    write = jit.load("kv/reshape_and_cache_fp8.cu", checked=True)
    read = jit.load("kv/gather_kv_fp8.cu", checked=True)
    arguments, _ = sequences((5, 0, 9), 3, 2, 33, FP8)
    out = [torch.full((14, 2, 33), torch.nan) for _ in range(2)]
    with settings(order=order[0], seed=order[1]):
        write.reshape_and_cache_fp8_f16(
            keys, values, *pools, slots, scale, scale, 7, 2, 33, 1, 66, 66
        )
        assert write.report.clean, write.report
        tables = arguments[2]
        read.gather_kv_fp8_f32(*arguments[:4], scale, scale, *out, *tables.shape, 3, 2, 33, 1)
        assert read.report.clean, read.report


@pytest.mark.parametrize(
    ("scales", "message"),
    [
        ((None, None), "key_scale is needed for pools of float8_e4m3fn, got None"),
        ((torch.ones(2), None), "value_scale is needed"),
        ((torch.ones(3), torch.ones(3)), r"have shape \[2\] or both \[1\], got key_scale"),
        ((torch.ones(2), torch.ones(1)), "both"),
        ((torch.ones(2).double(), torch.ones(2)), "key_scale must be float32, got float64"),
    ],
)
def test_scales_that_do_not_fit(scales, message):
    keys, values, *_, slots = writes((4, 2, 8, 4), torch.float32)
    pools = [noise(4, 4, 2, 8, dtype=FP8, seed=i) for i in (0, 1)]
    with pytest.raises((ValueError, TypeError), match=message):
        kv.reshape_and_cache(
            keys, values, *pools, slots, key_scale=scales[0], value_scale=scales[1]
        )


# ---------------------------------------------------------------------------------- operators


def calls(device="cpu"):
    """The arguments of each operator, as torch.library sees them."""
    half = partial(noise, dtype=torch.float16, device=device)
    eight = partial(noise, dtype=FP8, device=device)
    slots = torch.tensor([7, 0, 3], device=device)
    scale = torch.tensor([0.5, 2.0], device=device)
    new = half(3, 2, 8, seed=0).nan_to_num(), half(3, 2, 8, seed=1).nan_to_num()
    pools = half(4, 2, 2, 8, seed=2).nan_to_num(), half(4, 2, 2, 8, seed=3).nan_to_num()
    tables = torch.tensor([[3, 0], [1, 9]], dtype=torch.int32, device=device)
    starts = torch.tensor([0, 3, 5], dtype=torch.int32, device=device)
    eights = eight(4, 2, 2, 8, seed=2), eight(4, 2, 2, 8, seed=3)
    mapping = torch.tensor([[0, 1], [1, 2]], device=device)
    return {
        "reshape_and_cache": (*new, *pools, slots),
        "reshape_and_cache_fp8": (*new, *eights, slots, scale, scale),
        "copy_blocks": ([pools[0]], [pools[1]], mapping),
        "gather_kv": (*pools, tables, starts, 5),
        "gather_kv_fp8": (*eights, tables, starts, 5, scale, scale, torch.float16),
    }


@each_device
@pytest.mark.parametrize("name", calls())
def test_opcheck(name, device):
    operator = getattr(torch.ops.yaie, name).default
    tests = ("test_schema", "test_faketensor")
    if "fp8" in name:  # it compares by allclose, which torch.float8_e4m3fn has not
        tests = ("test_faketensor",)
    torch.library.opcheck(operator, calls(device)[name], {"backend": "cuda"}, test_utils=tests)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU")
@pytest.mark.parametrize("name", calls())
def test_captured_in_a_cuda_graph(name):
    """Nothing waits for the host: a graph holds the launch and runs it again on new data."""
    operator = getattr(torch.ops.yaie, name).default
    arguments, fresh, wanted = calls("cuda"), calls("cuda"), calls("cuda")
    operator(*arguments[name], backend="cuda")  # compiles, and sends the list of pools
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = operator(*arguments[name], backend="cuda")
    for old, new in zip(flat(arguments[name]), flat(fresh[name]), strict=True):
        old.copy_(new)
    graph.replay()
    want = operator(*wanted[name], backend="reference")
    for one, other in zip(flat(arguments[name]), flat(wanted[name]), strict=True):
        assert torch.equal(bits(one), bits(other))
    for one, other in zip(got or (), want or (), strict=True):
        assert torch.equal(bits(one), bits(other))


def flat(arguments):
    """All tensors, those in lists too."""
    for argument in arguments:
        if isinstance(argument, torch.Tensor):
            yield argument
        elif isinstance(argument, list):
            yield from argument
