"""10.4: attention over parts of a context, and their merge."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from yaie.course.core import native
from yaie.course.core.cuda import poisoned, unwritten
from yaie.course.core.observe import Case, Observer
from yaie.course.exercises import oracles

MERGED = "softmax over all keys: each part weighs e^(its maximum - the largest) × its total."
LSE = "The largest score plus the logarithm of Σ e^(score - the largest)."
ORDER = "A state belongs to a part, not to a thread, and the parts are merged in their order."


def cases() -> Iterator[Case]:
    for length, head_dim in ((1, 16), (7, 64), (256, 16), (257, 32), (700, 64), (1100, 16)):
        yield case(length, head_dim)
    yield case(600, 16, ", scores of a thousand", by=500.0)
    yield case(600, 16, ", all scores far below 0", shift=-300.0)
    yield case(300, 32, ", the largest score last", rising=True, by=500.0)
    yield case(300, 16, ", with two parts that have no keys", empty=1)


def case(length: int, head_dim: int, words: str = "", **data: Any) -> Case:
    name = f"{length} key{'s' * (length > 1)} of {head_dim} numbers{words}"
    given = {"length": length, "head_dim": head_dim, "by": 1.0, "shift": 0.0, "empty": 0}
    return Case(name, **{**given, "rising": False, **data})


def inputs(case: Case) -> tuple[Any, Any, Any]:
    generator = torch.Generator().manual_seed(case.length + case.head_dim)
    q = torch.randn(case.head_dim, generator=generator)
    keys, values = torch.randn(2, case.length, case.head_dim, generator=generator)
    keys = keys * case.by + case.shift * q * case.head_dim**0.5 / q.dot(q)
    if case.rising:
        keys = keys[(keys @ q).argsort()].contiguous()
    return q, keys, values


def observe(path: Path, case: Case, see: Observer) -> None:
    q, keys, values = inputs(case)
    scale = case.head_dim**-0.5
    found = []
    for threads in (1, 3):
        out, lse = poisoned(case.head_dim), poisoned(1)
        sizes = case.length, case.head_dim, scale, case.empty, threads
        native.run(see, path, "split_attention", q, keys, values, out, lse, *sizes)
        found.append((out, lse))
    (out, lse), again = found
    wide = [x.view(len(x) // case.head_dim, 1, -1) for x in (q, keys.flatten(), values.flatten())]
    want, want_lse = oracles.attention(*wide, scale=scale)
    see.close("out", out, want.flatten().float(), unwritten(out, MERGED), rtol=1e-3, atol=1e-4)
    see.close("lse", lse, want_lse.flatten().float(), LSE, rtol=1e-5, atol=1e-4)
    see.equal("out with 3 threads", again[0], out, ORDER)
