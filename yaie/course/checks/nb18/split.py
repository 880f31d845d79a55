"""The check of 18.3: which keys a split has, and how the splits are merged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from yaie.course.checks.nb14.common import on_every_schedule
from yaie.course.checks.nb18.common import (
    Batch,
    batch_of,
    call,
    compare,
    lse_mistakes,
    oracle,
    outside,
)
from yaie.course.core.cuda import Explain
from yaie.course.core.expect import given, true

if TYPE_CHECKING:
    from yaie.emulator.checks import Finding

NAME = "paged_split"
RANGE = (
    "Split s has the keys from s * part on, up to (s + 1) * part or the end of the context, "
    "whichever comes first; the last split has all that are left."
)
SHARE = "The share of a split in the result is exp(its lse − the lse of all)."
UNSEEN = (
    "A split whose keys would begin behind the context has written nothing, and its places hold "
    "what was there before: `count` splits have keys."
)
OVERFLOW = (
    "exp overflows in float32 from 89 on, and an lse can be larger than that: take the largest lse "
    "off before exp."
)


def check_split(path: Path) -> None:
    explain = explanations()

    def values(order: str) -> None:
        run(path, "24 tokens, 2 splits of 12", batch_of((24,)), 2, 12, explain, order)
        run(path, "20 and 9 tokens, 3 splits of 8", batch_of((20, 9)), 3, 8, explain, order)

    run(path, "9 tokens, 1 split", batch_of((9,)), 1, 9, explain)
    on_every_schedule(values)
    run(path, "17 tokens, 4 splits of 5", batch_of((17,)), 4, 5, explain)
    run(path, "0, 30 and 3 tokens, 4 splits of 8", batch_of((0, 30, 3)), 4, 8, explain)
    run(path, "40 tokens, 3 splits of 8, the last of 24", batch_of((40,)), 3, 8, explain)
    run(path, "5 tokens, 6 splits of 1", batch_of((5,)), 6, 1, explain)
    run(path, "4 query heads of 64 for 2 KV heads", batch_of((33,), 4, 2, 64), 3, 16, explain)
    large = batch_of((50, 70), spread=300.0)
    run(path, "scores of several hundred", large, 3, 25, explain, because=OVERFLOW)
    for dtype in ("float16", "bfloat16"):
        run(path, dtype, batch_of((60, 0, 3), 4, dtype=dtype), 4, 16, explain)


def run(
    path: Path, words: str, batch: Batch, splits: int, part: int, explain: Explain,
    order: str = "forward", because: str = "",
) -> None:  # fmt: skip
    import torch

    words += "" if order == "forward" else f", threads in {order} order"
    shape = batch.tensors[0].shape
    parts = torch.full((splits, *shape), torch.nan)
    part_lse = torch.full((splits, *shape[:2]), torch.nan)
    with given(words):
        extra = (parts, part_lse, part, splits)
        out, lse, _ = call(path, NAME, batch, extra, explain, order)
        check_parts(batch, part_lse, splits, part)
        if bool(torch.isnan(out).any()) and any(
            begin >= end for keys in batch.keys for begin, end in ends(len(keys), splits, part)
        ):
            because = because or UNSEEN
        compare(
            batch, out, lse, because or f"It is the parts' mean, by their shares. {SHARE}",
            [*mistakes(batch, splits, part), *confused(batch, parts, part_lse)],
            [*merged_lse(batch, splits, part), *lse_mistakes(batch)],
            scored=bool(because),
        )  # fmt: skip


def ends(length: int, splits: int, part: int) -> list[tuple[int, int]]:
    """The keys of each split, from and to."""
    cut = [(s * part, min((s + 1) * part, length)) for s in range(splits)]
    return [*cut[:-1], (cut[-1][0], length)]


def check_parts(batch: Batch, part_lse: Any, splits: int, part: int) -> None:
    """Each split has seen its keys: its log-sum-exp says so."""
    import torch

    for i, keys in enumerate(batch.keys):
        length = len(keys)
        scores = batch.scores(i, 0)
        for s, (begin, end) in enumerate(ends(length, splits, part)):
            if begin >= end:
                continue
            got = float(part_lse[s, i, 0])
            name = f"split {s} of {length} tokens"
            true(got == got, f"{name} has left nothing: it has the keys {begin} to {end - 1}.")
            want = torch.logsumexp(scores[begin:end], 0)
            if abs(got - float(want)) < 1e-3 * max(1.0, abs(float(want))):
                continue
            if got == -torch.inf:
                told = "It has seen no key."
            else:
                told = taken(scores, got, s, splits, part)
            true(False, f"{name} has the keys {begin} to {end - 1}, and has seen others. {told}")


def taken(scores: Any, got: float, split: int, splits: int, part: int) -> str:
    """Which keys a split has seen instead."""
    import torch

    length = len(scores)
    for begin in range(length):
        for end in range(begin + 1, length + 1):
            want = float(torch.logsumexp(scores[begin:end], 0))
            if abs(got - want) < 1e-5 * max(1.0, abs(want)):
                told = f"It has seen the keys {begin} to {end - 1}."
                if split == splits - 1 and end == begin + part:
                    told += " The last split takes all that are left, be they more than `part`."
                if end == length and split < splits - 1:
                    told += " It ends where the next one begins."
                return f"{told} {RANGE}"
    return RANGE


def states(batch: Batch, splits: int, part: int) -> dict[tuple[int, int], tuple[Any, Any]]:
    """For each row the outputs and log-sum-exps of the splits that have keys."""
    import torch

    found = {}
    for i, keys in enumerate(batch.keys):
        for head in range(batch.tensors[0].shape[1] if len(keys) else 0):
            scores = batch.scores(i, head)
            values = batch.values[i][:, head // batch.group].double()
            pieces = [slice(*piece) for piece in ends(len(keys), splits, part)]
            pieces = [piece for piece in pieces if piece.start < piece.stop]
            outs = torch.stack([torch.softmax(scores[p], 0) @ values[p] for p in pieces])
            found[i, head] = outs, torch.stack([torch.logsumexp(scores[p], 0) for p in pieces])
    return found


def mistakes(batch: Batch, splits: int, part: int) -> list[tuple[Any, str]]:
    """What known mistakes of the merge would give."""
    import torch

    rows = states(batch, splits, part)
    want, _ = oracle(batch, torch.float64)

    def each(result: Callable[[Any, Any], Any]) -> Any:
        out = torch.zeros_like(want)
        for (i, head), (outs, lses) in rows.items():
            out[i, head] = result(outs, lses)
        return out.to(batch.tensors[0].dtype)

    def shares(lses: Any) -> Any:
        return (lses - lses.max()).exp()

    return [
        (each(lambda outs, lses: outs.mean(0)), "All splits count alike here. A split with larger "
         f"scores, or more keys, counts more: {SHARE.lower()}"),
        (each(lambda outs, lses: outs.sum(0)), f"The parts were added as they are. {SHARE}"),
        (each(lambda outs, lses: shares(lses) @ outs), "It was not divided by the sum of the "
         "weights exp(lse − largest)."),
        (each(lambda outs, lses: shares(lses) @ outs / shares(lses).sum() ** 2), "It was divided "
         "twice. A part is divided by its own sum already: divide by that of the weights, once."),
        (each(lambda outs, lses: lses / lses.sum() @ outs), "The log-sum-exps themselves were "
         f"taken for weights: they are logarithms. {SHARE}"),
        (each(lambda outs, lses: outs[0]), "That is the first split's part alone."),
        (each(lambda outs, lses: outs[-1]), "That is the last split's part alone."),
        (each(lambda outs, lses: outs[int(lses.argmax())]), "That is the part of the split with "
         f"the largest lse alone. {SHARE}"),
    ]  # fmt: skip


def confused(batch: Batch, parts: Any, part_lse: Any) -> list[tuple[Any, str]]:
    """The result if a row's splits are looked for one behind the other."""
    import torch

    (splits, tokens, heads, dim), q = parts.shape, batch.tensors[0]
    rows = tokens * heads
    weights = torch.softmax(part_lse.view(splits, rows), 0)
    found = torch.einsum("sr,rsd->rd", weights, parts.view(rows, splits, dim))
    told = "Splits lie one behind the other, and each has a place for all rows: s * rows + row."
    return [(found.view(q.shape).to(q.dtype), told)]


