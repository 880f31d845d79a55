"""05.1: which tokens `SamplingKernel.top_k` keeps."""

import math
import random
from collections.abc import Iterator
from typing import Any

import torch

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

FIVE = [1.0, 4.0, 2.0, 3.0, 0.0]
TIED = [1.0, 3.0, 2.0, 2.0, 0.0]
MASKED = [3.0, -math.inf, 2.0, -math.inf]


def cases() -> Iterator[Case]:
    for k in (2, 1, 3, 4, 0, -1, 5, 6, 1000):
        yield Case(f"the logits {FIVE}, k = {k}", rows=[FIVE], ks=[k], shape=None)
    yield Case(f"the logits {TIED}, k = 2", rows=[TIED], ks=[2], shape=None)
    for shape, words in (((4, 1), "[batch, 1]"), ((4,), "[batch]")):
        name = f"four rows {FIVE}, k a tensor [1, 3, 0, -1] of shape {words}"
        yield Case(name, rows=[FIVE] * 4, ks=[1, 3, 0, -1], shape=shape)
    yield Case(f"the logits {MASKED}, k = 3", rows=[MASKED], ks=[3], shape=None)
    yield Case(f"the bfloat16 logits {FIVE}, k = 2", rows=[FIVE], ks=[2], shape=None, half=True)
    yield Case("", bad=True)
    rng = random.Random(0)
    for _ in range(150):
        vocabulary, count = rng.randrange(1, 30), rng.randrange(1, 5)
        rows = [[rng.randrange(12) / 2 for _ in range(vocabulary)] for _ in range(count)]
        ks = [rng.randrange(vocabulary + 3) for _ in range(count)]
        yield Case(by_row, trace=list(zip(rows, ks, strict=True)), what="logits", letter="k")


def observe(SamplingKernel: type, case: Case, see: Observer) -> None:
    keep = SamplingKernel().top_k
    if hasattr(case, "bad"):
        see_refusals(see, "top_k", keep, {"-2": -2, "[1, 2, 3]": torch.tensor([1, 2, 3])})
        return
    rows, ks, shape = rows_of(case)
    value = ks[0] if shape is None else torch.tensor(ks).view(shape)
    want = [largest(row, k) for row, k in zip(rows, ks, strict=True)]
    why = [reason(row, k) for row, k in zip(rows, ks, strict=True)]
    dtype = torch.bfloat16 if hasattr(case, "half") else torch.float32
    see_filtered(see, "top_k", keep, torch.tensor(rows, dtype=dtype), value, want, why)


def largest(row: list[float], k: int) -> list[int]:
    """The tokens to be kept, by counting for each how many logits are larger than its own."""
    above = [sum(other > value for other in row) for value in row]
    finite = [token for token, value in enumerate(row) if value > -math.inf]
    return [token for token in finite if k <= 0 or above[token] < k]


def reason(row: list[float], k: int) -> str:
    if k <= 0:
        return f"A k of {k} means off: every token is kept."
    if k >= len(row):
        return f"There are {len(row)} tokens, and a k of {k} keeps all of them."
    value = sorted(row, reverse=True)[k - 1]
    return f"The k-th largest logit is {value:g}: it stays, as do those that are equal or larger."


def draw(SamplingKernel: type) -> Any:
    logits, keep = logits_of(PROBABILITIES), SamplingKernel().top_k
    filtered = [(f"top-k {k}", keep(logits, k), {}) for k in (5, 2)]
    return draw_stages([("model", logits, {}), *filtered])
