"""The check of safe_softmax."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from yaie.course.core.expect import close, equal, fail, given, short, true

if TYPE_CHECKING:
    from torch import Tensor

INF = -math.inf


def check_safe(safe_softmax: Callable[..., Any]) -> None:
    import torch

    compare(safe_softmax, torch.tensor([[1.0, 2.0, 3.0]]), "the scores [1, 2, 3]")
    large(safe_softmax)
    compare(safe_softmax, torch.tensor([[1.0, INF, 3.0], [INF, 0.0, INF]]), "rows with hidden keys")
    hidden(safe_softmax)
    no_keys(safe_softmax)
    generator = torch.Generator().manual_seed(0)
    for dtype in (torch.float32, torch.float64, torch.float16):
        for shape in ((4, 7), (2, 3, 5), (1, 1), (6,)):
            scores = torch.randn(shape, generator=generator) * 30
            scores[torch.rand(shape, generator=generator) < 0.4] = INF
            call = f"scores {list(shape)} in {str(dtype).removeprefix('torch.')}"
            compare(safe_softmax, scores.to(dtype), call)


def run(safe_softmax: Callable[..., Any], scores: Tensor) -> tuple[Tensor, Tensor]:
    before = scores.clone()
    got = safe_softmax(scores)
    if not isinstance(got, tuple) or len(got) != 2:
        fail(f"it returned {short(got)}, expected two tensors: weights and log-sum-exp.")
    equal(scores, before, "after the call, scores", because="Leave the argument as it is.")
    return got


def compare(safe_softmax: Callable[..., Any], scores: Tensor, call: str) -> None:
    import torch

    wide = scores.double()
    weights, lse = wide.softmax(dim=-1).nan_to_num(0.0), wide.logsumexp(dim=-1)
    tolerance = {"rtol": 4e-3, "atol": 1e-3} if scores.dtype == torch.float16 else {}
    maximum = wide.amax(dim=-1)
    with given(f"safe_softmax of {call}"):
        got = run(safe_softmax, scores)
        close(
            got[0],
            weights.to(scores.dtype),
            "the weights",
            mistakes=[
                (
                    (wide - maximum.unsqueeze(-1)).exp().to(scores.dtype),
                    "They were not divided by their sum.",
                )
            ],
            **tolerance,
        )
        close(
            got[1],
            lse.to(scores.dtype),
            "the log-sum-exp",
            because="It is maximum + log(sum of exp(score - maximum)).",
            mistakes=[
                (
                    (lse - maximum).to(scores.dtype),
                    "The maximum that was taken off the scores has to be added again.",
                ),
                (maximum.to(scores.dtype), "This is the maximum alone."),
                (lse.unsqueeze(-1).to(scores.dtype), "Drop the last axis: one number a row."),
                (lse.exp().to(scores.dtype), "This is the sum; its logarithm was not taken."),
            ],
            **tolerance,
        )


def large(safe_softmax: Callable[..., Any]) -> None:
    import torch

    for dtype, row in ((torch.float32, [200.0, 199.0]), (torch.float16, [12.0, 11.0])):
        scores = torch.tensor([row, [-x for x in row], [0.0, 1.0]], dtype=dtype)
        name = str(dtype).removeprefix("torch.")
        with given(f"safe_softmax of {scores.tolist()} in {name}"):
            weights, lse = run(safe_softmax, scores)
            if not (weights[0].isfinite().all() and lse[0].isfinite()):
                fail(
                    f"the first row has {weights[0].tolist()} for its weights and {lse[0].item()} "
                    f"for its log-sum-exp: exp({row[0]:g}) overflows {name}. Take the maximum of "
                    "the row off its scores first."
                )
            if not (weights[1].isfinite().all() and lse[1].isfinite()) or not weights[1].any():
                fail(
                    "the second row came to nothing: every exponential in it was 0. The maximum "
                    "that is taken off a row must be its own, not that of all rows, and not 0."
                )
        compare(safe_softmax, scores, f"{scores.tolist()} in {name}")


def hidden(safe_softmax: Callable[..., Any]) -> None:
    import torch

    scores = torch.tensor([[INF, INF], [1.0, INF]])
    with given("safe_softmax of [[-inf, -inf], [1, -inf]]"):
        weights, lse = run(safe_softmax, scores)
        for x, name in ((weights, "the weights"), (lse, "the log-sum-exp")):
            true(
                not x.isnan().any(),
                f"{name} of a row that is hidden altogether: NaN. Its maximum is -inf, and -inf - "
                "-inf is NaN; and so is 0 / 0.",
            )
        if weights[0].tolist() == [0.5, 0.5]:
            fail(
                "a row with nothing to see got weights of 1 / 2: it would average values that it "
                "must not read. A score of -inf has to stay -inf."
            )
        equal(weights, torch.tensor([[0.0, 0.0], [1.0, 0.0]]), "the weights")
        true(
            lse[0].item() == INF,
            f"the log-sum-exp of a row with nothing to see is {lse[0].item():g}, expected -inf: "
            "with anything else, a merge would give the row a share.",
        )
        close(lse, torch.tensor([INF, 1.0]), "the log-sum-exp")


def no_keys(safe_softmax: Callable[..., Any]) -> None:
    import torch

    explained = "amax of no elements is an error. Return early where there are no keys."
    errors = {IndexError: explained, RuntimeError: explained}
    with given("safe_softmax of scores [2, 0], rows without keys", errors=errors):
        weights, lse = run(safe_softmax, torch.zeros(2, 0))
        equal(list(weights.shape), [2, 0], "the shape of the weights")
        equal(lse, torch.full((2,), INF), "the log-sum-exp")


def draw_weights(safe_softmax: Callable[..., Any]) -> Any:
    """Five queries whose first two see nothing, because there are only three keys."""
    import torch

    from yaie.course.viz import draw_attention
    from yaie.ops.reference.attention import causal_mask

    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(5, 3, generator=generator) * 2
    scores = scores.masked_fill(~causal_mask(5, 3), INF)
    rows = [f"query {i}" for i in range(5)]
    return draw_attention(safe_softmax(scores)[0], ["key 0", "key 1", "key 2"], rows)
