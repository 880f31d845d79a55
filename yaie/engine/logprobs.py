"""Log-probabilities: how likely the model found the chosen tokens, and the likeliest ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from yaie.engine.request import Request, TokenLogprob
from yaie.engine.scheduler import Step

ROWS = 64  # of a prompt that get logits together: of a whole prompt they might not fit memory


def vocabulary_logprobs(
    requests: Sequence[Request], logits: torch.Tensor
) -> dict[Request, torch.Tensor]:
    """Log-probabilities, float32 `[vocabulary]`, for each request that asks for some.

    Args:
        logits: `[requests, vocabulary]`, as the model returned them.
    """
    return {
        request: logits[row].float().log_softmax(dim=-1)
        for row, request in enumerate(requests)
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


def score_prompts(
    step: Step, hidden: torch.Tensor, logits: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    """Give the requests of a step the log-probabilities of the prompt tokens that it tells.

    Args:
        hidden: a row for each token that the next one is scored by, `[rows, hidden]`, request by
            request.
        logits: makes logits of some rows.
    """
    row = 0
    for request in step.scheduled:
        place = request.num_computed_tokens + 1
        end = place + request.num_scored(step.num_tokens[request.request_id])
        while place < end:
            count = min(ROWS, end - place)
            logprobs = logits(hidden[row : row + count]).log_softmax(dim=-1)
            tokens = request.prompt_token_ids[place : place + count]
            chosen = logprobs.gather(1, torch.tensor(tokens, device=hidden.device)[:, None])
            best = logprobs.topk(min(request.params.prompt_logprobs, logprobs.shape[1]))
            found = zip(
                *(tokens, chosen.squeeze(1).tolist(), best.indices.tolist(), best.values.tolist()),
                strict=True,
            )
            request.prompt_logprobs[place : place + count] = [
                TokenLogprob(token, logprob, dict(zip(ids, values, strict=True)), 0)
                for token, logprob, ids, values in found
            ]
            row, place = row + count, place + count
