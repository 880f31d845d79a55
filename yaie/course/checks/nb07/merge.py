"""The check of merge_states."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from yaie.course.core.expect import close, equal, fail, given, short, true

if TYPE_CHECKING:
    from torch import Tensor

    State = tuple[Tensor, Tensor]

NAN = (
    "Where neither part saw a key both log-sum-exps are -inf, and -inf - -inf is NaN. Subtract "
    "`finite(lse)`: then both shares are exp(-inf) = 0."
)

SHAPES = {
    RuntimeError: "The log-sum-exps are [tokens, heads], the outputs [tokens, heads, head_dim]: a "
    "share needs an axis for head_dim, `unsqueeze(-1)`."
}


def check_merge(merge_states: Callable[..., Any]) -> None:
    one_to_three(merge_states)
    parts_of_attention(merge_states)
    nothing_seen(merge_states)
    large(merge_states)
    half_precision(merge_states)
    any_order(merge_states)


def part(scores: Tensor, values: Tensor) -> State:
    """Attention `[tokens, heads, dim]` of scores `[tokens, heads, keys]`, float64, by its text."""
    import torch

    scores, values = scores.double(), values.double()
    if scores.shape[-1] == 0:
        out = torch.zeros(*scores.shape[:-1], values.shape[-1], dtype=torch.float64)
        return out, torch.full(scores.shape[:-1], -math.inf, dtype=torch.float64)
    out = (scores.softmax(dim=-1).unsqueeze(-1) * values).sum(dim=-2)
    return out.nan_to_num(0.0), scores.logsumexp(dim=-1)


def narrow(state: State) -> State:
    return state[0].float(), state[1].float()


def run(merge_states: Callable[..., Any], a: State, b: State) -> State:
    kept = [x.clone() for x in (*a, *b)]
    got = merge_states(a, b)
    if not isinstance(got, tuple) or len(got) != 2:
        fail(f"it returned {short(got)}, expected two tensors: the output and the log-sum-exp.")
    names = ("a's output", "a's log-sum-exp", "b's output", "b's log-sum-exp")
    for x, before, name in zip((*a, *b), kept, names, strict=True):
        equal(x, before, f"after the call, {name}", because="Leave the arguments as they are.")
    return got


def compare(got: State, want: State, a: State, b: State) -> None:
    for x in got:
        true(not x.isnan().any(), f"the result has a NaN. {NAN}")
    (out_a, lse_a), (out_b, lse_b) = a, b
    close(
        got[1],
        want[1].float(),
        "the log-sum-exp",
        because="It is log(exp(lse_a) + exp(lse_b)).",
        mistakes=[
            (lse_a + lse_b, "The log-sum-exps were added. The sums behind them add up."),
            (
                lse_a.maximum(lse_b),
                "This is the larger of the two: the log of the larger sum, not of both.",
            ),
            (
                lse_a.exp() + lse_b.exp(),
                "This is the sum itself; its logarithm was not taken.",
            ),
        ],
    )
    wide = [x.double() for x in (out_a, lse_a, out_b, lse_b)]
    close(
        got[0],
        want[0].to(out_a.dtype),
        "the output",
        because="Each part counts by its share of the sum, exp(lse of the part - lse of both).",
        mistakes=[(x.to(out_a.dtype), text) for x, text in wrong_outputs(*wide)],
    )


def wrong_outputs(
    out_a: Tensor, lse_a: Tensor, out_b: Tensor, lse_b: Tensor
) -> list[tuple[Tensor, str]]:
    import torch

    lse = torch.logaddexp(lse_a, lse_b)
    a, b = ((x - lse).exp().unsqueeze(-1) for x in (lse_a, lse_b))
    top = lse_a.maximum(lse_b)
    total = ((lse_a - top).exp() + (lse_b - top).exp()).unsqueeze(-1)
    sums = lse_a.exp().unsqueeze(-1), lse_b.exp().unsqueeze(-1)
    twice = "This was divided twice: exp(lse of the part - lse of both) is a share already."
    return [
        ((out_a * a + out_b * b) / total, twice),
        ((out_a * a + out_b * b) / (sums[0] + sums[1]), twice),
        (out_a + out_b, "The outputs were added as they are: each was divided by its own sum."),
        (
            (out_a + out_b) / 2,
            "Both parts count alike here, whatever their sums: weight them by their shares.",
        ),
        (out_a * b + out_b * a, "The shares are swapped: each part has that of the other."),
        (
            out_a * (a * total) + out_b * (b * total),
            "The shares do not add up to 1: they are relative to the larger log-sum-exp, and "
            "nothing was divided by their sum.",
        ),
        (
            out_a * sums[0] + out_b * sums[1],
            "Multiplied back by the sums of the parts, and not divided by the sum of both.",
        ),
    ]


def one_to_three(merge_states: Callable[..., Any]) -> None:
    """A part with the sum 2 and one with the sum 6: a quarter and three quarters."""
    import torch

    a = torch.tensor([[[1.0, 0.0]]]), torch.tensor([[math.log(2.0)]])
    b = torch.tensor([[[0.0, 2.0]]]), torch.tensor([[math.log(6.0)]])
    want = torch.tensor([[[0.25, 1.5]]]).double(), torch.tensor([[math.log(8.0)]]).double()
    with given(
        "merge of the outputs [1, 0] and [0, 2] with the sums 2 and 6 (lse log 2 and log 6)"
    ):
        compare(run(merge_states, a, b), want, a, b)


def parts_of_attention(merge_states: Callable[..., Any]) -> None:
    import torch

    generator = torch.Generator().manual_seed(0)
    for num_a, num_b in ((3, 4), (1, 9), (6, 1)):
        scores = torch.randn(5, 3, num_a + num_b, generator=generator) * 3
        values = torch.randn(5, 3, num_a + num_b, 4, generator=generator)
        a = narrow(part(scores[..., :num_a], values[..., :num_a, :]))
        b = narrow(part(scores[..., num_a:], values[..., num_a:, :]))
        with given(f"merge over {num_a} and {num_b} keys, 5 tokens, 3 heads, head_dim 4", SHAPES):
            compare(run(merge_states, a, b), part(scores, values), a, b)


def nothing_seen(merge_states: Callable[..., Any]) -> None:
    import torch

    inf = -math.inf
    out = torch.tensor([[[1.0, 2.0]], [[3.0, 4.0]], [[0.0, 0.0]]])
    a = out, torch.tensor([[0.5], [0.7], [inf]])
    nothing = torch.zeros(3, 1, 2), torch.full((3, 1), inf)
    want = a[0].double(), a[1].double()
    for one, other, words in ((a, nothing, "a, nothing"), (nothing, a, "nothing, a")):
        call = f"merge_states({words}), where nothing has log-sum-exps of -inf, and a in one row"
        with given(call):
            compare(run(merge_states, one, other), want, one, other)


def large(merge_states: Callable[..., Any]) -> None:
    import torch

    a = torch.tensor([[[1.0]], [[1.0]]]), torch.tensor([[900.0], [-900.0]])
    b = torch.tensor([[[3.0]], [[3.0]]]), torch.tensor([[900.0], [-901.0]])
    share = 1 / (1 + math.exp(-1))
    want = (
        torch.tensor([[[2.0]], [[3.0 - 2.0 * share]]]).double(),
        torch.tensor([[900.0 + math.log(2.0)], [-900.0 - math.log(share)]]).double(),
    )
    with given("merge with log-sum-exps of 900 and 900, and of -900 and -901"):
        got = run(merge_states, a, b)
        if not (got[0].isfinite().all() and got[1].isfinite().all()):
            fail(
                "something overflowed: exp(900) is infinite in float32, and exp(-900) is 0. Take "
                "exponentials of differences only; `torch.logaddexp` does that inside."
            )
        compare(got, want, a, b)


def half_precision(merge_states: Callable[..., Any]) -> None:
    import torch

    generator = torch.Generator().manual_seed(1)
    for dtype in (torch.float16, torch.bfloat16):
        outs = [torch.randn(4, 2, 8, generator=generator).to(dtype) for _ in range(2)]
        lses = [torch.randn(4, 2, generator=generator) for _ in range(2)]
        a, b = zip(outs, lses, strict=True)
        shares = torch.stack(lses).double().softmax(dim=0).unsqueeze(-1)
        want = (torch.stack(outs).double() * shares).sum(dim=0)
        with given(f"merge of {str(dtype).removeprefix('torch.')} outputs"):
            out, lse = run(merge_states, a, b)
            close(out, want.to(dtype), "the output", rtol=1e-2, atol=1e-2)
            close(lse, torch.stack(lses).logsumexp(dim=0), "the log-sum-exp")


def any_order(merge_states: Callable[..., Any]) -> None:
    """Random trees over random splits of the keys."""
    import torch

    generator, drawn = torch.Generator().manual_seed(2), random.Random(0)
    for _ in range(20):
        sizes = [drawn.randint(0, 4) for _ in range(drawn.randint(2, 7))]
        scores = torch.randn(2, 2, sum(sizes), generator=generator) * 4
        values = torch.randn(2, 2, sum(sizes), 3, generator=generator)
        parts, start = [], 0
        for size in sizes:
            columns = slice(start, start + size)
            parts.append(narrow(part(scores[..., columns], values[..., columns, :])))
            start += size
        with given(f"a tree of merges over parts of {sizes} keys"):
            while len(parts) > 1:
                a, b = (parts.pop(drawn.randrange(len(parts))) for _ in range(2))
                parts.append(run(merge_states, a, b))
            want = narrow(part(scores, values))
            close(parts[0][0], want[0], "the output")
            close(parts[0][1], want[1], "the log-sum-exp")


def draw_merges(merge_states: Callable[..., Any]) -> Any:
    """Sixteen keys in four parts, merged in pairs by the learner's function."""
    import torch

    from yaie.course.viz.merge import MergeNode, draw_merge

    generator = torch.Generator().manual_seed(4)
    scores = torch.randn(1, 1, 16, generator=generator) * 2
    values = torch.randn(1, 1, 16, 1, generator=generator)

    def leaf(start: int) -> tuple[Any, MergeNode]:
        columns = slice(start, start + 4)
        state = narrow(part(scores[..., columns], values[..., columns, :]))
        return state, node(f"keys {start}-{start + 3}", state)

    def node(keys: str, state: Any, *children: MergeNode) -> MergeNode:
        return MergeNode(keys, state[1].item(), state[0].item(), children)

    def merge(a: tuple[Any, MergeNode], b: tuple[Any, MergeNode]) -> tuple[Any, MergeNode]:
        state = merge_states(a[0], b[0])
        first, last = (x[1].keys.removeprefix("keys ").split("-") for x in (a, b))
        return state, node(f"keys {first[0]}-{last[-1]}", state, a[1], b[1])

    leaves = [leaf(start) for start in (0, 4, 8, 12)]
    return draw_merge(merge(merge(*leaves[:2]), merge(*leaves[2:]))[1])