def merged_lse(batch: Batch, splits: int, part: int) -> list[tuple[Any, str]]:
    """What the merged log-sum-exp is taken for."""
    import torch

    _, want = oracle(batch)

    def each(result: Callable[[Any], Any]) -> Any:
        lse = torch.full_like(want, -torch.inf)
        for (i, head), (_, lses) in states(batch, splits, part).items():
            lse[i, head] = result(lses)
        return lse

    return [
        (each(lambda lses: lses.max()), "That is the largest of the splits' log-sum-exps: add the "
         "logarithm of the sum of the weights."),
        (each(lambda lses: lses.sum()), "The log-sum-exps were added. What is added is their "
         "exponentials."),
        (each(lambda lses: lses.max() + lses.sum().log()), "The log-sum-exps themselves were taken "
         f"for weights: they are logarithms. {SHARE}"),
        (each(lambda lses: lses.mean()), "That is the mean of the splits' log-sum-exps."),
        (each(lambda lses: (lses - lses.max()).exp().sum().log()), "That is relative to the "
         "largest log-sum-exp: add it."),
    ]  # fmt: skip


def explanations() -> Explain:
    def place(found: Finding) -> str:
        name = found.name if found else ""
        if name in ("parts", "part_lse"):
            return (
                "Row `row` of split s is number s * rows + row of parts and of part_lse. In parts "
                "it has paged.head_dim numbers: thread t owns d = t, t + MERGERS, … below that."
            )
        return outside(name)

    return {
        "out_of_bounds": place,
        "divergent_barrier": "A thread block has keys or it has none: all of its threads return, "
        "or none.",
        "race": "Each element of out belongs to one thread, and lse[row] to thread 0.",
    }


def draw_split(path: Path) -> Any:
    """The partial states of one query head, and what they were merged to."""
    import torch

    from yaie.course.viz.merge import MergeNode, draw_merge

    batch = batch_of((44,), heads=1, dim=16)
    splits, part = 4, 12
    shape = batch.tensors[0].shape
    parts, part_lse = torch.zeros(splits, *shape), torch.zeros(splits, *shape[:2])
    out, lse, _ = call(path, NAME, batch, (parts, part_lse, part, splits), checked=False)
    leaves = tuple(
        MergeNode(f"keys {begin}–{end - 1}", float(part_lse[s, 0, 0]), float(parts[s, 0, 0, 0]))
        for s, (begin, end) in enumerate(ends(44, splits, part))
    )
    return draw_merge(MergeNode("merged", float(lse[0, 0]), float(out[0, 0, 0]), leaves))
