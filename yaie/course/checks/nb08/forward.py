"""The check of flash_forward."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from yaie.course.checks.nb08.watch import size, watched
from yaie.course.core.expect import close, equal, fail, given, short, true
from yaie.course.exercises.nb01.oracle import dense, random_tensor, visible

if TYPE_CHECKING:
    from torch import Tensor

# queries, keys, heads, KV heads, head_dim, causal, tile_q, tile_k: each row brings one new thing
CASES = [
    (4, 4, 1, 1, 4, False, 4, 4),  # one tile
    (4, 8, 1, 1, 4, False, 4, 4),  # two tiles of keys: one softmax over both
    (8, 8, 1, 1, 4, False, 4, 4),  # two tiles of queries
    (8, 8, 1, 1, 4, True, 4, 4),  # a mask that cuts tiles in two
    (4, 10, 1, 1, 4, False, 4, 4),  # a last tile of keys that is short
    (6, 8, 1, 1, 4, False, 4, 4),  # and of queries
    (5, 14, 1, 1, 4, True, 3, 4),  # a past
    (6, 6, 6, 2, 8, True, 4, 3),  # grouped heads
    (1, 9, 3, 1, 8, True, 16, 4),  # a decode step
]


def check_forward(flash_forward: Callable[..., Any]) -> None:
    import torch

    generator = torch.Generator().manual_seed(0)
    new = partial(random_tensor, generator)
    for num_q, num_k, heads, kv, dim, causal, tile_q, tile_k in CASES:
        q, k, v = new(num_q, heads, dim), new(num_k, kv, dim), new(num_k, kv, dim)
        compare(flash_forward, q, k, v, causal, dim**-0.5, tile_q, tile_k)
    nothing_to_see(flash_forward, new)
    compare(flash_forward, new(5, 2, 4) * 40, new(9, 1, 4) * 40, new(9, 1, 4), True, 1.0, 2, 3)
    half_precision(flash_forward, new)
    stays_small(flash_forward, new)
    skips(flash_forward, new)
    double_precision(flash_forward, new)
    drawn = random.Random(0)
    for _ in range(50):
        kv, group, dim = drawn.randint(1, 2), drawn.randint(1, 3), drawn.choice((2, 5, 8))
        num_q = drawn.randint(0, 12)
        num_k = num_q + drawn.choice((-3, 0, 0, 1, 9))
        q, k, v = (new(max(0, n), h, dim) for n, h in ((num_q, kv * group), *[(num_k, kv)] * 2))
        tiles = drawn.randint(1, 6), drawn.randint(1, 6)
        compare(flash_forward, q, k, v, drawn.random() < 0.7, 0.4, *tiles)


def describe(q: Tensor, k: Tensor, causal: bool, tile_q: int, tile_k: int) -> str:
    heads = f"query heads {q.shape[1]}, KV heads {k.shape[1]}"
    return (
        f"flash_forward of {len(q)} queries to {len(k)} keys, {heads}, causal={causal}, "
        f"tile_q={tile_q}, tile_k={tile_k}"
    )


def short_tiles(num_q: int, num_k: int, tile_q: int, tile_k: int) -> dict[type[Exception], str]:
    """What an error is likely to come from where a last tile is short."""
    words = [
        f"the last tile of {name} has {length % tile} of them instead of {tile}"
        for name, length, tile in (("queries", num_q, tile_q), ("keys", num_k, tile_k))
        if length % tile
    ]
    if not words:
        return {}
    return {RuntimeError: f"Note that {' and '.join(words)}: shapes must follow."}


def wanted(q: Tensor, k: Tensor, v: Tensor, mask: Any, scale: float) -> tuple[Tensor, Tensor]:
    """Dense attention in float64; zeros and -inf for rows that see nothing."""
    out, lse = dense(q, k, v, mask, scale)
    return out.nan_to_num(0.0), lse


def compare(
    flash_forward: Callable[..., Any],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: bool,
    scale: float,
    tile_q: int,
    tile_k: int,
) -> None:
    kept = [x.clone() for x in (q, k, v)]
    with given(describe(q, k, causal, tile_q, tile_k), short_tiles(len(q), len(k), tile_q, tile_k)):
        got = flash_forward(q, k, v, causal, scale, tile_q, tile_k)
        for x, before, name in zip((q, k, v), kept, "qkv", strict=True):
            equal(x, before, f"after the call, {name}", because="Leave the arguments as they are.")
        out, lse = state(got)
        mask = visible(len(q), len(k), len(k) - len(q)).bool() if causal else None
        if mask is not None:
            mask = mask.view(len(q), len(k))  # that of no queries, or no keys, has no shape
        want_out, want_lse = (x.float() for x in wanted(q, k, v, mask, scale))
        close(
            out,
            want_out,
            "the output",
            because=which_rows(out, want_out, tile_q),
            mistakes=wrong_outputs(q, k, v, mask, scale, tile_q, tile_k),
        )
        close(
            lse,
            want_lse,
            "the log-sum-exp",
            because="It is what `finish` returns, its heads last. "
            + which_rows(lse, want_lse, tile_q),
            mistakes=[(want_lse.T, "This is [heads, queries]: the queries come first.")],
        )


def state(got: Any) -> tuple[Any, Any]:
    if got is None:
        fail("it returned None. Did the function reach its end without `return`?")
    if not isinstance(got, tuple) or len(got) != 2:
        fail(f"it returned {short(got)}, expected two tensors: output and log-sum-exp.")
    return got


def which_rows(got: Any, want: Tensor, tile_q: int) -> str:
    """Where the first wrong row lies among the tiles of queries."""
    import torch

    if not isinstance(got, torch.Tensor) or got.shape != want.shape or not got.is_floating_point():
        return ""
    near = torch.isclose(got.double(), want.double(), rtol=1e-3, atol=1e-4)
    wrong = (~near.flatten(1).all(dim=1)).nonzero().flatten().tolist()
    if not wrong or len(want) <= tile_q:
        return ""
    last_tile = (len(want) - 1) // tile_q
    if min(wrong) // tile_q == last_tile and len(want) % tile_q:
        return (
            f"All queries before row {last_tile * tile_q} are right: it is the last tile of "
            f"queries, which has {len(want) % tile_q} of them instead of {tile_q}."
        )
    if min(wrong) >= tile_q:
        return (
            "The first tile of queries is right, a later one is not: does each tile begin with an "
            "empty state, and with its own positions?"
        )
    return ""


def wrong_outputs(
    q: Tensor, k: Tensor, v: Tensor, mask: Any, scale: float, tile_q: int, tile_k: int
) -> Iterator[tuple[Any, str]]:
    """What known mistakes give here, and what to tell."""
    import torch

    num_q, num_k, past = len(q), len(k), len(k) - len(q)
    if not num_q or num_k <= 0:
        return

    def with_mask(other: Any) -> Tensor:
        return wanted(q, k, v, other, scale)[0].float()

    everything = torch.ones(num_q, num_k, dtype=torch.bool)
    right = everything if mask is None else mask
    starts = torch.arange(num_k) // tile_k  # the tile of each key
    if num_k % tile_k:
        yield (
            with_mask(right & (starts < num_k // tile_k)),
            f"The last tile of keys is missing: {num_k} keys in tiles of {tile_k} end with a tile "
            f"of {num_k % tile_k}, which counts as well.",
        )
    parts = [wanted(q, k, v, right & (starts == t), scale)[0] for t in range(int(starts[-1]) + 1)]
    if len(parts) > 1:
        text = (
            "Every tile was normalized by itself: a softmax over a tile knows nothing of the other "
            "tiles. Feed the scores to one OnlineSoftmax, and divide once, at the end."
        )
        yield sum(parts).float(), text
        yield (sum(parts) / len(parts)).float(), text
        yield (
            parts[-1].float(),
            "This is the attention to the last tile of keys alone. One OnlineSoftmax lives through "
            "all tiles of keys.",
        )
    if mask is not None:
        yield with_mask(everything), "No key is hidden: a query sees the keys up to its position."
        if past:
            yield (
                with_mask(visible(num_q, num_k, 0)),
                f"The mask is aligned top-left. Query i is at position {past} + i, since the "
                f"queries are the last of {num_k} tokens.",
            )
        ends = torch.tensor([min((i // tile_q + 1) * tile_q, num_q) for i in range(num_q)])
        firsts = torch.arange(num_q) // tile_q * tile_q
        tile_ends = torch.minimum((starts + 1) * tile_k, torch.tensor(num_k))
        whole = tile_ends - 1 <= (firsts + past).unsqueeze(1)
        yield (
            with_mask(right & whole),
            "A tile that is only partly hidden was skipped. Those are the tiles from whole to "
            "seen - 1: compute them, and mask them.",
        )
        touched = starts * tile_k < (ends + past).unsqueeze(1)
        yield (
            with_mask(touched),
            "A tile that is only partly hidden was computed without its mask. From tile `whole` "
            "on, hide what `hidden_keys` says.",
        )
    yield wanted(q, k, v, mask, 1.0)[0].float(), "The scores were not multiplied by the scale."
    yield wanted(q, k, v, mask, scale**2)[0].float(), "The scores were scaled twice."
    heads, kv = q.shape[1], k.shape[1]
    if 1 < kv < heads:
        modulo = [head % kv for head in range(heads)]
        out = dense(q, k, v, mask, scale, key_heads=modulo)[0].nan_to_num(0.0).float()
        yield (
            out,
            f"Query head h reads KV head h // {heads // kv}, not h % {kv}: `heads_first` repeats "
            "each KV head for its neighbors.",
        )


def nothing_to_see(flash_forward: Callable[..., Any], new: Callable[..., Tensor]) -> None:
    q, k, v = new(5, 2, 4), new(2, 1, 4), new(2, 1, 4)
    with given(describe(q, k, True, 2, 2)):
        out, lse = state(flash_forward(q, k, v, True, 0.5, 2, 2))
        for x, name in ((out, "the output"), (lse, "the log-sum-exp")):
            true(
                not x.isnan().any(),
                f"{name} has a NaN. The first 3 queries come before all keys and see none: "
                "OnlineSoftmax gives zeros and -inf for them, if it is asked to finish.",
            )
    compare(flash_forward, q, k, v, True, 0.5, 2, 2)
    compare(flash_forward, q, k[:0], v[:0], False, 0.5, 2, 2)


def half_precision(flash_forward: Callable[..., Any], new: Callable[..., Tensor]) -> None:
    import torch

    for dtype in (torch.float16, torch.bfloat16):
        q, k, v = (x.to(dtype) for x in (new(6, 2, 16), new(9, 1, 16), new(9, 1, 16)))
        name = str(dtype).removeprefix("torch.")
        with given(f"flash_forward in {name}, 6 queries to 9 keys"):
            out, lse = state(flash_forward(q, k, v, True, 0.25, 4, 4))
            want_out, want_lse = wanted(q, k, v, visible(6, 9, 3), 0.25)
            close(out, want_out.to(dtype), "the output", rtol=2e-2, atol=1e-2)
            close(lse, want_lse.float(), "the log-sum-exp", because="It is kept in float32.")


def double_precision(flash_forward: Callable[..., Any], new: Callable[..., Tensor]) -> None:
    q, k, v = new(6, 2, 4).double(), new(9, 1, 4).double(), new(9, 1, 4).double()
    with given("flash_forward in float64, 6 queries to 9 keys"):
        got = state(flash_forward(q, k, v, True, 0.5, 4, 4))
        want = wanted(q, k, v, visible(6, 9, 3), 0.5)
        for x, right, name in zip(got, want, ("the output", "the log-sum-exp"), strict=True):
            text = "float64 comes in, so float64 goes out: a gradient check needs all its digits."
            close(x, right, name, because=text, rtol=1e-9, atol=1e-9)


def stays_small(flash_forward: Callable[..., Any], new: Callable[..., Tensor]) -> None:
    q, k, v = new(96, 2, 2), new(96, 1, 2), new(96, 1, 2)
    call = partial(flash_forward, q, k, v, True, 0.7, 8, 8)
    with given(describe(q, k, True, 8, 8)):
        _, largest, _ = watched(call)
        if size(largest) > 2 * q.numel():
            fail(
                f"a tensor of shape {largest} was made. A tile has 2 heads × 8 × 8 scores; "
                "nothing that grows with queries × keys, nor with tile × keys, may exist, be it "
                "scores or a mask."
            )


def skips(flash_forward: Callable[..., Any], new: Callable[..., Tensor]) -> None:
    q, k, v = new(32, 1, 4), new(40, 1, 4), new(40, 1, 4)
    tile = 4 * 4 * 4 * 4  # 4 FLOPs for each of 4 × 4 scores and 4 components
    needed = sum(-(-(8 + start + 4) // 4) for start in range(0, 32, 4))
    with given(describe(q, k, True, 4, 4)):
        _, _, flops = watched(partial(flash_forward, q, k, v, True, 0.5, 4, 4))
        if flops > needed * tile:
            fail(
                f"{flops // tile} tiles were computed where {needed} are seen by any query. Tiles "
                "after `seen` are hidden altogether: do not read them."
            )


def draw_forward(flash_forward: Callable[..., Any]) -> Any:
    """A causal run of the learner's function on 64 tokens, and the traffic that it made."""
    from yaie.course.viz.tiles import draw_tiles

    return draw_tiles(run_steps(flash_forward)[-1])


def run_steps(flash_forward: Callable[..., Any]) -> Any:
    import torch

    from yaie.course.core.memory import Memory
    from yaie.course.lessons.attention_costs import AttentionShape, naive_cost
    from yaie.course.viz.tiles import record_tiles

    generator = torch.Generator().manual_seed(0)
    memory = Memory()
    q, k, v = (memory.place(random_tensor(generator, 64, 1, 16), name) for name in "qkv")
    flash_forward(q, k, v, True, 0.25, 16, 16)
    naive = naive_cost(AttentionShape(64, 64, head_dim=16, itemsize=4)).bytes
    return record_tiles(memory.events, 64, 64, True, naive)
