"""07.2: what `merge_states` makes of two partial results, and of a tree of them."""

import math
import random
from collections.abc import Callable, Iterator
from typing import Any

import torch

from yaie.course.core.compare import dtype_name
from yaie.course.core.observe import Case, Observer
from yaie.course.exercises.nb07.oracle import INF, attention

STATE = [[[1.0, 2.0]], [[3.0, 4.0]], [[0.0, 0.0]]], [[0.5], [0.7], [-INF]]
NOTHING = [[[0.0, 0.0]]] * 3, [[-INF]] * 3
HALF = {"rtol": 1e-2, "atol": 1e-2}


def cases() -> Iterator[Case]:
    a, b = ([[[1.0, 0.0]]], [[math.log(2)]]), ([[[0.0, 2.0]]], [[math.log(6)]])
    want = [[[0.25, 1.5]]], [[math.log(8)]]
    yield planned("parts with the outputs [1, 0] and [0, 2] and the sums 2 and 6", a, b, want)
    generator = torch.Generator().manual_seed(0)
    for sizes in ((3, 4), (1, 9), (6, 1)):
        scores = torch.randn(5, 3, sum(sizes), generator=generator) * 3
        values = torch.randn(5, 3, sum(sizes), 4, generator=generator)
        trace = list(zip(scores.split(sizes, dim=2), values.split(sizes, dim=2), strict=True))
        yield Case(in_words, trace=trace, seed=None)
    for a, b, words in (
        (STATE, NOTHING, "(a, nothing)"), (NOTHING, STATE, "(nothing, a)")
    ):  # fmt: skip
        name = f"merge_states{words}, where nothing has seen no key, nor has row 2 of a"
        yield planned(f"the call {name}", a, b, STATE)
    low = [[[1.0, 2.0]]], [[-900.0]]
    nothing = [[[0.0, 0.0]]], [[-INF]]
    yield planned("the log-sum-exps -900 and -inf, which is that of no key", low, nothing, low)
    twice = STATE[0], [[0.5 + math.log(2)], [0.7 + math.log(2)], [-INF]]
    yield planned(
        "the call merge_states(a, a), where row 2 of a has seen no key", STATE, STATE, twice
    )
    a, b = ([[[1.0]], [[1.0]]], [[900.0], [-900.0]]), ([[[3.0]], [[3.0]]], [[900.0], [-901.0]])
    share = 1 / (1 + math.exp(-1))
    want = [[[2.0]], [[3 - 2 * share]]], [[900 + math.log(2)], [-900 - math.log(share)]]
    yield planned("the log-sum-exps 900 and 900, and -900 and -901", a, b, want)
    generator = torch.Generator().manual_seed(1)
    for dtype in (torch.float16, torch.bfloat16):
        outs = [torch.randn(4, 2, 8, generator=generator).to(dtype) for _ in range(2)]
        lses = torch.stack([torch.randn(4, 2, generator=generator) for _ in range(2)])
        shares = lses.double().softmax(dim=0).unsqueeze(-1)
        out = (torch.stack(outs).double() * shares).sum(dim=0)
        a, b = zip(outs, lses, strict=True)
        name = f"outputs in {dtype_name(dtype)}, log-sum-exps in float32"
        want = out.to(dtype), lses.double().logsumexp(dim=0)
        yield Case(name, parts=[a, b], want=want, tolerance=HALF)
    generator, drawn = torch.Generator().manual_seed(2), random.Random(0)
    for seed in range(20):
        trace = []
        for _ in range(drawn.randint(2, 7)):
            scores = torch.randn(2, 2, drawn.randint(0, 4), generator=generator) * 4
            trace.append((scores, torch.randn(*scores.shape, 3, generator=generator)))
        yield Case(in_words, trace=trace, seed=seed)


def planned(name: str, a: Any, b: Any, want: Any) -> Case:
    parts = [tuple(map(torch.tensor, part)) for part in (a, b)]
    return Case(name, parts=parts, want=tuple(map(torch.tensor, want)), tolerance={})


def in_words(case: Case) -> str:
    if not case.trace:
        return "no parts"
    sizes = [scores.shape[-1] for scores, _ in case.trace]
    tokens, heads, _, head_dim = case.trace[0][1].shape
    how = "" if case.seed is None else ", merged in a random order"
    return f"parts of {sizes} keys, {tokens} tokens, {heads} heads, head_dim {head_dim}{how}"


def observe(merge_states: Callable[..., Any], case: Case, see: Observer) -> None:
    if case.trace is None:
        parts, want, tolerance = list(case.parts), case.want, case.tolerance
    elif not case.trace:
        return
    else:
        parts = [narrow(*attention(*part)) for part in case.trace]
        scores, values = zip(*case.trace, strict=True)
        want, tolerance = attention(torch.cat(scores, dim=-1), torch.cat(values, dim=-2)), {}
    want = want[0].to(parts[0][0].dtype), want[1].float()
    drawn = random.Random(case.seed) if case.trace and case.seed is not None else None
    while len(parts) > 1:
        a, b = (parts.pop(drawn.randrange(len(parts)) if drawn else 0) for _ in range(2))
        names = "a's output", "a's log-sum-exp", "b's output", "b's log-sum-exp"
        given = [x.clone() for x in (*a, *b)]
        with see.call("merge_states"):
            got = merge_states(tuple(given[:2]), tuple(given[2:]))
        parts.append(see.parts("merge_states", got, "output", "log-sum-exp"))
        see.unchanged(names, given, (*a, *b))
    sums = "The sums exp(lse) of the parts add up."
    see.close("the log-sum-exp", parts[0][1], want[1], sums)
    weighted = "Each part counts by its share of the sum, exp(its lse - lse of both)."
    see.close("the output", parts[0][0], want[0], weighted, **tolerance)


def narrow(out: Any, lse: Any) -> tuple[Any, Any]:
    return out.float(), lse.float()


def draw(merge_states: Callable[..., Any]) -> Any:
    """Sixteen keys in four parts, merged in pairs by the learner's function."""
    from yaie.course.viz.steps import MergeNode, draw_merge

    generator = torch.Generator().manual_seed(4)
    scores = torch.randn(1, 1, 16, generator=generator) * 2
    values = torch.randn(1, 1, 16, 1, generator=generator)

    def node(start: int, end: int, state: Any, *children: MergeNode) -> tuple[Any, MergeNode]:
        keys = f"keys {start}-{end - 1}"
        return state, MergeNode(keys, state[1].item(), state[0].item(), children)

    def merged(start: int, end: int) -> tuple[Any, MergeNode]:
        if end - start == 4:
            part = attention(scores[..., start:end], values[..., start:end, :])
            return node(start, end, narrow(*part))
        middle = (start + end) // 2
        a, b = merged(start, middle), merged(middle, end)
        return node(start, end, merge_states(a[0], b[0]), a[1], b[1])

    return draw_merge(merged(0, 16)[1])
