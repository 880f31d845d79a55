"""The kernels of `csrc/kv/` and their operators: equal in every bit, whatever is copied.

Pools are full of random bits before, NaN among them, and what no slot, pair or table names has to
stay as it was.
"""

import random
from unittest import mock

import pytest
import torch
from launches import (
    FLOATS,
    NEEDS_TRITON,
    bits,
    checked,
    each_device,
    each_dtype,
    each_way,
    same,
    shifted,
    skip_unless_it_runs_on,
    starts,
)

from yaie.build import jit
from yaie.course.lessons.ops import kv
from yaie.ops import registry
from yaie.ops.cuda import kv as cuda
from yaie.ops.cuda import launching
from yaie.ops.cuda.rotary import rotary_and_cache
from yaie.ops.reference.rotary import rotary_tables
from yaie.ops.rotary import rotary

FP8 = torch.float8_e4m3fn
DTYPES = (*FLOATS, torch.float64, FP8)
each_backend = pytest.mark.parametrize("backend", ["reference", "cuda"])
# tokens, KV heads, head_dim, block_size
SHAPES = (
    *((5, 3, 64, 16), (7, 2, 33, 3), (9, 1, 5, 17), (4, 8, 32, 1), (3, 2, 256, 16)),
    *((1, 1, 1, 1), (0, 2, 8, 4), (40, 1, 80, 16), (6, 3, 7, 5), (2, 5, 96, 16)),
)


def noise(*shape: int, dtype: torch.dtype, seed: int, device: str = "cpu") -> torch.Tensor:
    """Random bytes: every bit counts, and NaN of every kind occurs."""
    size = torch.empty(0, dtype=dtype).element_size()
    generator = torch.Generator().manual_seed(seed)
    found = torch.randint(256, (*shape, size), generator=generator, dtype=torch.uint8)
    return found.view(dtype).reshape(shape).to(device)


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


def write(backend: str, *arguments: torch.Tensor) -> None:
    if backend == "simple":
        name = "reshape_and_cache_simple"
        cuda.reshape_and_cache(*arguments, f"kv/{name}.cu", name)
    elif backend == "cuda":
        cuda.reshape_and_cache(*arguments)
    else:
        registry.resolve("reshape_and_cache", backend)(*arguments)


@each_device
@each_dtype(DTYPES[:4])
@pytest.mark.parametrize(
    "backend", ["reference", "cuda", "simple", pytest.param("triton", marks=NEEDS_TRITON)]
)
def test_reshape_and_cache(backend, dtype, device):
    """By the kernels of CUDA C++ also at any address, and with slots of padding."""
    skip_unless_it_runs_on(device, backend)
    ours = backend in ("cuda", "simple")
    for shape in SHAPES:
        for move in (lambda x: x, shifted) if ours else (lambda x: x,):
            keys, values, *pools, slots = (x.to(device) for x in map(move, writes(shape, dtype)))
            if ours:
                slots = slots.clone()
                slots[1::3] = -1
            wanted = [
                written(pool.cpu(), new.cpu(), slots)
                for pool, new in zip(pools, (keys, values), strict=True)
            ]
            for _ in each_way(device) if dtype == torch.float16 and ours else [None]:
                got = [pool.clone() if move is not shifted else move(pool) for pool in pools]
                write(backend, keys, values, *got, slots)
                assert all(same(x.cpu(), want) for x, want in zip(got, wanted, strict=True)), shape


@each_device
@each_dtype()
@pytest.mark.parametrize("shape", [(5, 3, 2, 64), (40, 1, 1, 80), (3, 4, 1, 6), (0, 2, 2, 16)])
def test_rotating_and_writing_together(shape, dtype, device):
    """The same bits as by the two operators, at any address, and with slots of padding."""
    tokens, heads, kv_heads, dim = shape
    torch.manual_seed(0)
    x = torch.randn(tokens, heads + 2 * kv_heads, dim).to(device, dtype)
    tables = [table.to(device) for table in rotary_tables(dim, 40)]
    positions = torch.arange(tokens, device=device) * 7 % 40
    *_, key_pool, value_pool, slots = writes((tokens, kv_heads, dim, 4), dtype, device)
    slots[1::3] = -1
    for move in (torch.clone, shifted):
        moved, turns = move(x), [positions, *map(move, tables)]
        turned = rotary(moved[:, : heads + kv_heads], *turns, backend="cuda")
        wanted = key_pool.clone(), value_pool.clone()
        cuda.reshape_and_cache(turned[:, heads:], x[:, heads + kv_heads :], *wanted, slots)
        for _ in each_way(device):
            got = move(key_pool), move(value_pool)
            with mock.patch.object(launching, "MOST", x.numel()):  # pools may be larger
                q = rotary_and_cache(moved, *turns, *got, slots)
            assert same(q, turned[:, :heads]) and all(map(same, got, wanted))


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
        for name in ("cuda", "simple"):
            with checked() as launched:
                write(name, *arguments)
            report = launched[-1].report
            moved = {access.size for access in report.accesses if access.name != "slots"}
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
@each_backend
@pytest.mark.parametrize("pairs", MAPPINGS.values(), ids=MAPPINGS)
def test_copies_read_before_they_write(pairs, backend, device):
    mapping = torch.tensor(pairs, dtype=torch.int64, device=device).view(-1, 2)
    for row in ((3, 2, 8), (3, 2, 100)):
        for _ in each_way(device):
            pools = cache(2, 9, row, torch.float16, device)
            wanted = [copied(pool.cpu(), pairs) for pool in pools]
            registry.resolve("copy_blocks", backend)(pools[:2], pools[2:], mapping)
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
    kv.copy_blocks_cuda(pools[:1], pools[1:], torch.tensor(pairs))
    assert all(map(same, pools, wanted)), pairs


