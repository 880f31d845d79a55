"""From what the engine generates to the answers of the API, whole or streamed."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from json.encoder import encode_basestring_ascii
from operator import itemgetter
from typing import Any, ClassVar

from yaie.engine.request import Request, TokenLogprob
from yaie.model.tokenizer import StreamDecoder, Tokenizer
from yaie.server import protocol
from yaie.server.connection import Connection
from yaie.server.errors import ApiError
from yaie.server.worker import Job, Update

Json = dict[str, Any]
LOGPROBS = tuple(protocol.CompletionLogprobs.model_fields)
HOLE = "\0"  # in place of a chunk's text


@dataclass
class Call:
    """One HTTP call under way.

    A subclass defines `choice`, which returns one answer or a piece of it, and `pieces`, which
    returns what is new in an answer: one choice per chunk.

    Attributes:
        job: its requests: the n answers to the first prompt, then those to the second, ...
        num_answers: n, the answers to each prompt.
        logprobs: whether the answers carry log-probabilities.
        request_id: of the HTTP request, which the answer's id ends with.
        usage: where a stream has its usage.
        whole_kind, chunk_kind: what an answer is called, whole and in pieces.
    """

    job: Job
    model: str
    tokenizer: Tokenizer
    num_answers: int
    logprobs: bool
    request_id: str
    usage: protocol.StreamOptions
    created: int = field(default_factory=lambda: int(time.time()))

    prefix: ClassVar[str]
    whole_kind: ClassVar[str]
    chunk_kind: ClassVar[str]
    only_echo = False  # see `CompletionCall`

    def __post_init__(self) -> None:
        self.id = f"{self.prefix}-{self.request_id}"
        self._num_sent = 0  # generated tokens in the chunks so far
        self._around: dict[int, list[str]] = {}

    async def whole(self) -> Json:
        """The answer in one piece, once it is complete. Raises ApiError if the engine failed."""
        self.job.handle = lambda: True  # only the end is of interest
        while not self.job.is_over:
            await self.job.changed()
        choices = sorted(map(self.choice, self.job.news()), key=itemgetter("index"))
        return self._response(self.whole_kind, choices, self._usage())

    def news(self) -> str:
        """What is new, as events of the stream, and what ends it once the job is over."""
        events: list[str] = []
        try:
            events.extend(self._events())
            if self.job.is_over and self.usage.include_usage:
                events.append(_event(self._response(self.chunk_kind, [], self._usage())))
        except ApiError as error:  # the status is sent already: the error is an event
            events.append(_event(error.body))
        if self.job.is_over:  # also after an error, as in vLLM: some clients read until it comes
            events.append("data: [DONE]\n\n")
        return "".join(events)

    def _events(self) -> Iterator[str]:
        counts = self.usage.continuous_usage_stats
        for update in self.job.news():
            if update.has_begun and not (update.finish_reason or self.logprobs or counts):
                yield self._text_event(update)
                continue
            self._num_sent += update.num_tokens
            for choice in self.pieces(update):
                usage = self._usage(self._num_sent) if counts else None
                yield _event(self._response(self.chunk_kind, [choice], usage))

    def _text_event(self, update: Update) -> str:
        """An event in which only the text is new; the JSON around it is made once per request."""
        if (around := self._around.get(update.index)) is None:
            [choice] = self.pieces(replace(update, text=HOLE))
            event = _event(self._response(self.chunk_kind, [choice], None))
            around = self._around[update.index] = event.rsplit(json.dumps(HOLE), 1)
        return f"{around[0]}{encode_basestring_ascii(update.text)}{around[1]}"

    def _response(self, kind: str, choices: list[Json], usage: Json | None) -> Json:
        answer = {"id": self.id, "object": kind, "created": self.created, "model": self.model}
        answer["choices"] = choices
        return answer if usage is None else answer | {"usage": usage}

    def _usage(self, generated: int | None = None) -> Json:
        """The tokens of all requests, those `generated` or all; a prompt with n answers counts
        once."""
        prompts = self.job.requests[:: self.num_answers]
        prompt = sum(request.num_prompt_tokens for request in prompts)
        cached = sum(request.metrics.num_cached_tokens for request in prompts)
        if self.only_echo:
            generated = 0
        elif generated is None:
            generated = sum(request.num_output_tokens for request in self.job.requests)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": generated,
            "total_tokens": prompt + generated,
            "prompt_tokens_details": {"cached_tokens": cached},
        }


@dataclass
class CompletionCall(Call):
    """A call of POST /v1/completions.

    Attributes:
        echoes: the text of each prompt, if its answers begin with it.
        only_echo: whether they have nothing else: the token that the engine generates is left out.
    """

    prefix = "cmpl"
    whole_kind = chunk_kind = "text_completion"
    echoes: list[str] | None = None
    only_echo: bool = False

    def pieces(self, update: Update) -> list[Json]:
        if not (update.text or update.finish_reason) and (update.has_begun or not self.echoes):
            return []
        return [self.choice(update)]

    def choice(self, update: Update) -> Json:
        text, logprobs, finish_reason = update.text, update.logprobs, update.finish_reason
        if self.only_echo:
            text, logprobs, finish_reason = "", [], finish_reason and "length"
        rows = [self._row(token, token.text_offset) for token in logprobs] if self.logprobs else []
        if self.echoes:
            echo = self.echoes[update.index // self.num_answers]
            rows = [(*row[:3], row[3] + len(echo)) for row in rows]
            if not update.has_begun:
                text = echo + text
                rows = self._prompt_rows(update.request) + rows if self.logprobs else []
        found = {name: [row[i] for row in rows] for i, name in enumerate(LOGPROBS)}
        return {
            "index": update.index,
            "text": text,
            "logprobs": found if self.logprobs else None,
            "finish_reason": finish_reason,
        }

    def _prompt_rows(self, request: Request) -> list[tuple]:
        """A row for each token of the prompt; the first has no log-probability."""
        decoder, offset, rows = StreamDecoder(self.tokenizer), 0, []
        for id_, found in zip(request.prompt_token_ids, request.prompt_logprobs, strict=True):
            first = (token_text(self.tokenizer, id_), None, None, offset)
            rows.append(first if found is None else self._row(found, offset))
            offset += len(decoder.push(id_))
        return rows

    def _row(self, token: TokenLogprob, offset: int) -> tuple:
        """A token's text, its log-probability, those of the likeliest, and where it begins."""
        spell = partial(token_text, self.tokenizer)
        likely = token.top | {token.token_id: token.logprob}  # as at OpenAI, the chosen one too
        top = {spell(id_): finite(value) for id_, value in likely.items()}
        return spell(token.token_id), finite(token.logprob), top, offset


