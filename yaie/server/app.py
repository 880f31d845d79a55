"""The routes of the server."""

import asyncio
import codecs
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import ValidationError
from pydantic_core import from_json
from starlette.types import ASGIApp, Receive, Scope, Send

from yaie import __version__
from yaie.engine.params import Limits, SamplingParams
from yaie.engine.request import Request as EngineRequest
from yaie.model.tokenizer import Tokenizer
from yaie.server import errors, protocol
from yaie.server.answers import Call, ChatCall, CompletionCall, stream
from yaie.server.errors import ApiError
from yaie.server.guards import Gate, Settings
from yaie.server.metrics import CONTENT_TYPE
from yaie.server.worker import Job, Worker

DEFAULT_MAX_TOKENS = 16  # of a completion, as at OpenAI; a chat's answer may fill the context


def build_app(worker: Worker, tokenizer: Tokenizer, settings: Settings) -> Gate:
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
    errors.install(app)
    server = _Server(tokenizer, worker, settings)
    for path, (_, whole, answer) in server.endpoints.items():
        streamed = {200: {"content": {"text/event-stream": {}}}}
        app.post(path, responses=streamed, response_model=whole)(answer)

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

    return Gate(app, settings, worker, server.generate)


class _Server:
    """What the two endpoints that generate have in common."""

    def __init__(self, tokenizer: Tokenizer, worker: Worker, settings: Settings) -> None:
        self.tokenizer, self.worker, self.settings = tokenizer, worker, settings
        chat = (protocol.ChatRequest, protocol.ChatCompletion, self.chat_completions)
        completion = (protocol.CompletionRequest, protocol.Completion, self.completions)
        self.endpoints = {"/v1/completions": completion, "/v1/chat/completions": chat}

    async def generate(self, kind: str, body: bytes, request: Request) -> ASGIApp | None:
        """Answer a request to generate; None leaves any other to FastAPI, which would take several
        times as long for this one. `kind` is the body's content type. Raises ApiError."""
        found = self.endpoints.get(request.scope["path"])
        if found is None or request.scope["method"] != "POST":
            return None
        is_json = kind.partition(";")[0].strip().lower().endswith(("/json", "+json"))
        try:
            given = from_json(body.removeprefix(codecs.BOM_UTF8)) if is_json else None
        except ValueError as error:
            raise ApiError(400, f"the body is not JSON: {error}", code="invalid_json") from error
        if not isinstance(given, dict):
            raise ApiError(400, "send a JSON object, with Content-Type: application/json")
        try:
            return await found[2](found[0].model_validate(given), request)
        except ValidationError as error:
            raise errors.from_validation(error) from error

    @property
    def limits(self) -> Limits:
        """Of the engine, which may be another one since it was started again."""
        return self.worker.ready.limits

    async def completions(self, body: protocol.CompletionRequest, request: Request) -> ASGIApp:
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
            echoes=self._echoes(body.prompts) if body.echo else None, only_echo=only_echo,
        )  # fmt: skip
        return await self._answer(call, body)

    async def chat_completions(self, body: protocol.ChatRequest, request: Request) -> ASGIApp:
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
        return await self._answer(call, body)

    def check_model(self, name: str | None) -> None:
        """Raise ApiError if a model is named and is not the one that is served."""
        if name not in (None, self.settings.model_name):
            message = f"model {name!r} is not served here, {self.settings.model_name!r} is"
            raise ApiError(404, message, param="model", code="model_not_found")

    def _encode(self, prompts: list[str | list[int]]) -> list[list[int]]:
        return [self.tokenizer.encode(p) if isinstance(p, str) else p for p in prompts]

    def _echoes(self, prompts: list[str | list[int]]) -> list[str]:
        return [p if isinstance(p, str) else self.tokenizer.decode(p) for p in prompts]

    def _call(self, job: Job, body: protocol.Sampling, request: Request, logprobs: bool) -> tuple:
        """The arguments of a `Call`."""
        about = request.scope["request_id"], body.stream_options or protocol.StreamOptions()
        return job, self.settings.model_name, self.tokenizer, body.n or 1, logprobs, *about

    def _render(self, messages: list[protocol.Message]) -> list[int]:
        try:
            return self.tokenizer.apply_chat_template([message.plain() for message in messages])
        except (ValueError, TypeError) as error:
            raise ApiError(400, str(error), param="messages") from error

    def _room(self, prompt: list[int]) -> int:
        """How many tokens may be generated after a prompt."""
        room = self.limits.max_model_len - len(prompt)
        return min(room, self.settings.max_tokens or room)

    def _submit(
        self, request: Request, prompts: list[list[int]], body: protocol.Sampling, max_tokens: int,
        logprobs: int | None, prompt_logprobs: int | None = None,
    ) -> Job:  # fmt: skip
        """Make a request for each answer, and queue them."""
        param = "messages" if isinstance(body, protocol.ChatRequest) else "prompt"
        is_newer = getattr(body, "max_completion_tokens", None) is not None
        name = "max_completion_tokens" if is_newer else "max_tokens"
        limit = self.settings.max_tokens
        if limit is not None and max_tokens > limit:
            raise ApiError(400, f"{name} must be at most {limit}, got {max_tokens}", param=name)
        try:
            answers = body.sampling_params(max_tokens, logprobs, prompt_logprobs)
            self.limits.checked_params(answers[0])
        except (ValueError, TypeError) as error:
            message = str(error).removeprefix("params.")  # it begins with the name of the field
            first = re.match(r"\w*", message)[0]
            field = first if first in type(body).model_fields else None
            raise ApiError(400, message, param=field) from error
        self.worker.check_capacity(len(prompts) * len(answers))
        about = (request.scope["request_id"], body.cache_salt or "", param, name)
        requests = [self._request(p, params, *about) for p in prompts for params in answers]
        return self.worker.submit(requests)

    def _request(
        self, prompt: list[int], params: SamplingParams, request_id: str, salt: str, param: str,
        max_tokens: str,
    ) -> EngineRequest:  # fmt: skip
        """A request for one answer; requests of different salts share no cached prefix. `param` and
        `max_tokens` are what the client calls the prompt and the limit."""
        most, code = self.limits.max_model_len, "context_length_exceeded"
        try:
            self.limits.check_prompt(prompt, param)
        except (ValueError, TypeError) as error:
            too_long = len(prompt) >= most
            raise ApiError(400, str(error), param, code if too_long else None) from error
        if len(prompt) + params.max_tokens > most:
            asked = f"the prompt's {len(prompt)} tokens and {max_tokens} {params.max_tokens}"
            raise ApiError(400, f"{asked} exceed the {most} tokens that fit", max_tokens, code)
        return EngineRequest(request_id, prompt, params, salt)

    async def _answer(self, call: Call, body: protocol.Sampling) -> ASGIApp:
        if body.stream:
            return partial(self._stream, call)
        try:
            return JSONResponse(await call.whole())
        finally:
            self.worker.abort(call.job)

    async def _stream(self, call: Call, scope: Scope, receive: Receive, send: Send) -> None:
        scope["status"] = 200
        try:
            await stream(call, scope["state"]["connection"])
        finally:
            self.worker.abort(call.job)
