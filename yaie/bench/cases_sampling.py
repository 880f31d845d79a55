"""Cases of sampling from the logits of a large vocabulary, with their peers.

Each way draws with other random numbers, so tokens cannot be compared. A token is right if it is
one that the filters keep; how often each is drawn is the tests' subject, not the benchmark's.
"""

from collections.abc import Callable

import torch

from yaie.bench.cases import Case, Draw
from yaie.bench.protocol import Call

SLACK = 1e-6  # of a probability: what float32 may round


def sampling(rows: int, size: int) -> list[Case]:
    """sample with three settings, of float32 logits."""
    return [_filtered(rows, size, k, p) for k, p in ((0, 1.0), (0, 0.9), (50, 0.9))]


def draw_logits(draw: Draw, rows: int, size: int) -> torch.Tensor:
    """Random logits, float32 `[rows, size]`."""
    return torch.randn(rows, size, device=draw.device, generator=draw.generator)


def _filtered(rows: int, size: int, top_k: int, top_p: float) -> Case:
    def arguments(draw: Draw) -> tuple:
        def full(value: float, dtype: torch.dtype) -> torch.Tensor:
            return torch.full((rows,), value, dtype=dtype, device=draw.device)

        uniform = torch.rand(
            rows, dtype=torch.float64, device=draw.device, generator=draw.generator
        )
        ones = full(1.0, torch.float32)
        keep = full(top_k, torch.int32), full(top_p, torch.float32), full(0.0, torch.float32)
        return draw_logits(draw, rows, size), ones, *keep, uniform

    name = ", ".join([f"top-k {top_k}"] * (top_k > 0) + [f"top-p {top_p}"] * (top_p < 1))
    return Case(
        "sample", f"{rows} × {size}, {name or 'no filter'}", arguments,
        rows * (4 * size + 32), 0,
        oracle=lambda logits, *_: all_right(logits), writes=False,
        calls_reference="reference, a sort in float64", compiled=False,
        dtype=torch.float32, judge=lambda tokens, logits, *_: kept(tokens, logits, top_k, top_p),
        peers={
            "a sort in torch": lambda logits, *_: _sort(logits, top_k, top_p),
            "FlashInfer, from probabilities": _flashinfer_probs(top_k, top_p),
            "FlashInfer, from logits": flashinfer_logits(top_k, top_p),
        },
    )  # fmt: skip


def all_right(logits: torch.Tensor) -> torch.Tensor:
    """What `kept` returns if every token is right."""
    return torch.ones(logits.shape[0], dtype=torch.float64, device=logits.device)


def kept(tokens: torch.Tensor, logits: torch.Tensor, top_k: int, top_p: float) -> torch.Tensor:
    """For each row whether the filters keep its token, as 1.0 or 0.0."""
    tokens, size = tokens.long().unsqueeze(1), logits.shape[1]
    fits = (tokens >= 0) & (tokens < size)
    chosen = logits.gather(1, tokens.clamp(0, size - 1))
    mass = logits.double().softmax(dim=1)
    if top_k:
        last = logits.topk(top_k, dim=1).values[:, -1:]
        fits = chosen >= last
        mass = mass * (logits >= last)
    above = (mass * (logits > chosen)).sum(dim=1, keepdim=True)
    fits &= above < (top_p + SLACK) * mass.sum(dim=1, keepdim=True)
    return fits.squeeze(1).double()


def _sort(logits: torch.Tensor, top_k: int, top_p: float) -> Call:
    def call() -> torch.Tensor:
        ordered, ids = logits.sort(dim=1, descending=True)
        if top_k:
            ordered[:, top_k:] = -torch.inf
        mass = ordered.softmax(dim=1)
        mass = mass.masked_fill(mass.cumsum(dim=1) - mass >= top_p, 0.0)
        return ids.gather(1, mass.multinomial(1)).squeeze(1)

    return call


def _flashinfer_probs(top_k: int, top_p: float) -> Callable[..., Call]:
    def prepare(logits: torch.Tensor, *_: torch.Tensor) -> Call:
        from flashinfer import sampling

        mass, k = logits.softmax(dim=1), top_k or logits.shape[1]
        if not top_k and top_p == 1.0:
            return lambda: sampling.sampling_from_probs(mass)
        if not top_k:
            return lambda: sampling.top_p_sampling_from_probs(mass, top_p)
        order = {"filter_apply_order": "top_k_first"}
        return lambda: sampling.top_k_top_p_sampling_from_probs(mass, k, top_p, **order)

    return prepare


def flashinfer_logits(top_k: int, top_p: float) -> Callable[..., Call]:
    """FlashInfer, given the logits."""

    def prepare(logits: torch.Tensor, *_: torch.Tensor) -> Call:
        from flashinfer import sampling

        if not top_k and top_p == 1.0:
            return lambda: sampling.sampling_from_logits(logits)
        if not top_k:
            return lambda: sampling.top_p_sampling_from_probs(logits.softmax(dim=1), top_p)
        return lambda: sampling.top_k_top_p_sampling_from_logits(logits, top_k, top_p)

    return prepare
