"""The routes of the server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse
from starlette.types import Receive, Scope, Send

from yaie import __version__
from yaie.engine.params import Limits, SamplingParams
from yaie.engine.request import Request as EngineRequest
from yaie.engine.text import OutputText
from yaie.model.tokenizer import Tokenizer
from yaie.server import errors, protocol
from yaie.server.answers import ChatCall, CompletionCall, stream
from yaie.server.errors import ApiError
from yaie.server.guards import CameFirst, Guard, LimitBody, before, no_key, other_host, two_lengths
from yaie.server.identify import Identify
from yaie.server.metrics import CONTENT_TYPE
from yaie.server.worker import Job, Worker

DEFAULT_MAX_TOKENS = 16  # of a completion, as at OpenAI; a chat's answer may fill the context


@dataclass(frozen=True)
class Settings:
    """What the server allows.

    Attributes:
        model_name: what requests call the model.
        api_key: the bearer token that /v1 demands; None demands none.
        max_queued: requests that may wait for a place in the batch.
        max_body_bytes: the longest body of a request.
        body_timeout: seconds in which all of it must have come.
        max_tokens: the most tokens of an answer; None allows as many as the context holds.
        allowed_hosts: the names by which clients may call the server; None allows all.
        access_log: whether to log a line for each request.
        max_connections: how many may be open; by default as many as there may be files.
        head_timeout: seconds in which the head of a request must have come.
    """

    model_name: str
    api_key: str | None = None
    max_queued: int = 256
    max_body_bytes: int = 4 * 2**20
    body_timeout: float = 30.0
    max_tokens: int | None = None
    allowed_hosts: tuple[str, ...] | None = None
    access_log: bool = False
    max_connections: int | None = None
    head_timeout: float = 10.0

    def __post_init__(self) -> None:
        key = self.api_key
        if key is not None and not key.strip():
            raise ValueError("api_key must not be empty: any client could send an empty one")
        if key is not None and (key != key.strip() or not key.isprintable()):
            raise ValueError(
                "api_key must be printable and have no blank at its ends: no header could carry it"
            )


def build_app(worker: Worker, tokenizer: Tokenizer, settings: Settings) -> FastAPI:
    """The server's application. It talks with the engine while its lifespan lasts."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        worker.listen()
        yield
        await worker.stop()

    statuses = (400, 401, 404, 405, 408, 413, 421, 429, 500, 503)
    failures = {status: {"model": errors.ErrorResponse} for status in statuses}
    app = FastAPI(
        title="YAIE", version=__version__, lifespan=lifespan, responses=failures, docs_url=None,
        redoc_url=None,
    )  # fmt: skip
    app.state.worker, app.state.settings = worker, settings
    errors.install(app)
    app.add_middleware(LimitBody, settings.max_body_bytes, settings.body_timeout, worker.late)
    if settings.api_key is not None:
        app.add_middleware(Guard, find=partial(no_key, settings.api_key))
    if settings.allowed_hosts is not None:
        app.add_middleware(Guard, find=partial(other_host, settings.allowed_hosts))
    app.add_middleware(Guard, find=two_lengths)
    app.add_middleware(Identify, access_log=settings.access_log)
    server = _Server(tokenizer, worker, settings)

    post = partial(app.post, responses={200: {"content": {"text/event-stream": {}}}})
    post("/v1/completions", response_model=protocol.Completion)(server.completions)
    post("/v1/chat/completions", response_model=protocol.ChatCompletion)(server.chat_completions)

    now, length = int(time.time()), worker.ready.limits.max_model_len
    card = protocol.ModelCard(id=settings.model_name, created=now, max_model_len=length)

    @app.get("/v1/models")
    async def models() -> protocol.ModelList:
        """The model that is served."""
        return protocol.ModelList(data=[card])

    @app.get("/v1/models/{name:path}")
    async def model(name: str) -> protocol.ModelCard:
        """The model, by its name."""
        server.check_model(name)
        return card

    @app.head("/health", include_in_schema=False)
    @app.get("/health", response_class=PlainTextResponse)
    async def health() -> str:
        """Whether the engine runs: 200, or 503."""
        if not worker.is_alive:
            why = f": {worker.why_ended}" if worker.why_ended else ""
            raise ApiError(503, f"the engine does not run{why}")
        return "ok"

    @app.get("/metrics", response_class=PlainTextResponse)
    async def show_metrics() -> Response:
        """Prometheus' metrics."""
        return Response(worker.metrics.text(), media_type=CONTENT_TYPE)

    return app


