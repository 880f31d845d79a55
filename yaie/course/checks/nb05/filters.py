"""The checks of SamplingKernel.top_k and SamplingKernel.top_p."""

from __future__ import annotations

import random
from typing import Any

from yaie.course.checks.nb05.common import filtered, keeps, logits_of, refuses
from yaie.course.core.expect import true

BROADCAST = (
    "`k` and `p` may be a tensor with one entry a row. `_column(name, value, logits)` makes a "
    "column `[batch, 1]` of either, which compares with `[batch, vocabulary]`."
)
FIRST_ROW = "Every row has its own parameter: this row was filtered with that of row 0."
AS_A_LIST = dict.fromkeys((TypeError, RuntimeError, ValueError), BROADCAST)


# ---------------------------------------------------------------------------------- top-k


def check_top_k(SamplingKernel: type) -> None:
    import torch

    keep = SamplingKernel().top_k
    logits = torch.tensor([[1.0, 4.0, 2.0, 3.0, 0.0]])
    for k in (2, 1, 3, 4):
        _one_k(keep, logits, k)
    call = f"top_k({logits.tolist()}, 0)"
    out = filtered(call, keep, logits, 0, _too_large(call))
    off = "0 means off: every token is kept."
    keeps(call, out[0], [0, 1, 2, 3, 4], off, [([1], f"{off} Here it became 1.")])
    for k in (5, 6, 1000):
        call = f"top_k({logits.tolist()}, {k})"
        out = filtered(call, keep, logits, k, _too_large(call))
        because = "There are 5 tokens: a k of 5 or more keeps all of them."
        keeps(call, out[0], [0, 1, 2, 3, 4], because)
    tied = torch.tensor([[1.0, 3.0, 2.0, 2.0, 0.0]])
    call = f"top_k({tied.tolist()}, 2)"
    because = (
        "Tokens 2 and 3 tie for the second place, and both stay: compare the logits with the "
        "k-th largest one, and drop what is below it."
    )
    keeps(call, filtered(call, keep, tied, 2)[0], [1, 2, 3], because)
    _k_by_row(keep)
    _k_after_a_mask(keep)
    refuses(keep, "top_k", [("-1", -1), ("tensor([1, 2, 3])", torch.tensor([1, 2, 3]))])
    _k_at_random(keep)


def _one_k(keep: Any, logits: Any, k: int) -> None:
    values = logits[0].tolist()
    ranks = sorted(range(len(values)), key=lambda t: -values[t])
    call = f"top_k({logits.tolist()}, {k})"
    keeps(
        call,
        filtered(call, keep, logits, k)[0],
        sorted(ranks[:k]),
        f"The {k} largest logits are those of tokens {ranks[:k]}.",
        [
            (ranks[-k:], "These are the least likely ones: the largest logits are the likeliest."),
            (range(k), "These are the first of the row, not the likeliest: their places in sorted "
             "order were taken for token ids."),
            (ranks[:k - 1], "The k-th largest itself was dropped: drop what is below it."),
            (ranks[:k + 1], "One too many: the k-th largest is at index k - 1."),
        ],
    )  # fmt: skip


def _too_large(call: str) -> dict[type[Exception], str]:
    because = (
        "A k above the vocabulary keeps all, as 0 does. `topk` and indexing refuse it, so bring "
        "such a k to the size of the vocabulary first."
    )
    return dict.fromkeys((RuntimeError, IndexError, ValueError), because)


def _k_by_row(keep: Any) -> None:
    import torch

    logits = torch.tensor([[1.0, 4.0, 2.0, 3.0, 0.0]]).repeat(4, 1)
    ranks = [1, 3, 2, 0, 4]
    ks = [1, 3, 0, 9]
    for shape in ("[batch, 1]", "[batch]"):
        k = torch.tensor(ks).view(4, 1) if shape == "[batch, 1]" else torch.tensor(ks)
        call = f"top_k of four equal rows with k a tensor {ks}, {shape}"
        out = filtered(call, keep, logits, k, AS_A_LIST)
        for row, own in enumerate(ks):
            want = sorted(ranks[: own if 0 < own < 5 else 5])
            keeps(
                f"{call}: row {row}", out[row], want, f"Its k is {own}.", [(ranks[:1], FIRST_ROW)]
            )


def _k_after_a_mask(keep: Any) -> None:
    logits = logits_of([0.6, 0.0, 0.4, 0.0])
    call = f"top_k({logits.tolist()}, 3)"
    because = "What another filter has dropped stays dropped."
    keeps(call, filtered(call, keep, logits, 3)[0], [0, 2], because)


