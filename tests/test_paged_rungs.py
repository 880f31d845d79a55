"""The readable rungs of paged decoding: any dtype and shape, on the emulator and on a GPU if any.

Slots that belong to no context hold NaN, entries of the tables behind a context's end no block, and
outputs and work space NaN: nothing of it may show.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import pytest
import torch

from yaie.build import jit
from yaie.emulator import settings
from yaie.ops.cuda.launching import SUFFIXES
from yaie.ops.cuda.paged import RUNGS, arguments
from yaie.ops.registry import Unsupported

READABLE = ("one_block", "grouped", "split")
DTYPES = {suffix: dtype for dtype, suffix in SUFFIXES.items()}
# Of a result that is rounded once; float32 sums run in another order than float64 ones.
RTOL = {torch.float32: 2e-5, torch.float16: 2**-10, torch.bfloat16: 2**-7}
NO_BLOCK = 1 << 30
DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=[
            pytest.mark.gpu,
            pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU"),
        ],
    ),
]
each_rung = pytest.mark.parametrize("rung", READABLE)
each_dtype = pytest.mark.parametrize("suffix", DTYPES)
each_device = pytest.mark.parametrize("device", DEVICES)


@dataclass(frozen=True)
class Shape:
    """A batch: contexts, one query each or as many as `queries` says, and its heads."""

    contexts: tuple[int, ...]
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    block_size: int = 16
    queries: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.heads}-{self.kv_heads}x{self.head_dim}-{self.block_size}"


SHAPES = (
    Shape((0, 1, 17, 70, 0, 5)),
    Shape((40, 3), heads=9, kv_heads=3),
    Shape((33,), heads=1, kv_heads=1, head_dim=33, block_size=5),
    Shape((31, 0, 2), heads=16, kv_heads=1, head_dim=128, block_size=1),
    Shape((9, 50), heads=11, kv_heads=1, head_dim=256, block_size=7),
    Shape((12, 64), heads=6, kv_heads=2, head_dim=20),
    Shape((3,), heads=2, kv_heads=2, head_dim=1, block_size=2),
    Shape((20, 9), heads=5, kv_heads=5, head_dim=80, block_size=4),
    Shape((9, 12, 0, 30), queries=(2, 0, 0, 3), head_dim=16),
    Shape((), head_dim=8),
)
LONG = Shape((100_000, 0, 1, 2500), heads=2, kv_heads=1, head_dim=16)
CHUNKS = Shape((1024, 1025, 2100), heads=2, kv_heads=1, head_dim=8)  # of one_block


def batch(shape: Shape, dtype: torch.dtype, device: str = "cpu", spread: float = 1.0) -> list:
    """q, pools, tables, context_lens and cu_seqlens."""
    generator = torch.Generator().manual_seed(sum(shape.contexts) + shape.head_dim)
    row = (shape.kv_heads, shape.head_dim)
    needed = [-(-context // shape.block_size) for context in shape.contexts]
    blocks = torch.randperm(sum(needed) + 3, generator=generator).split([*needed, 3])[:-1]
    pools = [torch.full((sum(needed) + 3, shape.block_size, *row), torch.nan) for _ in range(2)]
    tables = torch.full((len(needed), max(needed, default=0) + 2), NO_BLOCK, dtype=torch.int32)
    for i, (mine, context) in enumerate(zip(blocks, shape.contexts, strict=True)):
        tables[i, : len(mine)] = mine.int()
        slots = (mine[:, None] * shape.block_size + torch.arange(shape.block_size)).flatten()
        for pool in pools:
            pool.view(-1, *row)[slots[:context]] = torch.randn(context, *row, generator=generator)
    counts = shape.queries or (1,) * len(needed)
    q = torch.randn(sum(counts), shape.heads, shape.head_dim, generator=generator) * spread
    starts = torch.tensor([0, *counts]).cumsum(0)
    floats = [tensor.to(device, dtype) for tensor in (q, *pools)]
    integers = (tables, torch.tensor(shape.contexts), starts)
    return [*floats, *(tensor.to(device, torch.int32) for tensor in integers)]


def oracle(q, key_pool, value_pool, tables, contexts, starts) -> list[torch.Tensor]:
    """In float64, a query and a head at a time."""
    out = torch.zeros(q.shape, dtype=torch.float64)
    lse = torch.full(q.shape[:2], -torch.inf, dtype=torch.float64)
    group = q.shape[1] // key_pool.shape[2]
    for i, ((begin, end), context) in enumerate(
        zip(pairwise(starts.tolist()), contexts.tolist(), strict=True)
    ):
        table = tables[i, : -(-context // key_pool.shape[1])].long().cpu()
        keys, values = (pool.cpu().double()[table].flatten(0, 1) for pool in (key_pool, value_pool))
        for row in range(begin, end):
            seen = context - (end - 1 - row)
            for head in range(q.shape[1] if seen > 0 else 0):
                k, v = keys[:seen, head // group], values[:seen, head // group]
                scores = k @ q[row, head].cpu().double() / q.shape[2] ** 0.5
                lse[row, head] = torch.logsumexp(scores, 0)
                out[row, head] = torch.softmax(scores, 0) @ v
    return [out, lse]


def run(
    rung: str, operands: Sequence, checked: bool = False, splits: int = 3, part: int = 16,
    starts: bool = True,
) -> list[torch.Tensor]:  # fmt: skip
    """Launch a rung into memory that holds NaN; in checked mode nothing may be found."""
    given = [*operands[:5], operands[5] if starts else None, None]
    (out, lse), every = arguments(*given)
    for tensor in (out, lse):
        tensor.fill_(torch.nan)
    if rung == "split":
        spaces = (q_like.new_full((splits, *q_like.shape), torch.nan) for q_like in (out, lse))
        every += [*(space.float() for space in spaces), part, splits]
    module = jit.load(f"paged/{rung}.cu", checked)
    suffix = next(name for name, dtype in DTYPES.items() if dtype == operands[0].dtype)
    getattr(module, f"paged_{rung}_{suffix}")(*every)
    if checked and len(operands[0]):
        assert module.report.clean, module.report
    return [out.cpu(), lse.cpu()]


def compare(got: Sequence[torch.Tensor], operands: Sequence) -> None:
    rtol = RTOL[operands[0].dtype]
    for one, want, atol in zip(got, oracle(*operands), (rtol / 8, 2e-5), strict=True):
        torch.testing.assert_close(one.double(), want, rtol=rtol, atol=atol)


@each_device
@each_dtype
@each_rung
def test_equals_the_oracle(rung: str, suffix: str, device: str) -> None:
    for shape in SHAPES:
        operands = batch(shape, DTYPES[suffix], device)
        compare(run(rung, operands), operands)
        if not shape.queries:
            compare(run(rung, operands, starts=False), operands)


@each_dtype
@each_rung
def test_clean_in_checked_mode(rung: str, suffix: str) -> None:
    for shape in SHAPES:
        operands = batch(shape, DTYPES[suffix])
        compare(run(rung, operands, checked=True), operands)


@each_device
@each_rung
def test_long_contexts(rung: str, device: str) -> None:
    operands = batch(LONG, torch.float32, device)
    compare(run(rung, operands, splits=9, part=12_000), operands)


def test_chunks_follow_each_other_in_order() -> None:
    operands = batch(CHUNKS, torch.float32)
    compare(run("one_block", operands, checked=True), operands)


@each_rung
def test_same_bits_in_any_order(rung: str) -> None:
    for shape in (SHAPES[0], SHAPES[4], SHAPES[8], CHUNKS):
        operands = batch(shape, torch.float32)
        forward = run(rung, operands)
        for order, seed in (("reverse", 0), ("random", 1), ("random", 2)):
            with settings(order=order, seed=seed):
                other = run(rung, operands)
            assert all(map(torch.equal, forward, other)), f"{shape}, {order} {seed}"


@each_device
@each_rung
def test_scores_of_any_size(rung: str, device: str) -> None:
    """exp of a score overflows from 89 on."""
    operands = batch(SHAPES[0], torch.float32, device, spread=300.0)
    compare(run(rung, operands), operands)


@each_device
@pytest.mark.parametrize(("splits", "part"), [(1, 1), (1, 70), (2, 35), (5, 16), (70, 1), (4, 9)])
def test_any_split(splits: int, part: int, device: str) -> None:
    """The last split takes what is left, however many there are."""
    operands = batch(SHAPES[0], torch.float32, device)
    checked = device == "cpu"
    compare(run("split", operands, splits=splits, part=part, checked=checked), operands)


@each_device
@each_rung
def test_queries_as_a_slice_of_a_product_and_at_any_address(rung: str, device: str) -> None:
    for shape in (SHAPES[0], SHAPES[5]):
        q, *others = batch(shape, torch.float16, device)
        wide = torch.full((len(q), q[0].numel() + 3), torch.nan, dtype=q.dtype, device=device)
        for shift in (0, 3):
            part = wide[:, shift : shift + q[0].numel()]
            part.copy_(q.flatten(1))
            operands = [part.view(q.shape), *others]
            compare(run(rung, operands), operands)


@each_rung
def test_misaligned_pools(rung: str) -> None:
    for moved in (1, 2):
        operands = batch(SHAPES[0], torch.float16)
        pool = operands[moved]
        operands[moved] = pool.new_empty(pool.numel() + 1)[1:].view(pool.shape).copy_(pool)
        compare(run(rung, operands, checked=True), operands)


@each_rung
def test_the_back_ends_rung_allocates(rung: str) -> None:
    operands = batch(SHAPES[1], torch.float32)
    compare([tensor.cpu() for tensor in RUNGS[rung](*operands, None)], operands)


@each_rung
def test_a_head_dim_that_is_too_large_is_refused(rung: str) -> None:
    operands = batch(Shape((1,), heads=1, kv_heads=1, head_dim=5000, block_size=1), torch.float32)
    with pytest.raises(Unsupported, match="head_dim of up to"):
        RUNGS[rung](*operands, None)


@each_rung
def test_a_nan_among_the_keys_is_not_hidden(rung):
    """The engine knows a request that went wrong by it."""
    operands = batch(Shape((20, 3)), torch.float32)
    key_pool, tables = operands[1], operands[3]
    key_pool[tables[0, 0], 5, 1, 7] = torch.nan
    out, lse = RUNGS[rung](*operands, None)
    assert out[0, 2:].isnan().all() and lse[0, 2:].isnan().all()  # the heads of KV head 1
    assert out[0, :2].isfinite().all() and out[1].isfinite().all()
