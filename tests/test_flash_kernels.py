"""The readable rungs of flash attention, and what they share: against float64, in every layout.

Outputs hold NaN before a kernel runs. What no query may read holds NaN as well: pools beyond the
context, rows of tables beyond the length, gaps between the rows of a fused product.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import pytest
import torch

from yaie import jit
from yaie.backends.cuda.flash import RUNGS, Sequences
from yaie.backends.cuda.launching import memory
from yaie.emulator import settings

SUFFIXES = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}
RTOL = {torch.float32: 2e-5, torch.float16: 2**-10, torch.bfloat16: 2**-7}
ATOL = {torch.float32: 1e-5, torch.float16: 2e-4, torch.bfloat16: 2e-3}
READABLE = ("row", "shared_tile")
WIDEST = {"row": 256, "shared_tile": 128}
has_gpu = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU"),
]
each_device = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=has_gpu)])
each_dtype = pytest.mark.parametrize("dtype", SUFFIXES, ids=SUFFIXES.get)
each_rung = pytest.mark.parametrize("rung", READABLE)


@dataclass(frozen=True)
class Batch:
    """Lengths of the queries and keys of each sequence, heads, and how the keys lie.

    Attributes:
        block_size: None: one sequence alone if there is one, else end to end. A number: keys and
            values lie in pools, blocks in random order.
    """

    queries: tuple[int, ...]
    keys: tuple[int, ...]
    heads: int
    kv_heads: int
    head_dim: int
    causal: bool = True
    block_size: int | None = None

    def __str__(self) -> str:
        kind = "full" if not self.causal else "causal"
        where = "" if self.block_size is None else f"-blocks{self.block_size}"
        lengths = "_".join(f"{q}of{k}" for q, k in zip(self.queries, self.keys, strict=True))
        return f"{lengths}-h{self.heads}of{self.kv_heads}-d{self.head_dim}-{kind}{where}"


BATCHES = (
    Batch((1,), (1,), 1, 1, 1),
    Batch((5,), (5,), 3, 3, 8),
    Batch((34,), (67,), 4, 2, 64),
    Batch((9,), (3,), 2, 1, 33),
    Batch((17,), (40,), 2, 1, 128, causal=False),
    Batch((3,), (35,), 3, 1, 80),
    Batch((4,), (0,), 2, 2, 16),
    Batch((0,), (7,), 2, 2, 16),
    Batch((3, 0, 1, 40, 5), (3, 4, 33, 40, 2), 4, 2, 32),
    Batch((1, 2, 0), (0, 9, 0), 2, 1, 16, causal=False),
    Batch((1, 6, 0, 33), (19, 6, 5, 50), 6, 2, 64, block_size=16),
    Batch((2, 3), (2, 31), 2, 2, 100, block_size=1),
    Batch((7,), (23,), 3, 3, 24, block_size=7, causal=False),
)
WIDE = (Batch((5,), (9,), 2, 1, 256), Batch((3, 2), (3, 4), 2, 2, 200, block_size=4))
LARGE = (
    Batch((300, 1, 0, 129, 64), (300, 700, 3, 257, 64), 8, 2, 128),
    Batch((200, 77), (1000, 77), 6, 6, 64, block_size=16),
    Batch((257,), (257,), 4, 4, 96, causal=False),
)


def tensors(batch: Batch, dtype: torch.dtype, device: str = "cpu", seed: int = 0):
    """q, k, v, the sequences, and each sequence's own q, k and v for the oracle."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*sizes: int) -> torch.Tensor:
        return torch.randn(*sizes, generator=generator).to(dtype)

    q = draw(sum(batch.queries), batch.heads, batch.head_dim)
    k, v = (draw(sum(batch.keys), batch.kv_heads, batch.head_dim) for _ in "kv")
    cuts = [starts(lengths) for lengths in (batch.queries, batch.keys)]
    rows = [[slice(*ends) for ends in pairwise(cut)] for cut in cuts]
    parts = [(q[i], k[j], v[j]) for i, j in zip(*rows, strict=True)]
    starts_q, starts_k = (torch.tensor(cut, dtype=torch.int32) for cut in cuts)
    if batch.block_size is None:
        alone = len(batch.queries) == 1
        sequences = Sequences() if alone else Sequences(starts_q, starts_k)
    else:
        tables, pools = paged(batch, [part[1:] for part in parts], generator)
        k, v = pools
        sequences = Sequences(starts_q, None, tables, torch.tensor(batch.keys, dtype=torch.int32))
    sequences = Sequences(*(x if x is None else x.to(device) for x in sequences))
    return q.to(device), k.to(device), v.to(device), sequences, parts


