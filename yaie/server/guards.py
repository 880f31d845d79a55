"""What a request must pass before it is answered: its name, host, key, size and pace."""

import asyncio
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Set
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from yaie.server import errors
from yaie.server.errors import ApiError
from yaie.server.worker import LATE, Worker

SAFE = re.compile(r"[A-Za-z0-9_.:-]{1,128}")  # an id with nothing that could end a line of the log

access_log = logging.getLogger("yaie.server.access")


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


async def unless(
    event: Awaitable[Any], why: Callable[[], ApiError], work: Awaitable[Any], seconds: float
) -> Any:
    """Await `work`; if `event` comes first, or `seconds` have passed, end it and raise `why()`."""
    working, other = tasks = [asyncio.ensure_future(each) for each in (work, event)]
    try:
        await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise why()
        return working.result()
    finally:
        working.cancel()
        other.cancel()


def check_key(key: str, headers: Mapping[str, str]) -> None:
    """Demands `Authorization: Bearer <key>`; compares in constant time."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    # latin-1 is how headers are decoded, so this gives back the bytes that came.
    matches = secrets.compare_digest(token.lstrip(" ").encode("latin-1"), key.encode())
    if scheme.lower() != "bearer" or not matches:
        message = "a valid API key is needed: Authorization: Bearer <key>"
        raise ApiError(401, message, code="invalid_api_key")


def check_host(allowed: Set[str], headers: Mapping[str, str]) -> None:
    """Refuses requests for another host than `allowed`, this server's names in lower case.

    A page of the web may give its own name the address 127.0.0.1 and then, in the reader's browser,
    ask a server on that machine as if it were the page's own ("DNS rebinding"). The Host header
    still has the page's name.
    """
    name = re.sub(r":\d*$", "", headers.get("host", "")).lower()
    if name not in allowed:
        raise ApiError(421, f"this server is not {name!r}: see --allowed-host")


class Gate:
    """Checks the host, the key and the body of each request before it is answered. The request and
    its answer get the id that the client sent as X-Request-Id, or a new one if that is not `SAFE`.

    A body is refused if it is longer than `max_body_bytes`, takes longer than `body_timeout`, or
    is not complete when the worker is late. Of a body that is too long, up to `PATIENCE`
    times as much as allowed is read: a client that is still sending when the connection closes
    would never see the answer.

    Args:
        app: answers what `generate`, from the content type and the body of a request, does not.
    """

    PATIENCE = 16

    def __init__(
        self, app: ASGIApp, settings: Settings, worker: Worker,
        generate: Callable[[str, bytes, Request], Awaitable[ASGIApp | None]],
    ) -> None:  # fmt: skip
        self.app, self.settings, self.worker, self.generate = app, settings, worker, generate
        self._hosts = {host.lower() for host in settings.allowed_hosts or ()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        self.worker.catch_up()
        fields = reversed(scope["headers"])  # if one comes twice, the first counts
        headers = {name.decode(): value.decode("latin-1") for name, value in fields}
        given, started = headers.get("x-request-id", ""), time.perf_counter()
        scope["request_id"] = name = given if SAFE.fullmatch(given) else secrets.token_hex(16)
        scope["status"] = 499  # if the client leaves first

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                scope["status"] = message["status"]
                message["headers"].append((b"x-request-id", name.encode()))
            await send(message)

        try:
            answer = await self._pass(headers, scope, receive)
            await answer(scope, receive, send_with_id)
        except Exception as error:
            has_begun, scope["status"] = scope["status"] != 499, 500
            if has_begun:
                raise
            await errors.unexpected(Request(scope), error)(scope, receive, send_with_id)
        finally:
            if self.settings.access_log:
                client, path = (scope["client"] or ["-"])[0], scope["raw_path"].decode("latin-1")
                line = (client, scope["method"], path, scope["status"])
                access_log.info("%s %s %s %d %.3f s %s", *line, time.perf_counter() - started, name)

    async def _pass(self, headers: Mapping[str, str], scope: Scope, receive: Receive) -> ASGIApp:
        settings = self.settings
        try:
            if settings.allowed_hosts is not None:
                check_host(self._hosts, headers)
            if settings.api_key is not None and scope["path"].startswith("/v1"):
                check_key(settings.api_key, headers)
            reading, seconds = self._read(receive), settings.body_timeout
            if scope["state"]["connection"].answering.more_body:
                reading = unless(self.worker.late.wait(), self._late, reading, seconds)
            kind = headers.get("content-type", "")
            return await self.generate(kind, await reading, Request(scope)) or self.app
        except ApiError as error:
            return error.response()

    def _late(self) -> ApiError:
        if self.worker.late.is_set():
            return ApiError(503, LATE, code="shutting_down", closes=True)
        message = f"the body must be here within {self.settings.body_timeout:g} s"
        return ApiError(408, message, code="request_timeout", closes=True)

    async def _read(self, receive: Receive) -> bytes:
        body, size, more, most = bytearray(), 0, True, self.settings.max_body_bytes
        while more and size <= self.PATIENCE * most:
            message = await receive()
            piece, more = message["body"], message["more_body"]
            size += len(piece)
            if size <= most:
                body += piece
        if size > most:
            raise ApiError(413, f"the body must be at most {most} bytes", closes=True)
        return bytes(body)
