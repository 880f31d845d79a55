"""Choosing tokens by Python on the host: edits of the logits, and samplers that see them."""

from collections.abc import Iterable, Sequence

import torch

from yaie.engine.request import Request
from yaie.engine.sampling import SamplingKernel


class LogitEdits:
    """What the parameters of one request change in its logits before a token is chosen: the
    repetition penalty, frequency and presence penalties, the bias, and end tokens that come too
    early. Its tensors stay on the device of the logits.

    Args:
        logits: float32 `[vocabulary]`; only their shape and device matter.
        ends: the token ids that end the request.
    """

    def __init__(self, request: Request, logits: torch.Tensor, ends: Iterable[int]) -> None:
        params = request.params
        self.request = request
        self._seen = self._counts = self._bias = None
        if params.repetition_penalty != 1.0:
            self._seen = torch.zeros_like(logits, dtype=torch.bool)
            self._seen[request.prompt_token_ids] = True
        if params.frequency_penalty or params.presence_penalty:
            self._counts = torch.zeros_like(logits)
        if params.logit_bias:
            self._bias = torch.zeros_like(logits)
            tokens, values = zip(*params.logit_bias, strict=True)
            self._bias[list(tokens)] = logits.new_tensor(values)
        self._ends = sorted(ends)
        self._num_noted = 0  # generated tokens that are in `_seen` and `_counts`

    def apply(self, sampler: SamplingKernel, logits: torch.Tensor) -> torch.Tensor:
        """The edited logits `[vocabulary]` for the next token."""
        params = self.request.params
        self._note()
        if self._seen is not None:
            seen = self._seen.nonzero().squeeze(1)
            logits = sampler.repetition_penalty(logits, params.repetition_penalty, seen)
        if self._counts is not None:
            logits = logits - params.frequency_penalty * self._counts
            logits = logits - params.presence_penalty * (self._counts > 0)
        if self._bias is not None:
            logits = logits + self._bias
        if self.request.num_output_tokens < params.min_tokens and self._ends:
            logits = logits.clone()
            logits[self._ends] = float("-inf")
        return logits

    def _note(self) -> None:
        """Note the tokens generated since the last call: none if a step is tried again."""
        new = self.request.token_ids[self.request.num_prompt_tokens + self._num_noted :]
        self._num_noted += len(new)
        if self._seen is not None:
            self._seen[new] = True
        if self._counts is not None:
            for token in new:
                self._counts[token] += 1


def edit(
    sampler: SamplingKernel, requests: Sequence[Request], logits: torch.Tensor, eos_ids: set[int]
) -> None:
    """Apply `LogitEdits` to the rows of the requests that ask for some, in place."""
    for row, request in enumerate(requests):
        if not request.edits_logits:
            continue
        if request.edits is None:
            params = request.params
            ends = {*params.stop_token_ids, *(() if params.ignore_eos else eos_ids)}
            request.edits = LogitEdits(request, logits[row], ends)
        logits[row] = request.edits.apply(sampler, logits[row])


def sample(sampler: SamplingKernel, requests: list[Request], logits: torch.Tensor) -> torch.Tensor:
    """The token of each request, int64 `[requests]`; -1 where the logits allow none."""
    sound = logits.amax(dim=-1).isfinite().tolist()  # the maximum of a row with a NaN is NaN
    rows = [row for row, is_sound in enumerate(sound) if is_sound]
    names, chosen = ("temperature", "top_p", "top_k", "min_p"), [requests[row] for row in rows]
    tokens = torch.full((len(requests),), -1, device=logits.device)
    if rows:
        tokens[rows] = sampler.sample(
            logits if all(sound) else logits[rows],
            generators=[request.generator for request in chosen],
            **{name: [getattr(request.params, name) for request in chosen] for name in names},
        ).to(tokens)
    return tokens