@each_device
@each_backend
@each_dtype(DTYPES)
@pytest.mark.parametrize("shape", [(16, 3, 64), (1, 2, 33), (3, 1, 5), (17, 2, 32), (16, 0, 8)])
def test_blocks_of_any_size(shape, dtype, backend, device):
    pairs = [(0, 3), (2, 1)]
    pools = cache(3, 5, shape, dtype, device)
    wanted = [copied(pool.cpu(), pairs) for pool in pools]
    mapping = torch.tensor(pairs, device=device)
    kv.copy_blocks(pools[:3], pools[3:], mapping, backend=backend)
    assert all(same(pool.cpu(), want) for pool, want in zip(pools, wanted, strict=True))


@pytest.mark.parametrize("unit", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("thread_blocks", [1, 3, 40])
def test_one_pair_after_the_other(unit, thread_blocks):
    """Rung 1 copies as the list says, whatever the grid."""
    module = jit.load("kv/copy_blocks_simple.cu", checked=True)
    pairs = [(2, 3), (1, 2), (0, 1), (3, 8), (0, 0)]
    for _ in each_way("cpu"):
        pools = cache(2, 9, (4, 1, 64), torch.float16)
        wanted = [pool.clone() for pool in pools]
        for pool in wanted:
            for source, target in pairs:
                bits(pool)[target] = bits(pool)[source]
        module.copy_blocks_simple(pools, torch.tensor(pairs), 4, 5, 512, unit, thread_blocks)
        assert module.report.clean, module.report
        assert all(map(same, pools, wanted))


def test_pools_at_any_address():
    pairs = [(0, 3), (2, 1)]
    pools = [shifted(pool) for pool in cache(1, 4, (2, 1, 8), torch.float16)]
    wanted = [copied(pool, pairs) for pool in pools]
    kv.copy_blocks_cuda(pools[:1], pools[1:], torch.tensor(pairs))
    assert all(map(same, pools, wanted))


def test_what_copies_cannot_do_is_said():
    pools = cache(1, 3, (2, 1, 8), torch.float16)
    with pytest.raises(ValueError, match=r"cannot: pairs are at most 4096, got 4097"):
        many = torch.zeros(4097, 2, dtype=torch.int64)
        torch.ops.yaie.copy_blocks(pools[:1], pools[1:], many, backend="cuda")
    with pytest.raises(ValueError, match=r"cannot: blocks must have one size in all pools, below"):
        kv.copy_blocks_cuda(pools[:1], [pools[1][:, :1].contiguous()], torch.tensor([[0, 1]]))
    with pytest.raises(ValueError, match=r"cannot: pools must be contiguous"):
        kv.copy_blocks_cuda(pools[:1], [pools[1].transpose(1, 3)], torch.tensor([[0, 1]]))


# ------------------------------------------------------------------------------------- gather

LENGTHS = ((), (0,), (1,), (5, 0, 9), (16, 17, 15, 1, 0), (3,) * 7)


def sequences(lengths, block_size, heads, dim, dtype, device="cpu"):
    """Pools, tables in random order with garbage past the ends, starts, and the slots."""
    needed = [-(-n // block_size) for n in lengths]
    width, blocks = max(needed, default=0) + 2, sum(needed) + 3
    order = torch.randperm(blocks, generator=torch.Generator().manual_seed(0)).tolist()
    tables = torch.full((len(lengths), width), 10**9, dtype=torch.int32)
    slots = []
    for row, (n, count) in enumerate(zip(lengths, needed, strict=True)):
        mine, order = order[:count], order[count:]
        tables[row, :count] = torch.tensor(mine, dtype=torch.int32)
        slots += [mine[t // block_size] * block_size + t % block_size for t in range(n)]
    pools = [
        noise(blocks, block_size, heads, dim, dtype=dtype, seed=i, device=device) for i in (0, 1)
    ]
    return (*pools, tables.to(device), starts(lengths, device), len(slots)), slots


@each_device
@each_backend
@each_dtype(DTYPES[:4])
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_gather(lengths, dtype, backend, device):
    for block_size, heads, dim in ((1, 2, 8), (3, 1, 33), (3, 2, 20), (16, 3, 64), (17, 2, 5)):
        arguments, slots = sequences(lengths, block_size, heads, dim, dtype, device)
        for _ in each_way(device) if backend == "cuda" else [None]:
            got = kv.gather_kv(*arguments, backend=backend)
            for pool, found in zip(arguments[:2], got, strict=True):
                assert same(found.cpu(), pool.cpu().flatten(0, 1)[slots])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_tokens": 13}, "cu_seqlens must ascend from 0 to 13"),
        ({"num_tokens": -1}, "num_tokens must be 0 or more, got -1"),
        ({"num_tokens": 14.0}, "num_tokens must be an int, got float"),
        ({"cu_seqlens": torch.tensor([0, 9, 5, 14]).int()}, "cu_seqlens must ascend"),
        ({"block_tables": torch.zeros(3, 2).int()}, "block_tables has 2 blocks per sequence"),
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
@each_backend
@each_dtype()
@pytest.mark.parametrize("shape", [(9, 3, 64, 4), (7, 2, 33, 3), (2, 1, 5, 16), (0, 2, 8, 1)])
def test_fp8_is_the_nearest_and_saturates(shape, dtype, backend, device):
    tokens, heads, dim, block_size = shape
    keys, values = awkward(tokens, heads, dim, dtype), awkward(tokens, heads, dim + 1, dtype)
    values = values[..., 1:]
    blocks = -(-tokens // block_size) + 2
    slots = torch.randperm(blocks * block_size)[:tokens]
    pools = [noise(blocks, block_size, heads, dim, dtype=FP8, seed=i) for i in (0, 1)]
    for scale in (torch.ones(1), torch.tensor([0.37]), torch.rand(heads) + 0.1):
        scales = {"key_scale": scale.to(device), "value_scale": 3 * scale.to(device)}
        for _ in each_way(device) if backend == "cuda" else [None]:
            given = (x.to(device) for x in (keys, values, *[pool.clone() for pool in pools], slots))
            new_keys, new_values, *written, on_device = given
            kv.reshape_and_cache(
                new_keys, new_values, *written, on_device, **scales, backend=backend
            )
            for pool, old, new, one in zip(
                written, pools, (keys, values), (scale, 3 * scale), strict=True
            ):
                rows, want = pool.cpu().flatten(0, 1), nearest(new, one)
                got = rows[slots].double()
                torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)
                bits(rows)[slots] = bits(old.flatten(0, 1))[slots]
                assert same(rows.view(pool.shape), old)  # nothing else was touched


@each_device
@each_backend
@each_dtype()
def test_fp8_comes_back_times_its_scale(dtype, backend, device):
    for lengths in LENGTHS:
        arguments, slots = sequences(lengths, 3, 2, 33, FP8, device)
        for scale in (torch.tensor([0.37]), torch.tensor([0.5, 3.0])):
            scales = {"key_scale": scale.to(device), "value_scale": 2 * scale.to(device)}
            for _ in each_way(device) if backend == "cuda" else [None]:
                got = kv.gather_kv(*arguments, **scales, dtype=dtype, backend=backend)
                for pool, found, one in zip(arguments[:2], got, (scale, 2 * scale), strict=True):
                    codes = pool.cpu().flatten(0, 1)[slots].double()
                    want = (codes * one.double().view(1, -1, 1)).float().to(dtype)
                    torch.testing.assert_close(found.cpu(), want, rtol=0, atol=0, equal_nan=True)


def test_fp8_padding_is_written_nowhere():
    keys, values, *_, slots = writes((7, 2, 33, 3), torch.float16)
    scale = torch.tensor([0.5, 2.0])
    before = [noise(6, 3, 2, 33, dtype=FP8, seed=i) for i in (0, 1)]
    write_fp8 = registry.resolve("reshape_and_cache_fp8", "cuda")
    kept, padded = torch.tensor([0, 1, 3, 4, 5, 6]), slots.clone()
    padded[2] = -1
    wanted = [pool.clone() for pool in before]
    write_fp8(keys[kept], values[kept], *wanted, slots[kept], scale, scale)
    for _ in each_way("cpu"):
        got = [pool.clone() for pool in before]
        write_fp8(keys, values, *got, padded, scale, scale)
        assert all(map(same, got, wanted))


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
