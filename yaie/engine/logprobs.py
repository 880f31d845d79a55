"""How likely the model held the tokens that were chosen, and their rivals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from yaie.engine.text import OutputText

if TYPE_CHECKING:
    from yaie.engine.request import Request


@dataclass(frozen=True)
class TokenLogprob:
    """How likely the model held a token to be, as natural logarithms.

    Attributes:
        top: the likeliest tokens and their log-probabilities, best first.
        text_offset: where its text begins: how many characters the tokens before it complete. So
            a token that goes on with a character has the offset of that character.
    """

    token_id: int
    logprob: float
    top: dict[int, float]
    text_offset: int


@torch.inference_mode()
def of_vocabulary(requests: Sequence[Request], logits: torch.Tensor) -> dict[Request, torch.Tensor]:
    """Log-probabilities, float32 `[vocabulary]`, for each request that asks for some.

    Args:
        logits: `[requests, vocabulary]`, as the model returned them.
    """
    return {
        request: row.float().log_softmax(dim=-1)
        for request, row in zip(requests, logits, strict=True)
        if request.params.logprobs is not None
    }


def told(of_all: torch.Tensor, token: int, request: Request, text: OutputText) -> TokenLogprob:
    """What a request is told of its next token.

    Args:
        of_all: log-probabilities of the whole vocabulary.
        text: that of the tokens before it.
    """
    best = of_all.topk(min(request.params.logprobs, len(of_all)))
    top = dict(zip(best.indices.tolist(), best.values.tolist(), strict=True))
    return TokenLogprob(token, of_all[token].item(), top, text.length)