def _k_at_random(keep: Any) -> None:
    import torch

    rng = random.Random(0)
    for _ in range(150):
        vocabulary, rows = rng.randrange(1, 30), rng.randrange(1, 5)
        values = [[rng.randrange(12) / 2 for _ in range(vocabulary)] for _ in range(rows)]
        ks = [rng.randrange(vocabulary + 3) for _ in range(rows)]
        logits = torch.tensor(values)
        call = f"top_k of {rows} random rows of {vocabulary} logits with k = {ks}"
        out = filtered(call, keep, logits, torch.tensor(ks).view(-1, 1))
        for row, (line, k) in enumerate(zip(values, ks, strict=True)):
            above = [sum(other > value for other in line) for value in line]
            want = [t for t in range(vocabulary) if k == 0 or above[t] < k]
            because = "Keep a token if fewer than k logits are larger than its own."
            keeps(f"{call}: row {row}, {line}", out[row], want, because)


# ---------------------------------------------------------------------------------- top-p


def check_top_p(SamplingKernel: type) -> None:
    import torch

    keep = SamplingKernel().top_p
    _one_p(keep, [0.1, 0.6, 0.3], 0.5)  # every known mistake keeps another set here
    _one_p(keep, [0.5, 0.4, 0.1], 0.8)
    for probabilities, p in (
        ([0.1, 0.5, 0.4], 0.8),
        ([0.05, 0.3, 0.15, 0.4, 0.1], 0.8),
        ([0.05, 0.3, 0.15, 0.4, 0.1], 0.3),
        ([0.02, 0.9, 0.08], 1e-6),
        ([0.3, 0.0, 0.5, 0.2], 0.6),
    ):
        _one_p(keep, probabilities, p)
    _p_of_equals(keep)
    _p_of_one(keep)
    _p_by_row(keep)
    _p_of_half_precision(keep)
    refuses(keep, "top_p", [("1.5", 1.5), ("-0.1", -0.1), ("tensor([.1, .2, .3])",
            torch.tensor([0.1, 0.2, 0.3]))])  # fmt: skip
    _p_at_random(keep)


def smallest_set(probabilities: list[float], p: float) -> list[int]:
    """The tokens that top-p keeps, likeliest first, by adding one after the other."""
    chosen, total = [], 0.0
    for token in sorted(range(len(probabilities)), key=lambda t: -probabilities[t]):
        if chosen and total >= p:
            break
        chosen.append(token)
        total += probabilities[token]
    return [token for token in chosen if probabilities[token] > 0]


def _one_p(keep: Any, probabilities: list[float], p: float) -> None:
    logits = logits_of(probabilities)
    call = f"top_p of the probabilities {probabilities} at {p:g}"
    chosen = smallest_set(probabilities, p)
    order = sorted(range(len(probabilities)), key=lambda t: -probabilities[t])
    total = sum(probabilities[t] for t in chosen)
    short_of = sum(probabilities[t] for t in chosen[:-1])
    crossing = (
        f"The token that crosses the threshold was dropped. Without token {chosen[-1]} the sum is "
        f"{short_of:.3g}, below {p:g}: it is needed to reach it, so it stays."
    )
    count = len(chosen)
    keeps(
        call,
        filtered(call, keep, logits, p)[0],
        sorted(chosen),
        f"From the likeliest on, tokens {chosen} reach {total:.3g}; the set before them, "
        f"{short_of:.3g}, does not reach {p:g}.",
        [
            (chosen[:-1], crossing),
            (range(count), "The filter decided in sorted order, and its decision was applied to "
             "the tokens in their own order. Carry it back: `drop.scatter(-1, order, drop)` "
             "writes entry i to where sorted token i stands."),
            ([t for t in range(len(order)) if order[t] < count], "The decision was carried back "
             "with `gather`, which goes the wrong way: `order` says where a sorted entry came "
             "from, so it must be written there, with `scatter`."),
            (_prefix(probabilities, p), "The sum ran over the tokens in the order of the "
             "vocabulary: sort them first, the likeliest first."),
            (_least_likely_first(probabilities, p), "The sum began with the least likely tokens: "
             "sort with `descending=True`."),
            (order[: count + 1], "One token too many: the sum had reached the threshold before it. "
             "Look at the sum *before* each token."),
        ],
    )  # fmt: skip


def _prefix(probabilities: list[float], p: float) -> list[int]:
    total, chosen = 0.0, []
    for token, probability in enumerate(probabilities):
        if total < p:
            chosen.append(token)
        total += probability
    return [t for t in chosen if probabilities[t] > 0]


def _least_likely_first(probabilities: list[float], p: float) -> list[int]:
    total, chosen = 0.0, []
    for token in sorted(range(len(probabilities)), key=lambda t: probabilities[t]):
        if total < p:
            chosen.append(token)
        total += probabilities[token]
    return [t for t in chosen if probabilities[t] > 0]


