"""What a request must pass before anything reads it: its host, its key, its size and its pace."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from yaie.server.errors import ApiError
from yaie.server.worker import LATE


class CameFirst(Exception):
    """The event, or the time limit, of `before` came before the work was done."""


async def before(event: Awaitable[Any], work: Awaitable[Any], seconds: float | None = None) -> Any:
    """Await `work`. If `event` comes first, or `seconds` have passed, cancel it and raise
    `CameFirst`."""
    tasks = [asyncio.ensure_future(work), asyncio.ensure_future(event)]
    try:
        await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if tasks[0].done():
            return tasks[0].result()
        raise CameFirst
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Guard:
    """Refuses a request with the error that `find` sees in its headers and its path, if any."""

    def __init__(self, app: ASGIApp, find: Callable[[Headers, str], ApiError | None]) -> None:
        self.app, self.find = app, find

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_http = scope["type"] == "http"
        error = self.find(Headers(scope=scope), scope["path"]) if is_http else None
        await (error.response() if error else self.app)(scope, receive, send)


def two_lengths(headers: Headers, path: str) -> ApiError | None:
    """Refuses a request that has both Content-Length and Transfer-Encoding, and closes the
    connection: a proxy in front may believe the other of the two, and take what is body here for
    the next request ("request smuggling", RFC 9112, section 6.1)."""
    if not {"content-length", "transfer-encoding"} <= set(headers):
        return None
    return ApiError(400, "a request has Content-Length or Transfer-Encoding, not both", closes=True)


def no_key(key: str, headers: Headers, path: str) -> ApiError | None:
    """Demands `Authorization: Bearer <key>` under /v1; compares in constant time."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    # latin-1 is how headers are decoded, so this gives back the bytes that came.
    matches = secrets.compare_digest(token.lstrip(" ").encode("latin-1"), key.encode())
    if not path.startswith("/v1") or (scheme.lower() == "bearer" and matches):
        return None
    message = "a valid API key is needed: Authorization: Bearer <key>"
    return ApiError(401, message, code="invalid_api_key")


def other_host(allowed: Sequence[str], headers: Headers, path: str) -> ApiError | None:
    """Refuses requests for a host that is not this server.

    A page of the web may give its own name the address 127.0.0.1 and then, in the reader's browser,
    ask a server on that machine as if it were the page's own ("DNS rebinding"). The Host header
    still has the page's name.
    """
    name = re.sub(r":\d*$", "", headers.get("host", "")).lower()
    if name in {host.lower() for host in allowed}:
        return None
    return ApiError(421, f"this server is not {name!r}: see --allowed-host")


class LimitBody:
    """Reads the body, and refuses one of more than `max_bytes`, one that takes more than `seconds`,
    and one that is not complete when `late` is set.

    Of a body that is too long, up to `PATIENCE` times as much as allowed is read: a client that is
    still sending when the connection closes would never see the answer.
    """

    PATIENCE = 16

    def __init__(self, app: ASGIApp, max_bytes: int, seconds: float, late: asyncio.Event) -> None:
        self.app, self.late = app, late
        self.max_bytes, self.seconds = max_bytes, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        try:
            body = await self._body(receive)
        except ApiError as error:
            await error.response()(scope, receive, send)
            return
        if body is None:
            return
        whole: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            return whole.pop() if whole else await receive()

        await self.app(scope, replay, send)

    async def _body(self, receive: Receive) -> bytes | None:
        """The body, or None if the client left."""
        try:
            return await before(self.late.wait(), self._read(receive), self.seconds)
        except CameFirst:
            if self.late.is_set():
                raise ApiError(503, LATE, code="shutting_down", closes=True) from None
            message = f"the body must be here within {self.seconds:g} s"
            raise ApiError(408, message, code="request_timeout", closes=True) from None

    async def _read(self, receive: Receive) -> bytes | None:
        body, size, more = bytearray(), 0, True
        while more and size <= self.PATIENCE * self.max_bytes:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            size += len(message.get("body", b""))
            if size <= self.max_bytes:
                body += message.get("body", b"")
            more = message.get("more_body", False)
        if size > self.max_bytes:
            raise ApiError(413, f"the body must be at most {self.max_bytes} bytes", closes=True)
        return bytes(body)
