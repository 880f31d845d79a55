"""05.2: which tokens `SamplingKernel.top_p` keeps."""

import math
import random
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import torch

from yaie.course.core.compare import dtype_name
from yaie.course.core.observe import Case, Observer
from yaie.course.exercises.nb05.rows import (
    PROBABILITIES,
    by_row,
    draw_stages,
    logits_of,
    rows_of,
    see_filtered,
    see_refusals,
)

PLANNED = [
    ([0.1, 0.6, 0.3], 0.5),  # every mistake about sums and order keeps another set here
    ([0.5, 0.4, 0.1], 0.8),
    ([0.1, 0.5, 0.4], 0.8),
    ([0.05, 0.3, 0.15, 0.4, 0.1], 0.8),
    ([0.05, 0.3, 0.15, 0.4, 0.1], 0.3),
    ([0.02, 0.9, 0.08], 1e-6),
    ([0.02, 0.9, 0.08], 0.0),
    ([0.3, 0.0, 0.5, 0.2], 0.6),
    ([0.25, 0.25, 0.25, 0.25], 0.5),
    ([1 / 40] * 40, 0.5025),
    ([1 / 200] * 200, 0.5025),
]
CERTAIN = [[0.0, -30.0, -40.0], [-40.0, -30.0, 0.0]]  # logits: softmax rounds the largest to 1
ONE, PS = [0.15, 0.5, 0.05, 0.3], [0.4, 0.7, 1.0, 0.0, 0.9]
MANY = ((13_000, "bfloat16", 9142), (60_000, "float16", 42_192))  # equal logits, p = 0.7032


def cases() -> Iterator[Case]:
    for probabilities, p in PLANNED:
        size = len(probabilities)
        row = probabilities if size <= 12 else f"{size} equal ones"
        name = f"the probabilities {row}, p = {p:g}"
        yield Case(name, rows=[probabilities], ks=[p], shape=None)
    name = f"the logits {CERTAIN}, p ="
    yield Case(f"{name} 1.0", logits=CERTAIN, ks=[1.0, 1.0], shape=None)
    yield Case(f"{name} the tensor [[1.0], [0.5]]", logits=CERTAIN, ks=[1.0, 0.5], shape=(2, 1))
    for shape, words in (((-1, 1), "[batch, 1]"), ((-1,), "[batch]")):
        name = f"{len(PS)} rows of the probabilities {ONE}, p a tensor {PS} of shape {words}"
        yield Case(name, rows=[ONE] * len(PS), ks=PS, shape=shape)
    for size, dtype, enough in MANY:
        name = f"{size:,} equal {dtype} logits, p = 0.7032"
        yield Case(name, size=size, dtype=dtype, enough=enough)
    yield Case("", bad=True)
    rng = random.Random(0)
    for _ in range(150):
        vocabulary, count = rng.randrange(1, 40), rng.randrange(1, 5)
        rows = [softmax([rng.gauss(0, 2) for _ in range(vocabulary)]) for _ in range(count)]
        trace = [(row, away_from_sums(rng, row)) for row in rows]
        yield Case(by_row, trace=trace, what="probabilities", letter="p")


def softmax(row: list[float]) -> list[float]:
    weights = [math.exp(x) for x in row]
    return [weight / sum(weights) for weight in weights]


def away_from_sums(rng: random.Random, probabilities: list[float]) -> float:
    """A threshold that no rounding can carry over a running sum."""
    sums = list(accumulate(sorted(probabilities, reverse=True)))
    while True:
        p = rng.uniform(0.01, 0.99)
        if min(abs(total - p) for total in sums) > 1e-4:
            return p


def observe(SamplingKernel: type, case: Case, see: Observer) -> None:
    keep = SamplingKernel().top_p
    if hasattr(case, "bad"):
        bad = {"1.5": 1.5, "-0.1": -0.1, "[0.1, 0.2, 0.3]": torch.tensor([0.1, 0.2, 0.3])}
        see_refusals(see, "top_p", keep, bad)
        return
    if hasattr(case, "size"):
        with see.call("top_p"):
            after = keep(torch.zeros(1, case.size, dtype=getattr(torch, case.dtype)), 0.7032)
        count = float(after.isfinite().sum())
        digits = f"{case.dtype} has too few digits for the probabilities and their sum."
        see.close("the number of tokens kept", count, case.enough, digits, rtol=0.0, atol=15.0)
        own = "A filter returns the dtype of the logits: only the sums need float32."
        see.equal("the dtype of what top_p returns", dtype_name(after), case.dtype, own)
        return
    if hasattr(case, "logits"):
        rows, ps, shape = [softmax(row) for row in case.logits], case.ks, case.shape
        logits = torch.tensor(case.logits)
    else:
        rows, ps, shape = rows_of(case)
        logits = logits_of(*rows)
    value = ps[0] if shape is None else torch.tensor(ps).view(shape)
    chosen = [smallest_set(row, p) for row, p in zip(rows, ps, strict=True)]
    why = [reason(*row) for row in zip(rows, ps, chosen, strict=True)]
    see_filtered(see, "top_p", keep, logits, value, [sorted(c) for c in chosen], why)


def smallest_set(probabilities: list[float], p: float) -> list[int]:
    """The tokens to be kept, likeliest first, by adding one after the other."""
    chosen, total = [], 0.0
    for token in sorted(range(len(probabilities)), key=lambda t: -probabilities[t]):
        if chosen and p < 1 and total >= p:
            break
        chosen.append(token)
        total += probabilities[token]
    return [token for token in chosen if probabilities[token] > 0]


def reason(probabilities: list[float], p: float, chosen: list[int]) -> str:
    if p >= 1:
        return "A p of 1 keeps every token."
    if p == 0:
        return "At least one token always stays, the likeliest."
    if max(probabilities.count(x) for x in probabilities) > 1:
        return (
            "Of equal tokens the first come first (sort with `stable=True`), and only as many stay "
            "as reach p."
        )
    total = sum(probabilities[token] for token in chosen)
    before = total - probabilities[chosen[-1]]
    return (
        f"From the likeliest on, tokens {chosen} have the sum {total:.3g}, which reaches {p:.3g}; "
        f"without token {chosen[-1]} it is {before:.3g}."
    )


def draw(SamplingKernel: type) -> Any:
    logits, keep = logits_of(PROBABILITIES), SamplingKernel().top_p
    first = keep(logits, 0.8)
    second = keep(first, 0.5)
    steps = [("top-p 0.8", first, {"top_p": 0.8}), ("then top-p 0.5", second, {"top_p": 0.5})]
    return draw_stages([("model", logits, {}), *steps])