def _p_of_equals(keep: Any) -> None:
    call = "top_p of the probabilities [0.25, 0.25, 0.25, 0.25] at 0.5"
    keeps(
        call,
        filtered(call, keep, logits_of([0.25] * 4), 0.5)[0],
        [0, 1],
        "The first two reach 0.5 exactly, and of equals the first come first.",
        [
            ([0, 1, 2, 3], "Everything that ties with the last token was kept. Of equals only "
             "those needed stay, or a flat distribution loses nothing at all; so decide by place "
             "in sorted order, not by comparing with the smallest logit kept."),
            ([0, 1, 2], "The first two reach 0.5 exactly, and that is enough: at least `p`."),
        ],
    )  # fmt: skip
    for size in (40, 200):
        call = f"top_p of {size} equal probabilities at 0.5025"
        count = int(size * 0.5025) + 1
        because = "Of equals the first come first: sort with `stable=True`."
        everything = "Everything that ties with the last token was kept."
        keeps(call, filtered(call, keep, logits_of([1 / size] * size), 0.5025)[0],
              list(range(count)), because, [(range(size), everything)])  # fmt: skip


def _p_of_one(keep: Any) -> None:
    import torch

    logits = torch.tensor([[0.0, -30.0, -40.0], [-40.0, -30.0, 0.0]])
    for name, p in (("1.0", 1.0), ("the tensor [1.0, 0.5]", torch.tensor([[1.0], [0.5]]))):
        call = f"top_p({logits.tolist()}, {name})"
        because = (
            "A p of 1 keeps all. In float32 the first token's probability rounds to 1, so the sum "
            "reaches 1 before the tail has had its turn: treat 1 apart."
        )
        keeps(f"{call}: row 0", filtered(call, keep, logits, p, AS_A_LIST)[0], [0, 1, 2], because)


def _p_by_row(keep: Any) -> None:
    import torch

    probabilities, ps = [0.15, 0.5, 0.05, 0.3], [0.4, 0.7, 1.0, 0.9]
    logits = logits_of(*[probabilities] * 4)
    for shape in ("[batch, 1]", "[batch]"):
        p = torch.tensor(ps).view(4, 1) if shape == "[batch, 1]" else torch.tensor(ps)
        call = f"top_p of four equal rows with p a tensor {ps}, {shape}"
        out = filtered(call, keep, logits, p, AS_A_LIST)
        for row, own in enumerate(ps):
            want = sorted(smallest_set(probabilities, own))
            known = [([1], FIRST_ROW)]
            keeps(f"{call}: row {row}", out[row], want, f"Its p is {own}.", known)


def _p_of_half_precision(keep: Any) -> None:
    import torch

    logits = torch.zeros(1, 13_000, dtype=torch.bfloat16)
    call = "top_p of 13,000 equal bfloat16 logits at 0.7032"
    count = int(filtered(call, keep, logits, 0.7032).isfinite().sum())
    true(
        abs(count - 9142) < 15,
        f"{call} keeps {count:,} tokens, expected 9,142. A number in bfloat16 has two or three "
        "digits, and neither 1/13,000 nor the sum of them is one of those that it can hold. "
        "Compute the softmax and its running sum in float32.",
    )


def _p_at_random(keep: Any) -> None:
    import torch

    rng = random.Random(0)
    for _ in range(150):
        vocabulary, rows = rng.randrange(1, 40), rng.randrange(1, 5)
        values = [[rng.gauss(0, 2) for _ in range(vocabulary)] for _ in range(rows)]
        logits = torch.tensor(values)
        exact = logits.double().softmax(-1).tolist()
        ps = [_away_from_sums(rng, line) for line in exact]
        shown = [round(p, 3) for p in ps]
        call = f"top_p of {rows} random rows of {vocabulary} logits with p = {shown}"
        out = filtered(call, keep, logits, torch.tensor(ps).view(-1, 1))
        for row, (line, p) in enumerate(zip(exact, ps, strict=True)):
            because = "Keep the smallest set of most likely tokens that reaches p."
            keeps(f"{call}: row {row}", out[row], sorted(smallest_set(line, p)), because)


def _away_from_sums(rng: random.Random, probabilities: list[float]) -> float:
    """A threshold that no rounding can carry over a running sum."""
    ordered = sorted(probabilities, reverse=True)
    sums = [sum(ordered[:n]) for n in range(1, len(ordered) + 1)]
    while True:
        p = rng.uniform(0.01, 0.99)
        if min(abs(total - p) for total in sums) > 1e-4:
            return p
