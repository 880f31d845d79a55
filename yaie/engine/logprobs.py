"""Log-probabilities: how likely the model found the chosen tokens, and the likeliest ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from yaie.engine.request import Request


@dataclass(frozen=True)
class TokenLogprob:
    """How likely the model found a token, as natural logarithms.

    Attributes:
        top: the likeliest tokens and their log-probabilities, best first.
        text_offset: where its text begins: how many characters the tokens before it complete.
    """

    token_id: int
    logprob: float
    top: dict[int, float]
    text_offset: int


@torch.inference_mode()
def vocabulary_logprobs(
    requests: Sequence[Request], logits: torch.Tensor
) -> dict[Request, torch.Tensor]:
    """Log-probabilities, float32 `[vocabulary]`, for each request that asks for some.

    Args:
        logits: `[requests, vocabulary]`, as the model returned them.
    """
    return {
        request: row.float().log_softmax(dim=-1)
        for request, row in zip(requests, logits, strict=True)
        if request.params.logprobs is not None
    }


def token_logprob(logprobs: torch.Tensor, token: int, request: Request) -> TokenLogprob:
    """The log-probability of the next token of a request, before the request has it.

    Args:
        logprobs: of the whole vocabulary.
    """
    best = logprobs.topk(min(request.params.logprobs, len(logprobs)))
    top = dict(zip(best.indices.tolist(), best.values.tolist(), strict=True))
    return TokenLogprob(token, logprobs[token].item(), top, request.output_text.length)
