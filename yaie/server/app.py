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
from yaie.engine.engine import Engine
from yaie.engine.request import Request as EngineRequest
from yaie.engine.sampling import SamplingParams
from yaie.server import errors, protocol
from yaie.server.answers import ChatCall, CompletionCall, as_json, stream
from yaie.server.errors import ApiError
from yaie.server.guards import CameFirst, CheckHost, LimitBody, OneLength, RequireKey, before
from yaie.server.identify import Identify
from yaie.server.metrics import CONTENT_TYPE, Metrics
from yaie.server.worker import Job, QueueFull, Stopping, Worker

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
        if self.api_key is None:
            return
        if not self.api_key.strip():
            raise ValueError("api_key must not be empty: any client could send an empty one")
        if self.api_key != self.api_key.strip() or not self.api_key.isprintable():
            raise ValueError(
                "api_key must be printable and have no blank at its ends: no header could carry it"
            )


def build_app(engine: Engine, settings: Settings) -> FastAPI:
    """The server's application. It runs the engine while its lifespan lasts."""
    metrics = Metrics(settings.model_name)
    worker = Worker(engine, settings.max_queued, metrics)
    started = int(time.time())

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await worker.start()
        yield
        await worker.stop()

    failures = {
        status: {"model": errors.ErrorResponse}
        for status in (400, 401, 404, 405, 408, 413, 421, 429, 500, 503)
    }
    app = FastAPI(
        title="YAIE", version=__version__, lifespan=lifespan, responses=failures, docs_url=None,
        redoc_url=None,
    )  # fmt: skip
    app.state.worker, app.state.settings = worker, settings
    errors.install(app)
    app.add_middleware(
        LimitBody,
        max_bytes=settings.max_body_bytes,
        seconds=settings.body_timeout,
        late=worker.late,
    )
    if settings.api_key is not None:
        app.add_middleware(RequireKey, key=settings.api_key)
    if settings.allowed_hosts is not None:
        app.add_middleware(CheckHost, allowed=settings.allowed_hosts)
    app.add_middleware(OneLength)
    app.add_middleware(Identify, access_log=settings.access_log)
    server = _Server(engine, worker, settings)

    streams = {200: {"content": {"text/event-stream": {}}}}

    post = partial(app.post, responses=streams)
    post("/v1/completions", response_model=protocol.Completion)(server.completions)
    post("/v1/chat/completions", response_model=protocol.ChatCompletion)(server.chat_completions)

    card = protocol.ModelCard(
        id=settings.model_name, created=started, max_model_len=engine.max_model_len
    )

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
        metrics.observe_engine(engine)
        return Response(metrics.text(), media_type=CONTENT_TYPE)

    return app


class _Server:
    """What the two endpoints that generate have in common."""

    def __init__(self, engine: Engine, worker: Worker, settings: Settings) -> None:
        self.engine = engine
        self.tokenizer = engine.tokenizer
        self.worker = worker
        self.settings = settings

    async def completions(self, body: protocol.CompletionRequest, request: Request) -> Response:
        """Continue prompts."""
        self.check_model(body.model)
        only_echo = body.max_tokens == 0
        if only_echo and not body.echo:
            raise ApiError(400, "max_tokens may be 0 only with echo", param="max_tokens")
        prompts = await asyncio.to_thread(self._encode, body.prompts)
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
        encode = self.tokenizer.encode
        return [encode(prompt) if isinstance(prompt, str) else prompt for prompt in prompts]

    def _echoes(self, prompts: list[str | list[int]]) -> list[str]:
        decode = self.tokenizer.decode
        return [prompt if isinstance(prompt, str) else decode(prompt) for prompt in prompts]

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
        room = self.engine.max_model_len - len(prompt)
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
            raise ApiError(
                400, f"max_tokens must be at most {limit}, got {max_tokens}", param="max_tokens"
            )
        try:
            answers = body.sampling_params(max_tokens, logprobs, prompt_logprobs)
            self.engine.checked_params(answers[0])
        except (ValueError, TypeError) as error:
            raise ApiError(400, str(error)) from error
        try:
            self.worker.check_capacity(len(prompts) * len(answers))
        except ValueError as error:
            raise ApiError(400, str(error), param="n") from error
        except QueueFull as error:
            raise ApiError(429, str(error), code="queue_full") from error
        except Stopping as error:
            raise ApiError(503, str(error), code="shutting_down") from error
        salt, name = body.cache_salt or "", request.scope["request_id"]
        return self.worker.submit(
            [
                self._request(prompt, params, self.worker.new_id(name), salt, param)
                for prompt in prompts
                for params in answers
            ]
        )

    def _request(
        self, prompt: list[int], params: SamplingParams, request_id: str, salt: str, param: str
    ) -> EngineRequest:
        """A request for one answer; requests of different salts share no cached prefix."""
        most, code = self.engine.max_model_len, "context_length_exceeded"
        try:
            request = self.engine.make_request(prompt, params, request_id, salt, prompt_name=param)
        except (ValueError, TypeError) as error:
            too_long = len(prompt) >= most
            raise ApiError(400, str(error), param, code if too_long else None) from error
        if len(prompt) + params.max_tokens > most:
            raise ApiError(
                400,
                f"the prompt's {len(prompt)} tokens and max_tokens {params.max_tokens} exceed the "
                f"{most} tokens that fit",
                param="max_tokens",
                code=code,
            )
        return request

    async def _answer(
        self, call: CompletionCall | ChatCall, body: protocol.Sampling, request: Request
    ) -> Response:
        if body.stream:
            return _Stream(call, self.worker)
        try:
            answer = await unless_gone(call.whole(), request)
        finally:
            self.worker.abort(call.job)
        return JSONResponse(as_json(answer))


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
