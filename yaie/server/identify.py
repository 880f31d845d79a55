"""A name for every request, in its answer and in the log."""

from __future__ import annotations

import logging
import re
import time
import uuid

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

SAFE = re.compile(r"[A-Za-z0-9_.:-]{1,128}")  # nothing that could end a line of the log

access_log = logging.getLogger("yaie.server.access")


class Identify:
    """Gives each request the id that its client sent as X-Request-Id, or a new one if that is not
    `SAFE`; the answer has it as well.

    Args:
        access_log: whether to log each request when it has been answered: who asked for what, the
            status (499 if the client left first), seconds, and the id.
    """

    def __init__(self, app: ASGIApp, access_log: bool) -> None:
        self.app, self.access_log = app, access_log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        given = Headers(scope=scope).get("x-request-id", "")
        scope["request_id"] = name = given if SAFE.fullmatch(given) else uuid.uuid4().hex
        started, status = time.perf_counter(), 499

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["X-Request-Id"] = name
            await send(message)

        try:
            await self.app(scope, receive, send_with_id)
        except Exception:
            status = 500
            raise
        finally:
            if self.access_log:
                seconds = time.perf_counter() - started
                client, path = (scope["client"] or ["-"])[0], scope["raw_path"].decode("latin-1")
                line = (client, scope["method"], path, status, seconds, name)
                access_log.info("%s %s %s %d %.3f s %s", *line)