def starts(lengths: tuple[int, ...]) -> list[int]:
    return [sum(lengths[:i]) for i in range(len(lengths) + 1)]


def paged(batch: Batch, parts: list, generator: torch.Generator):
    """Block tables in random order, and pools in which everything else is NaN."""
    size = batch.block_size
    counts = [-(-length // size) for length in batch.keys]
    free = (torch.randperm(sum(counts) + 3, generator=generator)).tolist()
    tables = torch.full((len(counts), max(counts) + 2), 2**30, dtype=torch.int32)
    pools = [
        torch.full((len(free), size, batch.kv_heads, batch.head_dim), torch.nan).to(x.dtype)
        for x in parts[0]
    ]
    for i, (count, part) in enumerate(zip(counts, parts, strict=True)):
        blocks = [free.pop() for _ in range(count)]
        tables[i, :count] = torch.tensor(blocks, dtype=torch.int32)
        for pool, rows in zip(pools, part, strict=True):
            for j, row in enumerate(rows):
                pool[blocks[j // size], j % size] = row
    return tables, pools


def oracle(batch: Batch, parts: list, scale: float):
    """Every score in memory, in float64."""
    outs, lses = [], []
    for q, k, v in parts:
        group = batch.heads // batch.kv_heads
        k, v = (x.double().repeat_interleave(group, dim=1) for x in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q.double(), k) * scale
        if batch.causal:
            seen = torch.ones(len(q), len(k), dtype=torch.bool).tril(len(k) - len(q))
            scores = scores.masked_fill(~seen, -math.inf)
        outs.append(torch.einsum("hqk,khd->qhd", scores.softmax(-1).nan_to_num(0.0), v))
        lses.append(scores.logsumexp(-1).T)
    return torch.cat(outs), torch.cat(lses)


def check(batch: Batch, got, parts: list, scale: float) -> None:
    for one, other in zip(got, oracle(batch, parts, scale), strict=True):
        torch.testing.assert_close(
            one.cpu().double(), other, rtol=RTOL[one.dtype], atol=ATOL[got[0].dtype]
        )


def launch(rung: str, batch: Batch, dtype: torch.dtype, checked: bool = False, move=lambda x: x):
    """What a launcher leaves in memory that held NaN; q, k and v are slices of wider rows."""
    q, k, v, sequences, parts = tensors(batch, dtype)
    q, k, v = (gapped(x) for x in (q, k, v))
    out = move(torch.full((len(q), batch.heads, batch.head_dim), torch.nan, dtype=dtype))
    lse = torch.full((len(q), batch.heads), torch.nan)
    strides = [heads * batch.head_dim + 3 for heads in (batch.heads, *[batch.kv_heads] * 2)]
    keys, block_size, max_blocks = len(k), 0, 0
    if batch.block_size is not None:
        keys, block_size, max_blocks = 0, batch.block_size, sequences.block_tables.shape[1]
    module = jit.load(f"flash/{rung}.cu", checked)
    getattr(module, f"flash_{rung}_{SUFFIXES[dtype]}")(
        *(move(memory(x)) for x in (q, k, v)), out, lse, *sequences,
        *(len(batch.queries), len(q), keys, batch.heads, batch.kv_heads, batch.head_dim),
        *(*strides, block_size, max_blocks, 0.3, int(batch.causal)),
    )  # fmt: skip
    assert not checked or not len(q) or module.report.clean, module.report
    check(batch, (out, lse), parts, 0.3)
    return out, lse


def gapped(x: torch.Tensor) -> torch.Tensor:
    """The same rows, NaN between them, as memory from the first element on."""
    *front, heads, dim = x.shape
    rows = torch.full((*front, heads * dim + 3), torch.nan, dtype=x.dtype)
    rows[..., : heads * dim] = x.flatten(-2)
    return rows.view(*front, heads * dim + 3)[..., : heads * dim].unflatten(-1, (heads, dim))


def shifted(x: torch.Tensor) -> torch.Tensor:
    """The same, an element behind an address that is a multiple of 16."""
    room = torch.empty(x.numel() + 1, dtype=x.dtype)
    return room[1:].view(x.shape).copy_(x)


def batches(rung: str) -> tuple[Batch, ...]:
    return BATCHES + tuple(batch for batch in WIDE if batch.head_dim <= WIDEST[rung])


@each_device
@each_dtype
@each_rung
def test_equals_the_oracle(rung: str, dtype: torch.dtype, device: str) -> None:
    for batch in batches(rung) + (LARGE if device == "cuda" else ()):
        q, k, v, sequences, parts = tensors(batch, dtype, device)
        if len(q):
            check(batch, RUNGS[rung](q, k, v, batch.causal, 0.3, sequences), parts, 0.3)


@each_dtype
@each_rung
def test_clean_in_checked_mode(rung: str, dtype: torch.dtype) -> None:
    for batch in batches(rung):
        launch(rung, batch, dtype, checked=True, move=shifted)


@each_rung
def test_same_bits_in_any_order(rung: str) -> None:
    for batch in (BATCHES[2], BATCHES[8], BATCHES[10]):
        forward = launch(rung, batch, torch.float16)
        for order, seed in (("reverse", 0), ("random", 1)):
            with settings(order=order, seed=seed):
                other = launch(rung, batch, torch.float16)
            assert all(map(torch.equal, forward, other)), f"{batch}, {order}"


@each_rung
def test_scores_of_any_size(rung: str) -> None:
    """Large scores do not overflow, and a row of equal ones is an average."""
    q, v = torch.full((3, 1, 8), 60.0), torch.randn(40, 1, 8)
    for k in (torch.full((40, 1, 8), 60.0), torch.full((40, 1, 8), -60.0)):
        out, lse = RUNGS[rung](q, k, v, False, 1.0)
        torch.testing.assert_close(out, v.mean(0).expand(3, 1, 8), rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(lse, (q @ k[0].T)[..., 0] + math.log(40))


@each_rung
def test_what_no_query_sees_does_not_matter(rung: str) -> None:
    """Infinities in keys and values that the mask hides leave no trace."""
    q, k, v = (torch.randn(40, 2, 16) for _ in "qkv")
    wanted = RUNGS[rung](q[:20], k[:20], v[:20], True, 0.3)
    k[20:], v[20:] = torch.inf, torch.nan
    got = RUNGS[rung](q[:20], k, v, True, 0.3, one_sequence(20, 20))
    assert all(map(torch.equal, got, wanted))


def one_sequence(queries: int, keys: int) -> Sequences:
    return Sequences(*(torch.tensor([0, n], dtype=torch.int32) for n in (queries, keys)))


@pytest.mark.parametrize("rung", READABLE)
@pytest.mark.parametrize("too_wide", [129, 257])
def test_a_head_that_is_too_wide_is_refused(rung: str, too_wide: int) -> None:
    if too_wide > WIDEST[rung]:
        with pytest.raises(jit.KernelError, match="cudaErrorInvalidValue"):
            launch(rung, Batch((2,), (2,), 1, 1, too_wide), torch.float32)
