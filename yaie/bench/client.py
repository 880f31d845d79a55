"""A client of the server that notes when each piece of an answer comes.

It writes HTTP itself, a connection for each request, so that little stands between a token and its
time. HTTP/1.0 is what makes that short: an answer is a status, headers, and lines until the end.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from yaie.bench.load import Trace


class ClientError(RuntimeError):
    """The server did not answer as it should."""


@dataclass
class Answer:
    """What came back of a request.

    Attributes:
        trace: when it was due, and when each piece with text came.
        text: of all pieces.
        usage: as the server counted, if the stream ended with it.
    """

    trace: Trace
    text: str = ""
    finish_reason: str | None = None
    usage: dict[str, Any] = field(default_factory=dict)


class Client:
    """Sends requests to one server.

    Args:
        url: such as http://127.0.0.1:8000.
        model: what the server calls its model.
        api_key: if it demands one.
        timeout: seconds without a piece after which a request has failed.
    """

    def __init__(
        self, url: str, model: str, api_key: str | None = None, timeout: float = 300.0
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise ValueError(f"url must look like http://127.0.0.1:8000, got {url!r}")
        self.host, self.port = parts.hostname, parts.port or 80
        self.model, self.api_key, self.timeout = model, api_key, timeout

    async def stream(
        self,
        prompt: list[int] | str,
        max_tokens: int,
        due: float | None = None,
        leave_after: int | None = None,
        on_piece: Callable[[Answer], None] | None = None,
        **fields: Any,
    ) -> Answer:
        """Ask for a completion, greedily, and note when each piece comes.

        Args:
            due: when the request was to be sent; now, unless it is given.
            leave_after: hang up when so many pieces have come.
            on_piece: called with what has come so far, at each piece.
            fields: of the request.

        Raises:
            ClientError: the answer is an error, or breaks off.
        """
        answer = Answer(Trace(time.perf_counter() if due is None else due))
        body = {
            "model": self.model,
            "prompt": prompt,
            "max_tokens": max_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        reader, writer = await self._open("POST", "/v1/completions", body | fields)
        try:
            await self._expect_ok(reader)
            while (event := await self._event(reader)) != "[DONE]":
                self._note(json.loads(event), answer)
                if on_piece is not None and answer.text:
                    on_piece(answer)
                if leave_after is not None and len(answer.trace.tokens) >= leave_after:
                    break
        finally:
            writer.close()
        return answer

    async def get(self, path: str) -> str:
        """The body of a page of the server."""
        reader, writer = await self._open("GET", path)
        try:
            await self._expect_ok(reader)
            return (await asyncio.wait_for(reader.read(), self.timeout)).decode()
        finally:
            writer.close()

    async def _open(
        self, method: str, path: str, body: dict | None = None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            opening = asyncio.open_connection(self.host, self.port, limit=2**20)
            reader, writer = await asyncio.wait_for(opening, self.timeout)
        except (OSError, asyncio.TimeoutError) as error:
            raise ClientError(f"nobody answers at {self.host} port {self.port}: {error}") from error
        content = b"" if body is None else json.dumps(body).encode()
        host = f"[{self.host}]" if ":" in self.host else self.host
        lines = [f"{method} {path} HTTP/1.0", f"Host: {host}:{self.port}"]
        if self.api_key:
            lines.append(f"Authorization: Bearer {self.api_key}")
        if body is not None:
            lines += ["Content-Type: application/json", f"Content-Length: {len(content)}"]
        writer.write("\r\n".join([*lines, "", ""]).encode() + content)
        return reader, writer

    async def _expect_ok(self, reader: asyncio.StreamReader) -> None:
        """Read the status and the headers."""
        status = await self._line(reader)
        while await self._line(reader):
            pass
        if status.split()[1] != "200":
            body = await asyncio.wait_for(reader.read(), self.timeout)
            raise ClientError(f"{status}: {body.decode(errors='replace')}")

    async def _event(self, reader: asyncio.StreamReader) -> str:
        """The data of the next server-sent event."""
        while True:
            line = await self._line(reader)
            if line.startswith("data: "):
                return line[6:]

    async def _line(self, reader: asyncio.StreamReader) -> str:
        try:
            line = await asyncio.wait_for(reader.readline(), self.timeout)
        except (OSError, asyncio.TimeoutError) as error:
            raise ClientError(f"the answer broke off: {error or 'nothing came'}") from error
        if not line.endswith(b"\n"):
            raise ClientError("the answer broke off: the server closed the connection")
        return line.decode().rstrip("\r\n")

    def _note(self, event: dict[str, Any], answer: Answer) -> None:
        if "error" in event:
            raise ClientError(event["error"]["message"])
        answer.usage = event.get("usage") or answer.usage
        for choice in event["choices"]:
            if choice["text"]:
                answer.trace.tokens.append(time.perf_counter())
                answer.text += choice["text"]
            answer.finish_reason = choice["finish_reason"] or answer.finish_reason
