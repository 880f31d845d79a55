"""The check of flash_backward."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from yaie.course.checks.nb08.watch import size, watched
from yaie.course.core.expect import close, equal, fail, given, short, true
from yaie.course.exercises.nb01.oracle import random_tensor, visible

if TYPE_CHECKING:
    from torch import Tensor

# queries, keys, heads, KV heads, head_dim, causal, tile_q, tile_k
CASES = [
    (4, 4, 1, 1, 4, False, 4, 4),  # one tile
    (4, 8, 1, 1, 4, False, 4, 4),  # two tiles of keys
    (8, 4, 1, 1, 4, False, 4, 4),  # two tiles of queries meet the same keys
    (8, 8, 1, 1, 4, True, 4, 4),  # a mask
    (6, 10, 1, 1, 4, False, 4, 4),  # short last tiles
    (5, 14, 1, 1, 4, True, 3, 4),  # a past
    (6, 6, 6, 2, 8, True, 4, 3),  # grouped heads
]
NAMES = ("the gradient of q", "the gradient of k", "the gradient of v")


def check_backward(flash_backward: Callable[..., Any]) -> None:
    import torch

    generator = torch.Generator().manual_seed(0)
    new = partial(random_tensor, generator)
    for num_q, num_k, heads, kv, dim, causal, tile_q, tile_k in CASES:
        q, k, v = new(num_q, heads, dim), new(num_k, kv, dim), new(num_k, kv, dim)
        compare(flash_backward, new(*q.shape), q, k, v, causal, 0.6, tile_q, tile_k)
    nothing_to_see(flash_backward, new)
    double_precision(flash_backward, new)
    stays_small(flash_backward, new)
    drawn = random.Random(0)
    for _ in range(25):
        kv, group, dim = drawn.randint(1, 2), drawn.randint(1, 3), drawn.choice((2, 5))
        num_q = drawn.randint(1, 9)
        num_k = num_q + drawn.choice((0, 0, 1, 7))
        q, k, v = new(num_q, kv * group, dim), new(num_k, kv, dim), new(num_k, kv, dim)
        tiles = drawn.randint(1, 5), drawn.randint(1, 5)
        compare(flash_backward, new(*q.shape), q, k, v, drawn.random() < 0.7, 0.4, *tiles)


class Dense:
    """A dense attention in float64 with everything that its gradient is made of.

    All tensors but the gradients have the heads first: `[heads, queries, keys]`, for example.
    """

    def __init__(
        self, grad_out: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Any, scale: float
    ) -> None:
        import torch

        self.kv_heads, group = k.shape[1], q.shape[1] // k.shape[1]
        self.scale = scale
        self.q, self.grad_out = (x.double().transpose(0, 1) for x in (q, grad_out))
        wide = (x.double().repeat_interleave(group, dim=1).transpose(0, 1) for x in (k, v))
        self.k, self.v = wide
        self.raw = self.q @ self.k.mT
        scores = self.raw * scale
        if mask is not None:
            scores = scores.masked_fill(~mask, float("-inf"))
        self.lse = torch.logsumexp(scores, dim=-1)
        self.p = scores.softmax(dim=-1).nan_to_num(0.0)
        self.out = self.p @ self.v
        self.delta = (self.grad_out * self.out).sum(dim=-1)
        self.dp = self.grad_out @ self.v.mT
        self.ds = self.p * (self.dp - self.delta.unsqueeze(-1))

    def grad_q(self, ds: Tensor, scale: float | None = None) -> Tensor:
        return (ds @ self.k * (self.scale if scale is None else scale)).transpose(0, 1).float()

    def grad_k(self, ds: Tensor, scale: float | None = None) -> Tensor:
        return self.grouped(ds.mT @ self.q * (self.scale if scale is None else scale))

    def grad_v(self, p: Tensor) -> Tensor:
        return self.grouped(p.mT @ self.grad_out)

    def grouped(self, grads: Tensor) -> Tensor:
        return grads.unflatten(0, (self.kv_heads, -1)).sum(dim=1).transpose(0, 1).float()


def by_autograd(
    grad_out: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Any, scale: float
) -> list[Tensor]:
    """What torch's autograd finds for softmax(q kᵀ · scale) v, in float64."""
    import torch

    inputs = [x.double().requires_grad_() for x in (q, k, v)]
    keys, values = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in inputs[1:])
    scores = torch.einsum("qhd,khd->hqk", inputs[0], keys) * scale
    if mask is not None:
        scores = scores.masked_fill(~mask, -1e300)
    out = torch.einsum("hqk,khd->qhd", scores.softmax(dim=-1), values)
    grads = torch.autograd.grad((out * grad_out.double()).sum(), inputs)
    return [x.to(q.dtype) for x in grads]


