"""Counted bytes and operations of attention against runs in which both are watched."""

import pytest
import torch

from yaie.course.core.memory import Memory
from yaie.course.exercises.costs import cost_of
from yaie.course.lessons.attention_costs import AttentionShape, naive_cost, tile_bytes, tiled_cost
from yaie.course.lessons.ops.reference.flash import flash_backward, flash_forward

SHAPES = [
    AttentionShape(64, 64, itemsize=4),
    AttentionShape(33, 50, 6, 2, 16, itemsize=4),
    AttentionShape(1, 100, 3, 1, 8, itemsize=2),
    AttentionShape(50, 33, 2, 2, 8, itemsize=2),  # queries that see nothing
    AttentionShape(40, 40, 9, 3, 4, causal=False, itemsize=2),
    AttentionShape(0, 5, itemsize=4),
    AttentionShape(5, 0, itemsize=4),
]
TILES = [(8, 16), (16, 8), (7, 5), (1, 9), (9, 1), (64, 64), (100, 100)]
DTYPES = {2: torch.float16, 4: torch.float32}


def inputs(shape: AttentionShape) -> list[torch.Tensor]:
    rows = (shape.num_q, shape.num_heads), *[(shape.num_k, shape.num_kv_heads)] * 2
    return [torch.randn(*row, shape.head_dim).to(DTYPES[shape.itemsize]) for row in rows]


@pytest.mark.parametrize("tiles", TILES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_tiles(shape, tiles):
    memory = Memory()
    placed = [memory.place(x, name) for x, name in zip(inputs(shape), "qkv", strict=True)]
    flops = cost_of(lambda: flash_forward(*placed, shape.causal, 0.5, *tiles))[2]
    cost = tiled_cost(shape, *tiles)
    assert (cost.read, cost.written) == (memory.read, memory.written)
    assert cost.flops == flops


@pytest.mark.parametrize("shape", SHAPES[:5], ids=str)
def test_naive(shape):
    """The heads of a group are rows of one product, so that keys are read once."""
    memory = Memory()
    q, k, v = (x.transpose(0, 1) for x in inputs(shape))
    q = q.reshape(shape.num_kv_heads, -1, shape.head_dim)
    q, k, v = (memory.place(x, name) for x, name in zip((q, k, v), "qkv", strict=True))
    flops = cost_of(lambda: (q @ k.mT).softmax(dim=-1) @ v)[2]
    cost = naive_cost(shape)
    assert (cost.read, cost.written) == (memory.read, memory.written)
    assert cost.flops == flops


def test_what_an_operation_writes_into_a_given_tensor_is_counted():
    memory = Memory()
    x, y, out = (memory.place(torch.ones(2, 3), name) for name in ("x", "y", "out"))
    torch.add(x, y, out=out)
    assert (memory.read, memory.written) == (48, 24)
    torch.mul(out, torch.ones(3), out=out)
    assert (memory.read, memory.written) == (72, 48) and torch.equal(out, 2 * torch.ones(2, 3))


def test_the_scores_of_4096_tokens_are_64_mib():
    """Written and read back twice: as scores, and as weights."""
    shape = AttentionShape(4096, 4096, head_dim=64, causal=False, itemsize=4)
    matrix = 4096 * 4096 * 4
    assert matrix == 64 * 2**20
    small = 4096 * 64 * 4
    assert naive_cost(shape).read == 2 * matrix + 3 * small
    assert naive_cost(shape).written == 2 * matrix + small


def test_a_backward_pass_has_five_products():
    shape = AttentionShape(40, 40, causal=False, itemsize=4)
    q, k, v = inputs(shape)
    out, lse = flash_forward(q, k, v, False, 0.5, 8, 8)
    given = out, q, k, v, lse, (out * out).sum(-1), False, 0.5, 8, 8
    assert cost_of(lambda: flash_backward(*given))[2] == 5 * tiled_cost(shape, 8, 8).flops // 2


def test_what_tiles_occupy():
    tiles = [torch.zeros(32, 64, dtype=torch.float16)]  # queries
    tiles += [torch.zeros(16, 64, dtype=torch.float16)] * 2  # keys, values
    tiles += [torch.zeros(32, 16), torch.zeros(32, 64), torch.zeros(32), torch.zeros(32)]
    assert tile_bytes(32, 16, 64) == sum(x.nbytes for x in tiles)


# ------------------------------------------------------------------------------------- memory


def test_views_are_no_traffic():
    memory = Memory()
    x = memory.place(torch.arange(12.0).view(3, 4), "x")
    assert x.T.shape == (4, 3) and len(x) == 3 and x.to(torch.float32).dtype == torch.float32
    assert memory.events == []


def test_a_tensor_that_gives_only_its_dtype_or_shape_is_not_read():
    memory = Memory()
    q = memory.place(torch.zeros(3, 4, dtype=torch.float16), "q")
    tile = torch.ones(3, 4)
    for cast in (tile.type_as(q), tile.to(q)):
        assert type(cast) is torch.Tensor and cast.dtype == torch.float16
    for view in (tile.view(12).view_as(q), tile.reshape_as(q), tile[:1].expand_as(q)):
        assert type(view) is torch.Tensor and view.shape == q.shape
    assert memory.events == []
    for new in (
        q.new_tensor([1.0, 2.0]), q.new_zeros(2), q.new_ones(2), q.new_full((2,), 3.0),
        q.new_empty(2), torch.zeros_like(q), torch.ones_like(q), torch.empty_like(q),
        torch.full_like(q, 2.0), torch.rand_like(q), torch.randn_like(q),
    ):  # fmt: skip
        assert new.dtype == torch.float16
    assert memory.read == 0


@pytest.mark.filterwarnings("ignore:To copy construct")
def test_a_tensor_that_is_cast_is_read():
    memory = Memory()
    q = memory.place(torch.zeros(3, 4, dtype=torch.float16), "q")
    k = memory.place(torch.zeros(5, 4), "k")
    assert k.type_as(q).dtype == k.to(q).dtype == q.new_tensor(k).dtype == torch.float16
    reads = [(e.name, e.start, e.end) for e in memory.events if e.kind == "read"]
    assert reads == [("k", 0, 5)] * 3


def test_loads_and_stores():
    memory = Memory()
    x = memory.place(torch.zeros(3, 4), "x")
    tile = x[1:3]
    assert type(tile) is torch.Tensor
    _ = tile * 2
    x[0] = 1.0
    x[:, 1:2] += 1.0
    assert [(e.kind, e.start, e.end, e.bytes) for e in memory.events] == [
        ("read", 1, 3, 32),
        ("write", 0, 1, 16),
        ("read", 0, 3, 12),
        ("write", 0, 3, 12),
    ]
    assert x[0].tolist() == [1.0, 2.0, 1.0, 1.0]


def test_an_operation_on_the_whole_reads_and_writes_it():
    memory = Memory()
    x = memory.place(torch.zeros(3, 4), "x")
    y = torch.exp(x) + x
    assert (memory.read, memory.written) == (48 + 96, 48 + 48)
    y.mul_(2)
    assert (memory.read, memory.written) == (192, 144)
    assert torch.empty_like(x).shape == x.shape and memory.written == 144
    assert torch.zeros_like(x).shape == x.shape and memory.written == 192 and memory.read == 192
