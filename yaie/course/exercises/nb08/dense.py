"""What the exercises of notebook 08 share: dense attention by autograd, and what a call costs."""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from yaie.course.core.observe import Case, Observer
from yaie.course.exercises import oracles
from yaie.course.exercises.costs import cost_of


@dataclass(frozen=True)
class Shape:
    """One attention; each KV head is read by `heads // kv_heads` neighboring query heads."""

    num_q: int
    num_k: int
    heads: int = 1
    kv_heads: int = 1
    head_dim: int = 4
    causal: bool = False
    tile_q: int = 4
    tile_k: int = 4

    def __str__(self) -> str:
        return (
            f"{self.num_q} queries to {self.num_k} keys, query heads {self.heads}, KV heads "
            f"{self.kv_heads}, causal={self.causal}, tile_q={self.tile_q}, tile_k={self.tile_k}"
        )


PLANNED = [  # each brings one new thing
    Shape(4, 4),
    Shape(4, 8),  # two tiles of keys: one softmax over both
    Shape(8, 8),  # two tiles of queries
    Shape(8, 8, causal=True),  # a mask that cuts tiles in two
    Shape(4, 10),  # a last tile of keys that is short
    Shape(6, 8),  # and of queries
    Shape(3, 5, causal=True),  # a past, and a mask that cuts the first tile
    Shape(5, 14, causal=True, tile_q=3),  # tiles that the mask leaves whole
    Shape(6, 6, 6, 2, 8, causal=True, tile_k=3),  # grouped heads
    Shape(1, 9, 3, 1, 8, causal=True, tile_q=16),  # a decode step
    Shape(5, 2, 2, 1, causal=True, tile_q=2, tile_k=2),  # queries that see nothing
    Shape(5, 0, 2, 1, tile_q=2, tile_k=2),
]


def random_shapes(count: int, sizes: Sequence[int]) -> Iterator[Shape]:
    """Shapes of up to 12 queries in tiles of up to 6.

    Args:
        sizes: head_dim is one of these.
    """
    drawn = random.Random(0)
    for _ in range(count):
        kv_heads, group, head_dim = drawn.randint(1, 2), drawn.randint(1, 3), drawn.choice(sizes)
        num_q = drawn.randint(0, 12)
        num_k = max(0, num_q + drawn.choice((-3, 0, 0, 1, 9)))
        tiles = drawn.randint(1, 6), drawn.randint(1, 6)
        causal = drawn.random() < 0.7
        yield Shape(num_q, num_k, kv_heads * group, kv_heads, head_dim, causal, *tiles)


@dataclass(frozen=True)
class Attention:
    """Inputs, and everything that follows from them, in float64.

    Attributes:
        lse: `[queries, heads]`; -inf for a row that sees no key, whose output is 0.
        delta: `[queries, heads]`, the sum of grad_out * out over head_dim.
        grads: gradients of q, k and v.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    grad_out: Tensor
    out: Tensor
    lse: Tensor
    delta: Tensor
    grads: tuple[Tensor, ...]


def attention(shape: Shape, scale: float, seed: int, dtype: str, size: float = 1.0) -> Attention:
    """A random attention, computed as a whole, and its gradients by autograd.

    Args:
        size: factor of q and k.
    """
    generator = torch.Generator().manual_seed(seed)

    def new(tokens: int, heads: int) -> Tensor:
        x = torch.randn(tokens, heads, shape.head_dim, generator=generator)
        return x.to(getattr(torch, dtype))

    q, k = new(shape.num_q, shape.heads) * size, new(shape.num_k, shape.kv_heads) * size
    v, grad_out = new(shape.num_k, shape.kv_heads), new(shape.num_q, shape.heads)
    inputs = [x.double().requires_grad_() for x in (q, k, v)]
    out, lse = oracles.attention(*inputs, shape.causal, scale)
    grads = torch.autograd.grad((out * grad_out).sum(), inputs)
    out, lse = out.detach(), lse.detach()
    return Attention(q, k, v, grad_out, out, lse, (grad_out * out).sum(dim=-1), grads)


def see_cost(
    see: Observer, shape: Shape, call: Callable[[], Any], products: int, copies: int
) -> None:
    """Note the largest tensor of a call and the tiles that it computes.

    Args:
        products: how many products of matrices a tile takes.
        copies: of all tokens, that a tensor may hold.
    """
    _, largest, flops = cost_of(call)
    count = math.prod(largest)
    limit = copies * max(shape.num_q, shape.num_k) * shape.heads * shape.head_dim
    kind = "queries × keys" if count >= shape.num_q * shape.num_k else "more than a tile"
    problem = f"was made of shape {largest}" if count > limit else ""
    because = (
        f"A tile has {shape.heads} × {shape.tile_q} × {shape.tile_k} scores. No tensor may grow "
        "with queries × keys, nor with tile × keys."
    )
    see.note("a tensor", kind if problem else "a tile", problem, because)
    tile = products * 2 * shape.tile_q * shape.tile_k * shape.heads * shape.head_dim
    ends = range(shape.num_k - shape.num_q + shape.tile_q, shape.num_k + 1, shape.tile_q)
    needed = sum(-(-end // shape.tile_k) for end in ends)
    visible = "Tiles that are hidden altogether are neither read nor computed."
    see.at_most("the number of tiles computed", -(-flops // tile), needed, visible)


def in_words(case: Case) -> str:
    dtype = "" if case.dtype == "float32" else f", {case.dtype}"
    return f"{case.shape}, scale={case.scale:g}{dtype}"


def new_case(
    shape: Shape, scale: float, seed: int = 0, dtype: str = "float32", **data: Any
) -> Case:
    return Case(in_words, shape=shape, scale=scale, seed=seed, dtype=dtype, **data)