def compare(
    flash_backward: Callable[..., Any],
    grad_out: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: bool,
    scale: float,
    tile_q: int,
    tile_k: int,
) -> None:
    mask = visible(len(q), len(k), len(k) - len(q)) if causal else None
    facts = Dense(grad_out, q, k, v, mask, scale)
    lse, delta = facts.lse.T.float(), facts.delta.T.float()
    arguments = [grad_out, q, k, v, lse, delta]
    kept = [x.clone() for x in arguments]
    call = (
        f"flash_backward of {len(q)} queries to {len(k)} keys, query heads {q.shape[1]}, KV heads "
        f"{k.shape[1]}, causal={causal}, tile_q={tile_q}, tile_k={tile_k}"
    )
    with given(call):
        got = flash_backward(*arguments, causal, scale, tile_q, tile_k)
        names = ("grad_out", "q", "k", "v", "lse", "delta")
        for x, before, name in zip(arguments, kept, names, strict=True):
            equal(x, before, f"after the call, {name}", because="Leave the arguments as they are.")
        grads = three(got)
        wanted = by_autograd(grad_out, q, k, v, mask, scale)
        mistakes = wrong_values, wrong_queries, wrong_keys
        order = (2, 0, 1)  # the gradient of v is the simplest, so it is looked at first
        for i, wrong in zip(order, mistakes, strict=True):
            close(
                grads[i],
                wanted[i],
                NAMES[i],
                because=FORMULAS[i],
                mistakes=wrong(facts, mask, tile_q, tile_k),
            )


FORMULAS = (
    "It is dS K · scale, added up over the tiles of keys.",
    "It is dSᵀ Q · scale, added up over the tiles of queries and the heads of a group.",
    "It is Pᵀ dO, added up over the tiles of queries and the heads of a group.",
)


def three(got: Any) -> tuple[Any, Any, Any]:
    if got is None:
        fail("it returned None. Did the function reach its end without `return`?")
    if not isinstance(got, tuple) or len(got) != 3:
        fail(f"it returned {short(got)}, expected the gradients of q, k and v.")
    return got


def last_rows(x: Tensor, tile: int) -> Tensor:
    """Only the queries of the last tile: what is left if each tile overwrites the one before."""
    import torch

    num_q = x.shape[1]
    keep = torch.arange(num_q) >= (num_q - 1) // tile * tile
    return x * keep.view(1, -1, 1)


def short_tile(x: Tensor, tile: int, axis: int) -> Tensor | None:
    """Without the last tile, if that one is short."""
    import torch

    length = x.shape[axis]
    if length % tile == 0 or length < tile:
        return None
    keep = torch.arange(length) < length // tile * tile
    return x * (keep if axis == 2 else keep.unsqueeze(1))


