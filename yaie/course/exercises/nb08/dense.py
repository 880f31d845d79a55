"""What the exercises of notebook 08 share: dense attention by autograd, and what a call costs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from yaie.course.core.observe import Case, Observer, short


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
    num_q, num_k = shape.num_q, max(0, shape.num_k)
    generator = torch.Generator().manual_seed(seed)

    def new(tokens: int, heads: int) -> Tensor:
        x = torch.randn(tokens, heads, shape.head_dim, generator=generator)
        return x.to(getattr(torch, dtype))

    q, k = new(num_q, shape.heads) * size, new(num_k, shape.kv_heads) * size
    v, grad_out = new(num_k, shape.kv_heads), new(num_q, shape.heads)
    inputs = [x.double().requires_grad_() for x in (q, k, v)]
    group = shape.heads // shape.kv_heads
    keys, values = (x.repeat_interleave(group, dim=1) for x in inputs[1:])
    scores = torch.einsum("qhd,khd->hqk", inputs[0], keys) * scale
    seen = torch.ones(num_q, num_k, dtype=torch.bool)
    if shape.causal:
        past = shape.num_k - num_q
        seen = torch.arange(num_k) <= torch.arange(num_q).unsqueeze(1) + past
    lse = scores.detach().masked_fill(~seen, -math.inf).logsumexp(dim=-1).T
    weights = scores.masked_fill(~seen, -1e300).softmax(dim=-1) * seen
    out = torch.einsum("hqk,khd->qhd", weights, values)
    delta = (grad_out * out.detach()).sum(dim=-1)
    grads = torch.autograd.grad((out * grad_out).sum(), inputs)
    return Attention(q, k, v, grad_out, out.detach(), lse, delta, grads)


def see_cost(
    see: Observer, shape: Shape, call: Callable[[], Any], products: int, copies: int
) -> None:
    """Note the largest tensor of a call and the tiles that it computes.

    Args:
        products: how many products of matrices a tile takes.
        copies: of all tokens, that a tensor may hold.
    """
    largest, flops = cost_of(call)
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


def cost_of(call: Callable[[], Any]) -> tuple[list[int], int]:
    """The shape of the largest tensor that `call()` makes, and its FLOPs in matrix products."""
    largest, flops = [0], 0

    class Watch(TorchDispatchMode):
        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False  # to skip it means to import it first, which takes a second

        def __torch_dispatch__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            nonlocal largest, flops
            got = function(*args, **(kwargs or {}))
            for x in got if isinstance(got, (tuple, list)) else [got]:
                if isinstance(x, torch.Tensor) and x.numel() > math.prod(largest):
                    largest = list(x.shape)
            if count := flop_registry.get(function._overloadpacket):
                flops += count(*args, **(kwargs or {}), out_val=got)
            return got

    with Watch():
        call()
    return largest, flops


def see_results(see: Observer, what: str, got: Any, names: tuple[str, ...]) -> tuple[Any, ...]:
    """The parts of a result; where it has not as many as there are names, the case ends."""
    count = len(got) if isinstance(got, tuple) else 0
    came = f"{count} values" if count else short(got)
    wanted = f"expected {len(names)} values: {', '.join(names)}."
    problem = "" if count == len(names) else f"returned {came}, {wanted}"
    see.note(what, came, problem)
    if problem:
        see.stop()
    return got


def see_unchanged(see: Observer, names: str, after: list[Tensor], before: list[Tensor]) -> None:
    for name, x, kept in zip(names.split(), after, before, strict=True):
        see.equal(f"{name} after the call", x, kept, "Leave the arguments as they are.")


def in_words(case: Case) -> str:
    dtype = "" if case.dtype == "float32" else f", {case.dtype}"
    return f"{case.shape}, scale={case.scale:g}{dtype}"


def new_case(
    shape: Shape, scale: float, seed: int = 0, dtype: str = "float32", **data: Any
) -> Case:
    return Case(in_words, shape=shape, scale=scale, seed=seed, dtype=dtype, **data)
