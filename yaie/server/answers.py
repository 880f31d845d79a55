"""From what the engine generates to the answers of the API, whole or streamed."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from yaie.engine.logprobs import TokenLogprob
from yaie.engine.request import RequestOutput
from yaie.model.tokenizer import Tokenizer
from yaie.server import protocol
from yaie.server.errors import ApiError
from yaie.server.worker import Job, Update


@dataclass
class Call:
    """One HTTP call under way.

    Attributes:
        job: its requests: the n answers to the first prompt, then those to the second, ...
        num_answers: n, the answers to each prompt.
        logprobs: whether the answers carry log-probabilities.
    """

    job: Job
    model: str
    tokenizer: Tokenizer
    num_answers: int
    logprobs: bool
    prefix: str
    id: str = ""
    created: int = field(default_factory=lambda: int(time.time()))

    def __post_init__(self) -> None:
        self.id = f"{self.prefix}-{uuid.uuid4().hex}"

    async def outputs(self) -> list[RequestOutput]:
        """Wait for all of it. Raises ApiError if the engine failed."""
        async for _, update in self.job.updates():
            check(update)
        return [request.output() for request in self.job.requests]

    def usage(self) -> protocol.Usage:
        """The tokens of all requests, once they are finished; a prompt with n answers counts
        once."""
        prompts = self.job.requests[:: self.num_answers]
        prompt = sum(request.num_prompt_tokens for request in prompts)
        cached = sum(request.metrics.num_cached_tokens for request in prompts)
        generated = sum(request.num_output_tokens for request in self.job.requests)
        return protocol.Usage(
            prompt_tokens=prompt,
            completion_tokens=generated,
            total_tokens=prompt + generated,
            prompt_tokens_details=protocol.PromptDetails(cached_tokens=cached),
        )


class CompletionCall(Call):
    """A call of POST /v1/completions."""

    async def whole(self) -> protocol.Completion:
        """The answer in one piece."""
        choices = [
            self._choice(index, output.text, output.logprobs, output.finish_reason)
            for index, output in enumerate(await self.outputs())
        ]
        return self._response(choices, self.usage())

    def chunks(self, index: int, update: Update, is_first: bool) -> list[protocol.Completion]:
        """What is new of an answer, as chunks of the stream."""
        if not update.has_news:
            return []
        choice = self._choice(index, update.text, update.logprobs, update.finish_reason)
        return [self._response([choice])]

    def last(self) -> protocol.Completion:
        """The chunk with the usage."""
        return self._response([], self.usage())

    def _response(
        self, choices: list[protocol.CompletionChoice], usage: protocol.Usage | None = None
    ) -> protocol.Completion:
        return protocol.Completion(
            id=self.id, created=self.created, model=self.model, choices=choices, usage=usage
        )

    def _choice(
        self, index: int, text: str, logprobs: list[TokenLogprob], finish_reason: str | None
    ) -> protocol.CompletionChoice:
        return protocol.CompletionChoice(
            index=index,
            text=text,
            logprobs=self._logprobs(logprobs) if self.logprobs else None,
            finish_reason=finish_reason,
        )

    def _logprobs(self, found: list[TokenLogprob]) -> protocol.CompletionLogprobs:
        return protocol.CompletionLogprobs(
            tokens=[token_text(self.tokenizer, token.token_id) for token in found],
            token_logprobs=[finite(token.logprob) for token in found],
            top_logprobs=[
                {token_text(self.tokenizer, id_): finite(value) for id_, value in token.top.items()}
                for token in found
            ],
            text_offset=[token.text_offset for token in found],
        )


class ChatCall(Call):
    """A call of POST /v1/chat/completions."""

    async def whole(self) -> protocol.ChatCompletion:
        """The answer in one piece."""
        choices = [
            protocol.ChatChoice(
                index=index,
                message=protocol.ChatMessage(role="assistant", content=output.text),
                logprobs=self._logprobs(output.logprobs),
                finish_reason=output.finish_reason,
            )
            for index, output in enumerate(await self.outputs())
        ]
        return protocol.ChatCompletion(
            id=self.id,
            created=self.created,
            model=self.model,
            choices=choices,
            usage=self.usage(),
        )

    def chunks(
        self, index: int, update: Update, is_first: bool
    ) -> list[protocol.ChatCompletionChunk]:
        """What is new of an answer, as chunks of the stream; the first names the role."""
        chunks = []
        if is_first:
            chunks.append(self._chunk(index, protocol.ChatMessage(role="assistant", content="")))
        if update.has_news:
            message = protocol.ChatMessage(content=update.text)
            logprobs = self._logprobs(update.logprobs)
            chunks.append(self._chunk(index, message, logprobs, update.finish_reason))
        return chunks

    def last(self) -> protocol.ChatCompletionChunk:
        """The chunk with the usage."""
        return self._response([], self.usage())

    def _chunk(
        self,
        index: int,
        delta: protocol.ChatMessage,
        logprobs: protocol.ChatLogprobs | None = None,
        finish_reason: str | None = None,
    ) -> protocol.ChatCompletionChunk:
        choice = protocol.ChatDelta(
            index=index, delta=delta, logprobs=logprobs, finish_reason=finish_reason
        )
        return self._response([choice])

    def _response(
        self, choices: list[protocol.ChatDelta], usage: protocol.Usage | None = None
    ) -> protocol.ChatCompletionChunk:
        return protocol.ChatCompletionChunk(
            id=self.id, created=self.created, model=self.model, choices=choices, usage=usage
        )

    def _logprobs(self, logprobs: list[TokenLogprob]) -> protocol.ChatLogprobs | None:
        if not self.logprobs:
            return None
        return protocol.ChatLogprobs(
            content=[
                protocol.TokenLogprob(
                    **self._token(found.token_id, found.logprob),
                    top_logprobs=[
                        protocol.TopLogprob(**self._token(*pair)) for pair in found.top.items()
                    ],
                )
                for found in logprobs
            ]
        )

    def _token(self, token_id: int, logprob: float) -> dict:
        text = token_text(self.tokenizer, token_id)
        spelled = self.tokenizer.token_bytes(token_id)
        return {"token": text, "logprob": finite(logprob), "bytes": list(spelled)}


async def stream(call: CompletionCall | ChatCall, with_usage: bool) -> AsyncIterator[str]:
    """An answer as server-sent events, piece by piece, ending with `[DONE]`."""
    begun: set[int] = set()
    try:
        async for index, update in call.job.updates():
            check(update)
            for chunk in call.chunks(index, update, is_first=index not in begun):
                yield _event(chunk)
            begun.add(index)
    except ApiError as error:  # the status was sent long ago: the error is the last event
        yield f"data: {json.dumps(error.body)}\n\n"
    else:
        if with_usage:
            yield _event(call.last())
    yield "data: [DONE]\n\n"


def check(update: Update) -> None:
    """Raise ApiError if a request ended with an error."""
    if update.finish_reason == "error":
        raise ApiError(500, update.error or "the engine failed", code="engine_error")


def token_text(tokenizer: Tokenizer, token_id: int) -> str:
    """The text of one token. One that is no whole characters is spelled `bytes:\\xe2\\x96`, one
    without text `token_id:49200`, as the model may have more than its tokenizer."""
    spelled = tokenizer.token_bytes(token_id)
    if not spelled:
        return f"token_id:{token_id}"
    try:
        return spelled.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in spelled)


def finite(logprob: float) -> float:
    """A log-probability as JSON can hold it: -9999 for minus infinity, as OpenAI has it."""
    return max(logprob, -9999.0)


def as_json(answer: protocol.Response) -> dict[str, Any]:
    """An answer as OpenAI writes it: a choice has all its fields, a delta only what is new."""
    content = answer.model_dump()
    if content["usage"] is None:
        del content["usage"]
    for choice in content["choices"]:
        if "delta" in choice:
            choice["delta"] = {k: v for k, v in choice["delta"].items() if v is not None}
    return content


def _event(chunk: protocol.Response) -> str:
    return f"data: {json.dumps(as_json(chunk))}\n\n"
