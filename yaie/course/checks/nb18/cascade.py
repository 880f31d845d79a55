"""The check of 18.4: the shared prefix once for all, the rest for each, merged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from yaie.course.checks.nb18.common import Batch, batch_of, compare, lse_mistakes
from yaie.course.core.expect import fail, given, true

SHARED = 3  # blocks of 4
MEANING = (
    "Attention over the shared tokens and attention over a sequence's own are two partial states "
    "over different keys: merge_states makes one of them."
)


def check_cascade(shared_prefix_attention: Callable[..., Any]) -> None:
    run(shared_prefix_attention, "3 sequences, 12 tokens shared", batch_of((14, 22, 13), shared=3))
    words = "4 query heads for 2 KV heads, 12 tokens shared"
    run(shared_prefix_attention, words, batch_of((15, 30), 4, 2, shared=3))
    words = "a sequence that has nothing but the 12 shared tokens"
    run(shared_prefix_attention, words, batch_of((12, 17), shared=3))
    run(shared_prefix_attention, "nothing shared", batch_of((9, 5, 16)), 0)
    run(shared_prefix_attention, "1 sequence, 12 tokens shared", batch_of((20,), shared=3))
    words = "scores of several hundred, 12 tokens shared"
    run(shared_prefix_attention, words, batch_of((14, 22), spread=300.0, shared=3))
    half = batch_of((14, 22, 40), 4, shared=3, dtype="float16")
    run(shared_prefix_attention, "float16, 12 tokens shared", half)
    reads(shared_prefix_attention)


def run(
    function: Callable[..., Any], words: str, batch: Batch, shared_len: int = 4 * SHARED
) -> None:
    import torch

    before = [tensor.clone() for tensor in batch.tensors]
    errors = {
        IndexError: "Entries of a table behind its context name no block.",
        RuntimeError: "Entries of a table behind its context name no block: what is each one's own "
        "are the entries from shared_len // block_size on, and context_lens less shared_len.",
    }
    with given(words, errors):
        result = function(*batch.tensors, shared_len)
        true(
            isinstance(result, tuple) and len(result) == 2,
            "shared_prefix_attention returns two tensors, the output and the log-sum-exp.",
        )
        same = all(map(torch.equal, before, batch.tensors))
        true(same, "The arguments are left as they are, and one of them has changed.")
        out, lse = result
        compare(batch, out, lse, MEANING, mistakes(batch, shared_len), twice(batch, shared_len))


def part(batch: Batch, begin: int, end: int | None, causal: bool = False) -> tuple[Any, Any]:
    """Attention over some tokens of every sequence, in float64."""
    import torch

    q = batch.tensors[0]
    out, lse = torch.zeros(q.shape).double(), torch.full(q.shape[:2], -torch.inf).double()
    for i, keys in enumerate(batch.keys):
        for head in range(q.shape[1]):
            scores = batch.scores(i, head)[begin:end]
            if causal:  # as if the queries were the last tokens of one sequence
                scores = scores[: len(keys[begin:end]) - (len(q) - 1 - i)]
            if not len(scores):
                continue
            values = batch.values[i][begin:end, head // batch.group].double()
            lse[i, head] = torch.logsumexp(scores, 0)
            out[i, head] = torch.softmax(scores, 0) @ values[: len(scores)]
    return out, lse


def merged(*states: tuple[Any, Any]) -> tuple[Any, Any]:
    import torch

    outs, lses = (torch.stack(each) for each in zip(*states, strict=True))
    return (outs * torch.softmax(lses, 0).unsqueeze(-1)).sum(0), torch.logsumexp(lses, 0)


def mistakes(batch: Batch, shared_len: int) -> list[tuple[Any, str]]:
    """What known mistakes would give."""
    import torch

    if not shared_len:
        return []
    dtype = batch.tensors[0].dtype
    ends = (0, shared_len), (shared_len, None), (0, None)
    prefix, own, whole = (part(batch, *each) for each in ends)
    wrong = [
        (own[0], "That is attention over each sequence's own tokens alone: the shared ones are "
         "missing."),
        (prefix[0], "That is attention over the shared tokens alone: what is each one's own is "
         "missing. (shared_len counts tokens, and tables count blocks.)"),
        ((own[0] + prefix[0]) / 2, f"That is the mean of both parts. {MEANING}"),
        (own[0] + prefix[0], f"The parts were added. {MEANING}"),
        (merged(whole, prefix)[0], "The shared tokens count twice: they are also in what was taken "
         "for each sequence's own. Its tables begin behind the shared blocks."),
        (merged(own, part(batch, 0, shared_len, causal=True))[0], "The queries were taken for the "
         "last tokens of one sequence, of which the first sees less of the prefix than the last. "
         "They belong to different sequences, and each sees all shared tokens: no causal mask."),
    ]  # fmt: skip
    return [(out.to(dtype), told) for out, told in wrong if bool(torch.isfinite(out).all())]


def twice(batch: Batch, shared_len: int) -> list[tuple[Any, str]]:
    """What lse is taken for."""
    lses = [part(batch, 0, shared_len)[1], part(batch, shared_len, None)[1]]
    told = "merge_states returns it beside the output."
    return [
        (lses[0].float(), f"That is the log-sum-exp over the shared tokens alone: {told}"),
        (lses[1].float(), f"That is the log-sum-exp over each one's own tokens alone: {told}"),
        ((lses[0] + lses[1]).float(), f"The log-sum-exps were added: {told}"),
        *lse_mistakes(batch),
    ]


def reads(function: Callable[..., Any]) -> None:
    """How many keys `attention` is given."""
    from yaie.ops.reference.attention import attention

    batch = batch_of((14, 22, 13), shared=SHARED)
    calls: list[tuple[int, int]] = []

    def counting(q: Any, k: Any, v: Any, causal: bool = True, scale: float | None = None) -> Any:
        calls.append((len(q), len(k)))
        return attention(q, k, v, causal, scale)

    with given("3 sequences of 14, 22 and 13 tokens, 12 of them shared"):
        function(*batch.tensors, 4 * SHARED, attention=counting)
        keys = sum(count for _, count in calls)
        own = sum(len(keys) - 4 * SHARED for keys in batch.keys)
        if not keys:
            fail("`attention`, which is passed, was not called: it computes one sequence.")
        if keys == 3 * 4 * SHARED + own:
            fail(
                f"attention has read {keys} keys, the 12 shared ones three times. Once will do, "
                "with the queries of all sequences: they are rows of one product."
            )
        want = 4 * SHARED + own
        true(keys == want, f"attention has read {keys} keys, and {want} are there.")


def draw_cascade(shared_prefix_attention: Callable[..., Any]) -> Any:
    """What is merged, for one head of three sequences."""
    from yaie.course.viz.film import film_strip
    from yaie.course.viz.merge import MergeNode, draw_merge

    batch = batch_of((14, 22, 13), heads=1, dim=16, shared=SHARED)
    out, lse = shared_prefix_attention(*batch.tensors, 4 * SHARED)
    prefix, own = part(batch, 0, 4 * SHARED), part(batch, 4 * SHARED, None)
    trees = []
    for i, keys in enumerate(batch.keys):
        leaves = (
            MergeNode("12 shared", float(prefix[1][i, 0]), float(prefix[0][i, 0, 0])),
            MergeNode(f"{len(keys) - 12} of its own", float(own[1][i, 0]), float(own[0][i, 0, 0])),
        )
        trees.append(MergeNode("merged", float(lse[i, 0]), float(out[i, 0, 0]), leaves))
    return film_strip(trees, draw_merge, [f"sequence {i}" for i in range(len(trees))])
