"""Log-probabilities: how likely the model found the chosen tokens, and the likeliest ones."""

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


def token_logprobs(
    logprobs: torch.Tensor, tokens: Sequence[int], num_top: int, text_offset: int = 0
) -> list[TokenLogprob]:
    """The log-probability of each token, and those of the `num_top` likeliest in its place.

    Args:
        logprobs: `[tokens, vocabulary]`.
    """
    chosen = logprobs.gather(1, torch.tensor(tokens, device=logprobs.device)[:, None]).squeeze(1)
    best = logprobs.topk(min(num_top, logprobs.shape[1]))
    found = (tokens, chosen.tolist(), best.indices.tolist(), best.values.tolist())
    return [
        TokenLogprob(token, logprob, dict(zip(ids, values, strict=True)), text_offset)
        for token, logprob, ids, values in zip(*found, strict=True)
    ]


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
            found = token_logprobs(logprobs, tokens, request.params.prompt_logprobs)
            request.prompt_logprobs[place : place + count] = found
            row, place = row + count, place + count