class _Server:
    """What the two endpoints that generate have in common."""

    def __init__(self, tokenizer: Tokenizer, worker: Worker, settings: Settings) -> None:
        self.tokenizer, self.worker, self.settings = tokenizer, worker, settings

    @property
    def limits(self) -> Limits:
        """Of the engine, which may be another one since it was started again."""
        return self.worker.ready.limits

    async def completions(self, body: protocol.CompletionRequest, request: Request) -> Response:
        """Continue prompts."""
        self.check_model(body.model)
        only_echo = body.max_tokens == 0
        if only_echo and not body.echo:
            raise ApiError(400, "max_tokens may be 0 only with echo", param="max_tokens")
        prompts = body.prompts
        if any(isinstance(prompt, str) for prompt in prompts):
            prompts = await asyncio.to_thread(self._encode, prompts)
        max_tokens = body.max_tokens
        if max_tokens is None:
            max_tokens = min([DEFAULT_MAX_TOKENS, *map(self._room, prompts)])
        scores = body.logprobs if body.echo else None
        job = self._submit(request, prompts, body, max(1, max_tokens), body.logprobs, scores)
        call = CompletionCall(
            *self._call(job, body, request, body.logprobs is not None),
            echoes=self._echoes(body.prompts) if body.echo else None,
            only_echo=only_echo,
        )
        return await self._answer(call, body, request)

    async def chat_completions(self, body: protocol.ChatRequest, request: Request) -> Response:
        """Answer a conversation."""
        self.check_model(body.model)
        if body.top_logprobs is not None and not body.logprobs:
            raise ApiError(400, "top_logprobs needs logprobs to be true", param="top_logprobs")
        prompt = await asyncio.to_thread(self._render, body.messages)
        max_tokens = body.max_completion_tokens or body.max_tokens
        if max_tokens is None:
            max_tokens = max(1, self._room(prompt))
        logprobs = (body.top_logprobs or 0) if body.logprobs else None
        job = self._submit(request, [prompt], body, max_tokens, logprobs)
        call = ChatCall(*self._call(job, body, request, bool(body.logprobs)))
        return await self._answer(call, body, request)

    def check_model(self, name: str) -> None:
        """Raise ApiError if a model is not the one that is served."""
        if name != self.settings.model_name:
            message = f"model {name!r} is not served here, {self.settings.model_name!r} is"
            raise ApiError(404, message, param="model", code="model_not_found")

    def _encode(self, prompts: list[str | list[int]]) -> list[list[int]]:
        return [self.tokenizer.encode(p) if isinstance(p, str) else p for p in prompts]

    def _echoes(self, prompts: list[str | list[int]]) -> list[str]:
        return [p if isinstance(p, str) else self.tokenizer.decode(p) for p in prompts]

    def _call(self, job: Job, body: protocol.Sampling, request: Request, logprobs: bool) -> tuple:
        """The arguments of a `Call`."""
        n, request_id = body.n or 1, request.scope["request_id"]
        return job, body.model, self.tokenizer, n, logprobs, request_id, body.usage

    def _render(self, messages: list[protocol.Message]) -> list[int]:
        try:
            return self.tokenizer.apply_chat_template([message.plain() for message in messages])
        except (ValueError, TypeError) as error:
            raise ApiError(400, str(error), param="messages") from error

    def _room(self, prompt: list[int]) -> int:
        """How many tokens may be generated after a prompt."""
        room = self.limits.max_model_len - len(prompt)
        limit = self.settings.max_tokens
        return room if limit is None else min(room, limit)

    def _submit(
        self,
        request: Request,
        prompts: list[list[int]],
        body: protocol.Sampling,
        max_tokens: int,
        logprobs: int | None,
        prompt_logprobs: int | None = None,
    ) -> Job:
        """Make a request for each answer, and queue them."""
        param = "messages" if isinstance(body, protocol.ChatRequest) else "prompt"
        limit = self.settings.max_tokens
        if limit is not None and max_tokens > limit:
            message = f"max_tokens must be at most {limit}, got {max_tokens}"
            raise ApiError(400, message, param="max_tokens")
        try:
            answers = body.sampling_params(max_tokens, logprobs, prompt_logprobs)
            self.limits.checked_params(answers[0])
        except (ValueError, TypeError) as error:
            raise ApiError(400, str(error)) from error
        self.worker.check_capacity(len(prompts) * len(answers))
        about = (request.scope["request_id"], body.cache_salt or "", param)
        requests = [self._request(p, params, *about) for p in prompts for params in answers]
        return self.worker.submit(requests)

    def _request(
        self, prompt: list[int], params: SamplingParams, request_id: str, salt: str, param: str
    ) -> EngineRequest:
        """A request for one answer; requests of different salts share no cached prefix."""
        most, code = self.limits.max_model_len, "context_length_exceeded"
        try:
            self.limits.check_prompt(prompt, param)
        except (ValueError, TypeError) as error:
            too_long = len(prompt) >= most
            raise ApiError(400, str(error), param, code if too_long else None) from error
        if len(prompt) + params.max_tokens > most:
            asked = f"the prompt's {len(prompt)} tokens and max_tokens {params.max_tokens}"
            raise ApiError(400, f"{asked} exceed the {most} tokens that fit", "max_tokens", code)
        return EngineRequest(request_id, prompt, params, salt, OutputText(self.tokenizer))

    async def _answer(
        self, call: CompletionCall | ChatCall, body: protocol.Sampling, request: Request
    ) -> Response:
        if body.stream:
            return _Stream(call, self.worker)
        try:
            answer = await unless_gone(call.whole(), request)
        finally:
            self.worker.abort(call.job)
        return JSONResponse(answer)


class _Stream(StreamingResponse):
    """An answer as it comes. Its job ends with it, even if the client leaves before the first event
    is asked for."""

    def __init__(self, call: CompletionCall | ChatCall, worker: Worker) -> None:
        super().__init__(stream(call), media_type="text/event-stream")
        self._job, self._worker = call.job, worker

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._worker.abort(self._job)


async def unless_gone(work: Coroutine[Any, Any, Any], request: Request) -> Any:
    """Await `work`; if the client leaves before it is done, cancel it and raise ApiError."""

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    try:
        return await before(gone(), work)
    except CameFirst:
        raise ApiError(499, "the client left") from None
