"""07.3: the weights and the log-sum-exp of `safe_softmax`, whatever a row holds."""

from collections.abc import Callable, Iterator
from typing import Any

import torch

from yaie.course import viz
from yaie.course.core.compare import dtype_name
from yaie.course.core.observe import Case, Observer
from yaie.course.exercises.nb07.oracle import INF
from yaie.ops.reference.attention import causal_mask

TOLERANCE = {
    torch.float16: {"rtol": 4e-3, "atol": 1e-3},
    torch.float64: {"rtol": 1e-10, "atol": 1e-12},
}


def cases() -> Iterator[Case]:
    yield planned([[1.0, 2.0, 3.0]])
    yield planned([[-3e38, -INF]])
    for dtype, row in ((torch.float32, [200.0, 199.0]), (torch.float16, [12.0, 11.0])):
        yield planned([row, [-x for x in row], [0.0, 1.0]], dtype)
    yield planned([[1.0, -INF, 3.0], [-INF, 0.0, -INF]])
    yield planned([[-INF, -INF], [1.0, -INF]])
    for shape, dtype in (((2, 0), None), ((2, 3, 0), None), ((2, 0), torch.float64)):
        words = f"scores {list(shape)}{f' in {dtype_name(dtype)}' if dtype else ''}"
        yield Case(f"{words}, rows without keys", scores=torch.zeros(shape, dtype=dtype))
    generator = torch.Generator().manual_seed(0)
    for dtype in (torch.float32, torch.float64, torch.float16):
        for shape in ((4, 7), (2, 3, 5), (1, 1), (6,)):
            scores = torch.randn(shape, generator=generator) * 30
            scores[torch.rand(shape, generator=generator) < 0.4] = -INF
            name = f"random scores {list(shape)} in {dtype_name(dtype)}"
            yield Case(name, scores=scores.to(dtype))


def planned(rows: list[list[float]], dtype: Any = None) -> Case:
    name = f"the scores {rows}" + (f" in {dtype_name(dtype)}" if dtype else "")
    return Case(name, scores=torch.tensor(rows, dtype=dtype or torch.float32))


def observe(safe_softmax: Callable[..., Any], case: Case, see: Observer) -> None:
    scores = case.scores.clone()
    with see.call("safe_softmax"):
        got = safe_softmax(scores)
    weights, lse = see.parts("safe_softmax", got, "weights", "log-sum-exp")
    see.unchanged(["scores"], [scores], [case.scores])
    hidden = torch.full((*scores.shape[:-1], 1), -INF).double()
    wide = torch.cat((case.scores.double(), hidden), dim=-1)  # a hidden key changes nothing
    want = wide.softmax(dim=-1).nan_to_num(0.0)[..., :-1]
    tolerance = TOLERANCE.get(scores.dtype, {})
    shares = "A weight is exp(score - maximum), divided by the sum of its row; 0 for a hidden key."
    see.close("the tensor of weights", weights, want.to(scores.dtype), shares, **tolerance)
    log = "It is maximum + log(sum of exp(score - maximum)), and -inf for a row without keys."
    want = wide.logsumexp(dim=-1).to(scores.dtype)
    if isinstance(lse, torch.Tensor):
        rows = [(x.flatten() == -INF).nonzero().flatten().tolist() for x in (lse, want)]
        see.equal("the list of rows whose log-sum-exp is -inf", *rows, log)
    see.close("the log-sum-exp", lse, want, log, **tolerance)


def draw(safe_softmax: Callable[..., Any]) -> Any:
    """Five queries whose first two see nothing, because there are only three keys."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(5, 3, generator=generator) * 2
    scores = scores.masked_fill(~causal_mask(5, 3), -INF)
    rows = [f"query {i}" for i in range(5)]
    return viz.draw_attention(safe_softmax(scores)[0], ["key 0", "key 1", "key 2"], rows)
