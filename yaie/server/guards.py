"""What a request must pass before it is answered: its name, host, key, size and pace."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
    event: Awaitable[Any], why: Callable[[], ApiError], work: Awaitable[Any], seconds: float = 1e9
) -> Any:
    """Await `work`; if `event` comes first, or `seconds` have passed, end it and raise `why()`."""
    task, ended = asyncio.current_task(), []
    before = getattr(task, "cancelling", int)()  # Python 3.10 counts none: each seems ours

    def interrupt(*_: Any) -> None:
        if not ended:
            ended.append("early")
            task.cancel()

    other = asyncio.ensure_future(event)
    other.add_done_callback(interrupt)
    timer = other.get_loop().call_later(seconds, interrupt)
    try:
        return await work
    except asyncio.CancelledError:
        if ended and getattr(task, "uncancel", int)() <= before:
            raise why() from None
        raise
    finally:
        ended.append("late")
        timer.cancel()
        other.cancel()


def check_lengths(headers: Headers) -> None:
    """Refuses a request with both Content-Length and Transfer-Encoding, and closes the connection:
    a proxy in front may believe the other one ("request smuggling", RFC 9112, section 6.1)."""
    if "content-length" in headers and "transfer-encoding" in headers:
        message = "a request has Content-Length or Transfer-Encoding, not both"
        raise ApiError(400, message, closes=True)


def check_key(key: str, headers: Headers) -> None:
    """Demands `Authorization: Bearer <key>`; compares in constant time."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    # latin-1 is how headers are decoded, so this gives back the bytes that came.
    matches = secrets.compare_digest(token.lstrip(" ").encode("latin-1"), key.encode())
    if scheme.lower() != "bearer" or not matches:
        message = "a valid API key is needed: Authorization: Bearer <key>"
        raise ApiError(401, message, code="invalid_api_key")


def check_host(allowed: Sequence[str], headers: Headers) -> None:
    """Refuses requests for a host that is not this server.

    A page of the web may give its own name the address 127.0.0.1 and then, in the reader's browser,
    ask a server on that machine as if it were the page's own ("DNS rebinding"). The Host header
    still has the page's name.
    """
    name = re.sub(r":\d*$", "", headers.get("host", "")).lower()
    if name not in {host.lower() for host in allowed}:
        raise ApiError(421, f"this server is not {name!r}: see --allowed-host")


class Gate:
    """What each request passes. It gets the id that its client sent as X-Request-Id, or a new one
    if that is not `SAFE`; the answer has it as well. Its headers are looked at, and its body read.

    A body of more than `max_body_bytes` is refused, one that takes more than `body_timeout`, and
    one that is not complete when the worker is late. Of a body that is too long, up to `PATIENCE`
    times as much as allowed is read: a client that is still sending when the connection closes
    would never see the answer.

    Args:
        short_cut: may answer a request, given its body: the routes and layers of `app` are slow.
    """

    PATIENCE = 16

    def __init__(
        self, app: ASGIApp, settings: Settings, worker: Worker,
        short_cut: Callable[[bytes, Request], Awaitable[Response | None]],
    ) -> None:  # fmt: skip
        self.app, self.settings, self.worker, self.short_cut = app, settings, worker, short_cut

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        self.worker.catch_up()
        headers, started, status = Headers(scope=scope), time.perf_counter(), 499
        given = headers.get("x-request-id", "")
        scope["request_id"] = name = given if SAFE.fullmatch(given) else uuid.uuid4().hex

        async def send_with_id(message: Message) -> None:
            nonlocal status
            self.worker.catch_up()
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["X-Request-Id"] = name
            await send(message)

        try:
            await self._pass(headers, scope, receive, send_with_id)
        except Exception:
            status = 500
            raise
        finally:  # 499 if the client left first
            if self.settings.access_log:
                client, path = (scope["client"] or ["-"])[0], scope["raw_path"].decode("latin-1")
                line = (client, scope["method"], path, status, time.perf_counter() - started, name)
                access_log.info("%s %s %s %d %.3f s %s", *line)

    async def _pass(self, headers: Headers, scope: Scope, receive: Receive, send: Send) -> None:
        settings = self.settings
        try:
            check_lengths(headers)
            if settings.allowed_hosts is not None:
                check_host(settings.allowed_hosts, headers)
            if settings.api_key is not None and scope["path"].startswith("/v1"):
                check_key(settings.api_key, headers)
            reading, seconds = self._read(receive), settings.body_timeout
            body = await unless(self.worker.late.wait(), self._late, reading, seconds)
            response = await self.short_cut(body, Request(scope, receive))
        except ApiError as error:
            response = error.response()
        if response is not None:
            await response(scope, receive, send)
            return
        whole: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            return whole.pop() if whole else await receive()

        await self.app(scope, replay, send)

    def _late(self) -> ApiError:
        if self.worker.late.is_set():
            return ApiError(503, LATE, code="shutting_down", closes=True)
        message = f"the body must be here within {self.settings.body_timeout:g} s"
        return ApiError(408, message, code="request_timeout", closes=True)

    async def _read(self, receive: Receive) -> bytes:
        body, size, more, most = bytearray(), 0, True, self.settings.max_body_bytes
        while more and size <= self.PATIENCE * most:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ApiError(499, "the client left")
            size += len(message.get("body", b""))
            if size <= most:
                body += message.get("body", b"")
            more = message.get("more_body", False)
        if size > most:
            raise ApiError(413, f"the body must be at most {most} bytes", closes=True)
        return bytes(body)
