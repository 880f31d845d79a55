"""The check of 18.1: the softmax of a thread block, over one chunk and over several."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from yaie.course.checks.nb14.common import element_of, on_every_schedule, race_in_words
from yaie.course.checks.nb18.common import Batch, batch_of, call, compare, lse_mistakes, outside
from yaie.course.core.cuda import Explain
from yaie.course.core.expect import given

if TYPE_CHECKING:
    from yaie.emulator.checks import Finding

NAME = "paged_one_block"
THREADS, WARP, CHUNK = 128, 32, 1024
WARPS = (
    "A shuffle reaches the 32 lanes of its own warp, and the thread block has {} warps: their "
    "results have to meet in max_of_warp and sum_of_warp."
)
CARRY = (
    "From the second chunk on there are sums from before, relative to the old maximum: total and "
    "sums are multiplied by exp(old maximum − new maximum)."
)
SHUFFLE = (
    "All 32 lanes come to a shuffle, or none: it cannot be inside a loop over keys that some lanes "
    "leave earlier than others."
)
OVERFLOW = (
    "exp overflows in float32 from 89 on. exp(score − best) is never above 1: take the maximum off "
    "before exp, not after."
)


def check_one_block(path: Path) -> None:
    explain = explanations(path)

    def values(order: str) -> None:
        run(path, "20 and 5 tokens", batch_of((20, 5)), explain, order)
        run(path, "100 and 128 tokens", batch_of((100, 128)), explain, order)

    on_every_schedule(values)
    run(path, "300 tokens", batch_of((300,), dim=8), explain)
    large = batch_of((50, 70), spread=300.0)
    run(path, "scores of several hundred", large, explain, because=OVERFLOW)
    low = batch_of((50,), heads=1)
    low.tensors[0][...] = -5.0
    place(low, low.keys[0] + 10.0)
    because = "The maximum of scores that are all negative is negative: begin with −INFINITY."
    run(path, "scores far below zero", low, explain, because=because)
    run(path, "0, 7 and 0 tokens", batch_of((0, 7, 0)), explain)
    for contexts in ((1025,), (2300, 1024)):
        words = " and ".join(f"{context:,}" for context in contexts)
        run(path, f"{words} tokens, {CHUNK:,} a chunk", batch_of(contexts, 1, dim=4), explain)
    rising = batch_of((3000,), heads=1, dim=4)
    rising.tensors[0][...] = 4.0
    order = rising.keys[0].sum(-1).flatten().argsort()
    place(rising, rising.keys[0][order])
    run(path, "3,000 tokens whose scores rise", rising, explain, because=CARRY)
    run(path, "heads of 200, more than threads", batch_of((9,), dim=200), explain)
    for dtype in ("float16", "bfloat16"):
        run(path, dtype, batch_of((60, 0, 3), dtype=dtype), explain)


def place(batch: Batch, keys: Any) -> None:
    """Write other keys to the only sequence of a batch."""
    pool, table = batch.tensors[1], batch.tensors[3][0]
    for key in range(len(keys)):
        pool[table[key // pool.shape[1]], key % pool.shape[1]] = keys[key]
    batch.keys[0] = keys


def _arange(n: int) -> Any:
    import torch

    return torch.arange(n)


def run(
    path: Path, words: str, batch: Batch, explain: Explain, order: str = "forward",
    because: str = "",
) -> None:  # fmt: skip
    words += "" if order == "forward" else f", threads in {order} order"
    with given(words):
        out, lse, _ = call(path, NAME, batch, explain=explain, order=order)
        compare(
            batch, out, lse, because or "out is sum of weight × value, divided by the sum of the "
            "weights, and weights are exp(score − best).", mistakes(batch), lse_mistakes(batch),
            scored=bool(because),
        )  # fmt: skip


def mistakes(batch: Batch) -> list[tuple[Any, str]]:
    """What known mistakes would give."""
    many = max(len(keys) for keys in batch.keys)
    warps = THREADS // WARP
    found: list[tuple[Any, str]] = [
        (wrong(batch, lambda w, d: 1.0), "It was not divided: `sums` is relative to `total`, and "
         "out[d] is sums[d] / total."),
        (wrong(batch, lambda w, d: w.sum() ** 2), "It was divided twice."),
        (wrong(batch, lambda w, d: 1.0, best=lambda s: s * 0), "The maximum was not taken off, and "
         "nothing was divided: out is sum of exp(score) × value as it stands."),
    ]  # fmt: skip
    if many <= CHUNK:
        found.append((
            wrong(batch, lambda w, d: w.sum(), raw=True), "The values were multiplied by the "
            "scores: weights have to be put into `scores`, where the next loop looks for them."
        ))  # fmt: skip
    if many > WARP:
        told = "That is divided by the sum over one warp's keys. " + WARPS.format(warps)
        found += [
            (wrong(batch, lambda w, d: of_warp(w, d % THREADS // WARP).sum()), told),
            (wrong(batch, lambda w, d: of_warp(w, 0).sum()), told),
            (wrong(batch, lambda w, d: of_warp(w, d % THREADS // WARP).sum(), best=warp_best),
             "Each warp has taken its own maximum and its own sum. " + WARPS.format(warps)),
            (wrong(batch, lambda w, d: w.sum(), best=warp_best),
             "Each warp has taken its own maximum: weights that were taken relative to different "
             "maxima cannot be added. " + WARPS.format(warps)),
        ]  # fmt: skip
    if many > CHUNK:
        told = f"{CARRY} Here"
        found += [
            (chunked(batch, sums=False), f"{told} the sums of values were not."),
            (chunked(batch, total=False), f"{told} the total was not."),
            (chunked(batch, total=False, sums=False), f"{told} neither was."),
            (chunked(batch, forget=True), "The total is that of the last chunk alone: add to what "
             "the chunks before left."),
        ]  # fmt: skip
    return found


def of_warp(weights: Any, warp: int) -> Any:
    """The weights that the threads of one warp have made of a chunk's scores."""
    import torch

    return weights[torch.arange(len(weights)) % THREADS // WARP == warp]


def warp_best(scores: Any) -> Any:
    """For each key the maximum that its own warp knows."""
    best = scores.clone()
    for warp in range(THREADS // WARP):
        mine = _arange(len(scores)) % THREADS // WARP == warp
        if bool(mine.any()):
            best[mine] = scores[mine].max()
    return best


def wrong(
    batch: Batch, divisor: Callable[[Any, int], Any], best: Callable[[Any], Any] | None = None,
    raw: bool = False,
) -> Any:  # fmt: skip
    """The output if weights are relative to `best(scores)` and element d is divided otherwise.

    `raw`: values are multiplied by scores.
    """
    import torch

    q = batch.tensors[0]
    out = torch.zeros(q.shape).double()
    for i in range(len(q)):
        for head in range(q.shape[1] if len(batch.keys[i]) else 0):
            scores = batch.scores(i, head)
            weights = (scores - (scores.max() if best is None else best(scores))).exp()
            sums = (scores if raw else weights) @ batch.values[i][:, head // batch.group].double()
            by = torch.tensor([float(divisor(weights, d)) for d in range(q.shape[2])])
            out[i, head] = sums / by
    return out.to(q.dtype)


def chunked(batch: Batch, sums: bool = True, total: bool = True, forget: bool = False) -> Any:
    """The output if something is not carried well from chunk to chunk."""
    import torch

    q = batch.tensors[0]
    out = torch.zeros(q.shape).double()
    for i in range(len(q)):
        for head in range(q.shape[1] if len(batch.keys[i]) else 0):
            scores, best = batch.scores(i, head), torch.tensor(-torch.inf).double()
            values = batch.values[i][:, head // batch.group].double()
            all_sums, all_total = torch.zeros(q.shape[2]).double(), torch.zeros(()).double()
            for first in range(0, len(scores), CHUNK):
                part = scores[first : first + CHUNK]
                larger = torch.maximum(best, part.max())
                factor, weights = (best - larger).exp(), (part - larger).exp()
                all_total = all_total * (factor if total else 1.0) * (not forget) + weights.sum()
                all_sums = all_sums * (factor if sums else 1.0)
                all_sums = all_sums + weights @ values[first : first + CHUNK]
                best = larger
            out[i, head] = all_sums / all_total
    return out.to(q.dtype)


def explanations(path: Path) -> Explain:
    def race(found: Finding) -> str:
        if found.memory == "global":
            return "Several threads write the same result: thread 0 writes lse, and out[d] is of "\
                   "the thread with d % THREADS."  # fmt: skip
        words = race_in_words(found, element_of(found, path, {"CHUNK": CHUNK, "WARPS": 4}, 4))
        if "scores" in words:
            return (
                f"{words} Scores come from all warps, and weights go to all: a barrier is due "
                "before the first is read and after the last weight is written."
            )
        return f"{words} Between a warp's write and the others' reads a barrier is due."

    return {
        "race": race,
        "uninitialized": "A barrier is due between the writes of all warps and the first read; and "
        "every warp has to write its place, with keys or without.",
        "divergent_barrier": "Every thread comes to every barrier, with a key or without.",
        "inactive_lane": SHUFFLE,
        "deadlock": SHUFFLE,
        "out_of_bounds": lambda found: (
            "A chunk has `count` scores, the last at count - 1." if found and
            found.memory == "shared" else outside(found.name if found else "")
        ),
    }  # fmt: skip


def draw_one_block(path: Path) -> Any:
    """What each line costs a warp."""
    from yaie.course.viz.costs import draw_costs

    batch = batch_of((100,), dim=64, block_size=16)
    return draw_costs(call(path, NAME, batch)[2])