class ChatCall(Call):
    """A call of POST /v1/chat/completions."""

    prefix = "chatcmpl"
    whole_kind, chunk_kind = "chat.completion", "chat.completion.chunk"

    def pieces(self, update: Update) -> list[Json]:
        """The first names the role."""
        role = {"index": update.index, "delta": {"role": "assistant", "content": ""}}
        first = [] if update.has_begun else [role | {"logprobs": None, "finish_reason": None}]
        if not (update.text or update.finish_reason):
            return first
        piece = self.choice(update)
        piece["delta"] = {"content": piece.pop("message")["content"]}
        return [*first, piece]

    def choice(self, update: Update) -> Json:
        return {
            "index": update.index,
            "message": {"role": "assistant", "content": update.text},
            "logprobs": self._logprobs(update.logprobs),
            "finish_reason": update.finish_reason,
        }

    def _logprobs(self, logprobs: list[TokenLogprob]) -> Json | None:
        if not self.logprobs:
            return None
        content = []
        for found in logprobs:
            top = [self._token(*pair) for pair in found.top.items()]
            content.append(self._token(found.token_id, found.logprob) | {"top_logprobs": top})
        return {"content": content}

    def _token(self, token_id: int, logprob: float) -> dict[str, Any]:
        text = token_text(self.tokenizer, token_id)
        spelled = self.tokenizer.token_bytes(token_id)
        return {"token": text, "logprob": finite(logprob), "bytes": list(spelled)}


async def stream(call: Call, connection: Connection) -> None:
    """Send an answer as server-sent events, ending with `[DONE]`. The job calls `write` as
    soon as the engine's message is read; where the client reads slowly, this task writes later."""
    job, kind = call.job, (b"Content-Type", b"text/event-stream; charset=utf-8")

    def write() -> bool:
        if connection.flow.write_paused or connection.transport.is_closing():
            return False
        if job.is_over:
            job.handle = None
        connection.write(call.news(), ends=job.is_over)
        return True

    connection.begin([kind, (b"X-Request-Id", call.request_id.encode())])
    job.handle = write
    while job.handle is not None:
        await job.changed()
        await connection.flow.drain()
        if job.handle is not None:
            write()


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


def _event(chunk: Json) -> str:
    return f"data: {json.dumps(chunk)}\n\n"
