"""What a request must pass before anything reads it: its host, its key, its size and its pace."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Awaitable, Sequence
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


class OneLength:
    """Refuses a request that has both Content-Length and Transfer-Encoding, and closes the
    connection: a proxy in front may believe the other of the two, and take what is body here for
    the next request ("request smuggling", RFC 9112, section 6.1)."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and {"content-length", "transfer-encoding"} <= set(
            Headers(scope=scope)
        ):
            message = "a request has Content-Length or Transfer-Encoding, not both"
            response = ApiError(400, message).response()
            response.headers["Connection"] = "close"
            await response(scope, receive, send)
            return
        await self.app(scope, receive, send)


class LimitBody:
    """Reads the body, and refuses one of more than `max_bytes`, one that takes more than `seconds`,
    and one that is not complete when `late` is set.

    Of a body that is too long, up to `PATIENCE` times as much as allowed is read: a client that is
    still sending when the connection closes would never see the answer.
    """

    PATIENCE = 16

    def __init__(self, app: ASGIApp, max_bytes: int, seconds: float, late: asyncio.Event) -> None:
        self.app = app
        self.max_bytes = max_bytes
        self.seconds = seconds
        self.late = late

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        try:
            body = await self._body(receive)
        except ApiError as error:
            response = error.response()
            response.headers["Connection"] = "close"
            await response(scope, receive, send)
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
                raise ApiError(503, LATE, code="shutting_down") from None
            message = f"the body must be here within {self.seconds:g} s"
            raise ApiError(408, message, code="request_timeout") from None

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
            raise ApiError(413, f"the body must be at most {self.max_bytes} bytes")
        return bytes(body)


class RequireKey:
    """Demands `Authorization: Bearer <key>` under /v1; compares in constant time."""

    def __init__(self, app: ASGIApp, key: str) -> None:
        self.app = app
        self.key = key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith("/v1") and not self._fits(scope):
            message = "a valid API key is needed: Authorization: Bearer <key>"
            error = ApiError(401, message, code="invalid_api_key")
            await error.response()(scope, receive, send)
            return
        await self.app(scope, receive, send)

    def _fits(self, scope: Scope) -> bool:
        given = Headers(scope=scope).get("authorization", "")
        scheme, _, token = given.partition(" ")
        # latin-1 is how headers are decoded, so this gives back the bytes that came.
        matches = secrets.compare_digest(token.lstrip(" ").encode("latin-1"), self.key)
        return scheme.lower() == "bearer" and matches


class CheckHost:
    """Refuses requests for a host that is not this server.

    A page of the web may give its own name the address 127.0.0.1 and then, in the reader's browser,
    ask a server on that machine as if it were the page's own ("DNS rebinding"). The Host header
    still has the page's name.
    """

    def __init__(self, app: ASGIApp, allowed: Sequence[str]) -> None:
        self.app = app
        self.allowed = {name.lower() for name in allowed}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            host = Headers(scope=scope).get("host", "")
            name = re.sub(r":\d*$", "", host).lower()
            if name not in self.allowed:
                error = ApiError(421, f"this server is not {name!r}: see --allowed-host")
                await error.response()(scope, receive, send)
                return
        await self.app(scope, receive, send)
