"""19.4: attention over the shared prefix once for all sequences, over the rest for each, merged."""

from collections.abc import Callable, Iterator
from typing import Any

import torch

from yaie.course.core.observe import Case, Observer
from yaie.course.exercises.nb19.paged import OVERFLOW, attend, batch_of, planned, see_result
from yaie.ops.reference.attention import attention

SHARED = 3  # blocks of 4
MERGED = (
    "Attention over the shared tokens and attention over a sequence's own are two partial states "
    "over different keys: merge_states makes one of them."
)


def cases() -> Iterator[Case]:
    for words, contexts, sizes in (
        ("3 sequences, 12 tokens shared", (14, 22, 13), {}),
        ("4 query heads for 2 KV heads, 12 tokens shared", (15, 30), {"heads": 4, "kv_heads": 2}),
        ("a sequence that has only the 12 shared tokens", (12, 17), {}),
        ("nothing shared", (9, 5, 16), {"shared": 0}),
        ("1 sequence, 12 tokens shared", (20,), {}),
        ("float16, 12 tokens shared", (14, 22, 40), {"heads": 4, "dtype": "float16"}),
    ):
        yield planned(words, contexts, **{"shared": SHARED, **sizes})
    yield planned("scale 0.5, 12 tokens shared", (14, 22), shared=SHARED, scale=0.5)
    words = "scores of several hundred, 12 tokens shared"
    yield planned(words, (14, 22), spread=300.0, shared=SHARED, because=OVERFLOW)


def observe(shared_prefix_attention: Callable[..., Any], case: Case, see: Observer) -> None:
    batch = case.make()
    shared_len = 0 if case.name == "nothing shared" else 4 * SHARED
    before = [tensor.clone() for tensor in batch.tensors]
    scale = {"scale": batch.scale} if case.name.startswith("scale") else {}
    told = f"shared_len={shared_len}" + (f", scale={batch.scale}" if scale else "")
    call = f"shared_prefix_attention(…, {told})"
    with see.call(call):
        result = shared_prefix_attention(*batch.tensors, shared_len, **scale)
    two = isinstance(result, tuple) and len(result) == 2
    if not see.true(call, two, "must return two tensors, the output and the log-sum-exp"):
        see.stop()
    same = all(map(torch.equal, before, batch.tensors))
    see.true("the arguments", same, "have changed", "They belong to the caller.")
    see_result(see, batch, *result, case.because or MERGED)

    calls: list[tuple[int, int]] = []

    def counting(q: Any, k: Any, v: Any, causal: bool = True, scale: float | None = None) -> Any:
        calls.append((len(q), len(k)))
        return attention(q, k, v, causal, scale)

    with see.call(f"{call[:-1]}, attention=…)"):
        shared_prefix_attention(*batch.tensors, shared_len, attention=counting, **scale)
    keys = sum(count for _, count in calls)
    once = shared_len + sum(len(keys) - shared_len for keys in batch.keys)
    because = (
        f"Pass `attention` on. The {shared_len} shared keys are read once, with the queries of all "
        "sequences, and every other key once."
    )
    see.equal("the number of keys that `attention` was called with", keys, once, because)
    see.note("the queries and keys of each call", sorted(calls))


def draw(shared_prefix_attention: Callable[..., Any]) -> Any:
    """What is merged, for one head of three sequences."""
    from yaie.course.viz.film import film_strip
    from yaie.course.viz.steps import MergeNode, draw_merge

    batch = batch_of((14, 22, 13), heads=1, dim=16, shared=SHARED)
    out, lse = shared_prefix_attention(*batch.tensors, 4 * SHARED)
    prefix, own = attend(batch, 0, 4 * SHARED), attend(batch, 4 * SHARED)
    trees = []
    for i, keys in enumerate(batch.keys):
        leaves = (
            MergeNode("12 shared", float(prefix[1][i, 0]), float(prefix[0][i, 0, 0])),
            MergeNode(f"{len(keys) - 12} of its own", float(own[1][i, 0]), float(own[0][i, 0, 0])),
        )
        trees.append(MergeNode("merged", float(lse[i, 0]), float(out[i, 0, 0]), leaves))
    return film_strip(trees, draw_merge, [f"sequence {i}" for i in range(len(trees))])