def wrong_p(
    facts: Dense, mask: Any, tile_q: int, tile_k: int
) -> Iterator[tuple[Tensor, Tensor, str]]:
    """Wrong weights and what they make of dS, and what to tell."""
    import torch

    def follow(p: Tensor) -> Tensor:
        return p * (facts.dp - facts.delta.unsqueeze(-1))

    scores = facts.raw * facts.scale
    lse = facts.lse.unsqueeze(-1)
    if mask is not None:
        p = (scores - lse).exp()
        ends = torch.arange(len(mask)) // tile_q * tile_q + tile_q
        ends = ends.clamp(max=len(mask)) + mask.shape[1] - len(mask)
        touched = torch.arange(mask.shape[1]) // tile_k * tile_k < ends.unsqueeze(1)
        text = "The mask is forgotten when the weights are computed again: a hidden key has none."
        yield p * touched, follow(p * touched), text
        yield p, follow(p), text
    p = (facts.raw - lse).exp() * (facts.p > 0)
    yield p, follow(p), "The scores were not multiplied by the scale before exp(scores - lse)."
    count = -(-scores.shape[2] // tile_k)
    if count > 1:
        kept = scores if mask is None else scores.masked_fill(~mask, float("-inf"))
        tiles = [t.softmax(dim=-1).nan_to_num(0.0) for t in kept.split(tile_k, dim=2)]
        p = torch.cat(tiles, dim=2)
        text = (
            "The weights of a tile were normalized by the tile itself. The log-sum-exp of the "
            "whole row is known: exp(scores - lse) are the weights."
        )
        yield p, follow(p), text
    for axis, tile, words in ((2, tile_k, "keys"), (1, tile_q, "queries")):
        p = short_tile(facts.p, tile, axis)
        if p is not None:
            text = f"The last tile of {words}, which is a short one, is missing."
            yield p, follow(p), text


def wrong_values(facts: Dense, mask: Any, tile_q: int, tile_k: int) -> Iterator[tuple[Tensor, str]]:
    if facts.p.shape[1] > tile_q:
        yield (
            facts.grad_v(last_rows(facts.p, tile_q)),
            "Each tile of queries overwrote what the tiles before had given: a key collects from "
            "every tile of queries. Add (+=).",
        )
    yield facts.grad_v(facts.ds), "This is dSᵀ dO. The values are weighted by P itself: Pᵀ dO."
    for p, _, text in wrong_p(facts, mask, tile_q, tile_k):
        yield facts.grad_v(p), text


def wrong_queries(
    facts: Dense, mask: Any, tile_q: int, tile_k: int
) -> Iterator[tuple[Tensor, str]]:
    yield facts.grad_q(facts.ds, 1.0), "The scale is forgotten: dQ is dS K · scale."
    yield facts.grad_q(facts.ds, facts.scale**2), "The scale is in it twice."
    for ds, text in wrong_ds(facts):
        yield facts.grad_q(ds), text
    for _, ds, text in wrong_p(facts, mask, tile_q, tile_k):
        yield facts.grad_q(ds), text
    if facts.p.shape[2] > tile_k:
        start = (facts.p.shape[2] - 1) // tile_k * tile_k
        ds = facts.ds.clone()
        ds[..., :start] = 0
        yield (
            facts.grad_q(ds),
            "This is the last tile of keys alone: a query collects from every tile of keys. Add.",
        )


def wrong_keys(facts: Dense, mask: Any, tile_q: int, tile_k: int) -> Iterator[tuple[Tensor, str]]:
    yield facts.grad_k(facts.ds, 1.0), "The scale is forgotten: dK is dSᵀ Q · scale."
    yield facts.grad_k(facts.ds, facts.scale**2), "The scale is in it twice."
    if facts.p.shape[1] > tile_q:
        yield (
            facts.grad_k(last_rows(facts.ds, tile_q)),
            "Each tile of queries overwrote what the tiles before had given: a key collects from "
            "every tile of queries. Add (+=).",
        )
    for ds, text in wrong_ds(facts):
        yield facts.grad_k(ds), text


def wrong_ds(facts: Dense) -> Iterator[tuple[Tensor, str]]:
    delta = facts.delta.unsqueeze(-1)
    yield (
        facts.p * facts.dp,
        "delta is forgotten: dS = P ∘ (dP - delta). A score that goes up takes weight from all "
        "others of its row, and delta is what that costs.",
    )
    yield facts.p * (facts.dp + delta), "delta has the wrong sign: dS = P ∘ (dP - delta)."
    yield facts.p * facts.dp - delta, "The brackets are missing: dS = P ∘ (dP - delta)."
    if facts.p.shape[1] == facts.p.shape[2]:
        yield (
            facts.p * (facts.dp - delta.mT),
            "delta belongs to the rows, the queries: give it an axis for the keys, at its end.",
        )
    yield facts.dp - delta, "P is missing: dS = P ∘ (dP - delta)."


def nothing_to_see(flash_backward: Callable[..., Any], new: Callable[..., Tensor]) -> None:
    q, k, v = new(5, 2, 4), new(2, 1, 4), new(2, 1, 4)
    grad_out = new(5, 2, 4)
    facts = Dense(grad_out, q, k, v, visible(5, 2, -3), 0.5)
    lse, delta = facts.lse.T.float(), facts.delta.T.float()
    with given("flash_backward of 5 queries to 2 keys, causal=True, tile_q=2, tile_k=2"):
        grads = three(flash_backward(grad_out, q, k, v, lse, delta, True, 0.5, 2, 2))
        for x, name in zip(grads, NAMES, strict=True):
            true(
                not x.isnan().any(),
                f"{name} has a NaN. The first 3 queries see no key, and their lse is -inf: -inf - "
                "-inf is NaN. Subtract `finite(lse)`.",
            )
        equal(grads[0][:3], grads[0][:3] * 0, "the gradient of queries that see nothing")
        wanted = facts.grad_q(facts.ds), facts.grad_k(facts.ds), facts.grad_v(facts.p)
        for got, want, name in zip(grads, wanted, NAMES, strict=True):
            close(got, want, name)


def double_precision(flash_backward: Callable[..., Any], new: Callable[..., Tensor]) -> None:
    q, k, v, grad_out = (new(n, 1, 4).double() for n in (5, 7, 7, 5))
    mask = visible(5, 7, 2)
    facts = Dense(grad_out, q, k, v, mask, 0.5)
    with given("flash_backward in float64, 5 queries to 7 keys"):
        arguments = grad_out, q, k, v, facts.lse.T, facts.delta.T
        grads = three(flash_backward(*arguments, True, 0.5, 2, 3))
        wanted = by_autograd(grad_out, q, k, v, mask, 0.5)
        for got, want, name in zip(grads, wanted, NAMES, strict=True):
            text = "float64 comes in, so float64 goes out: a gradient check needs all its digits."
            close(got, want, name, because=text, rtol=1e-9, atol=1e-9)


def stays_small(flash_backward: Callable[..., Any], new: Callable[..., Tensor]) -> None:
    q, k, v, grad_out = new(96, 1, 2), new(96, 1, 2), new(96, 1, 2), new(96, 1, 2)
    rows = new(96, 1)
    call = partial(flash_backward, grad_out, q, k, v, rows, rows, True, 0.7, 8, 8)
    with given("flash_backward of 96 queries to 96 keys, causal=True, tile_q=8, tile_k=8"):
        _, largest, flops = watched(call)
        if size(largest) > 3 * q.numel():
            fail(
                f"a tensor of shape {largest} was made. A tile has 8 × 8 weights; nothing that "
                "grows with queries × keys may exist."
            )
        tile, needed = 5 * 2 * 8 * 8 * 2, sum(range(1, 13))
        if flops > needed * tile:
            fail(
                f"products of {flops:,} FLOPs where five for each tile that is seen make "
                f"{needed * tile:,}. Tiles that are hidden altogether need not be computed."
            )


def draw_backward(flash_backward: Callable[..., Any]) -> Any:
    """A causal run of the learner's function on 64 tokens, and the traffic that it made."""
    import torch

    from yaie.course.core.memory import Memory
    from yaie.course.viz.tiles import draw_tiles, record_tiles

    generator = torch.Generator().manual_seed(0)
    q, k, v, grad_out = (random_tensor(generator, 64, 1, 16) for _ in range(4))
    facts = Dense(grad_out, q, k, v, visible(64, 64, 0), 0.25)
    inputs = grad_out, q, k, v, facts.lse.T.float(), facts.delta.T.float()
    names = ("grad_out", "q", "k", "v", "lse", "delta")
    memory = Memory()
    placed = [memory.place(x, name) for x, name in zip(inputs, names, strict=True)]
    flash_backward(*placed, True, 0.25, 16, 16)
    return draw_tiles(record_tiles(memory.events, 64, 64, True)[-1])
