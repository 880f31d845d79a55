"""Choosing tokens by Python on the host: penalties, and samplers that see the logits."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from yaie.engine.request import Request
from yaie.engine.sampling import SamplingKernel


def penalize(sampler: SamplingKernel, requests: Sequence[Request], logits: torch.Tensor) -> None:
    """Apply the repetition penalties of requests to their rows of logits, in place."""
    for row, request in enumerate(requests):
        penalty = request.params.repetition_penalty
        if penalty != 1.0:
            seen = _seen(request, logits[row])
            logits[row] = sampler.repetition_penalty(logits[row], penalty, seen)


def _seen(request: Request, logits: torch.Tensor) -> torch.Tensor:
    """The distinct tokens of a request. Called for every token, it marks only the newest."""
    if request.seen is None:
        request.seen = torch.zeros_like(logits, dtype=torch.bool)
        request.seen[request.token_ids] = True
    request.seen[request.token_ids[-1]] = True
    return request.seen.nonzero().squeeze(1)


def sample(
    sampler: SamplingKernel, requests: Sequence[Request], logits: torch.Tensor
) -> torch.Tensor:
    """The token of each request, int64 `[requests]`; -1 where the logits allow none."""
    sound = logits.amax(dim=-1).isfinite()  # the maximum of a row with a NaN is NaN
    tokens = torch.full((len(requests),), -1, device=logits.device)
    requests = [requests[row] for row in sound.nonzero().squeeze(1).tolist()]
    if not requests:
        return tokens
    params = [request.params for request in requests]
    tokens[sound] = sampler.sample(
        logits if len(requests) == len(logits) else logits[sound],
        temperature=[p.temperature for p in params],
        top_p=[p.top_p for p in params],
        top_k=[p.top_k for p in params],
        min_p=[p.min_p for p in params],
        generators=[request.generator for request in requests],
    )
    return tokens
