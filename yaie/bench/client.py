"""A client of the server that notes when each piece of an answer comes.

Connections are kept and used again, as many as there are requests under way: no request waits here
for another. It speaks just enough HTTP for this: a request must take the client less time than the
server, since the pieces of other answers are not noted meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from yaie.bench.load import Trace


class ClientError(RuntimeError):
    """The server did not answer as it should."""


class Refused(ClientError):
    """The server has too many requests under way to accept another one (status 429)."""


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
    """Sends requests to one server. `async with client:` keeps connections between requests.

    Args:
        url: such as http://127.0.0.1:8000.
        model: what the server calls its model.
        api_key: if it demands one.
        timeout: seconds without a piece after which a request has failed.
    """

    def __init__(
        self, url: str, model: str, api_key: str | None = None, timeout: float = 300.0
    ) -> None:
        self.url, self.model, self._timeout = urlsplit(url), model, timeout
        if self.url.scheme != "http" or not self.url.hostname:
            raise ValueError(f"url must look like http://127.0.0.1:8000, got {url!r}")
        key = f"Authorization: Bearer {api_key}\r\n" if api_key else ""
        self._headers = f"Host: {self.url.netloc}\r\nContent-Type: application/json\r\n{key}"
        self._is_open = False
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def __aenter__(self) -> Client:
        self._is_open = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_open = False
        while self._idle:
            self._idle.pop()[1].close()

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
            leave_after: hang up after this many pieces.
            on_piece: called with what has come so far, at each piece.
            fields: of the request.

        Raises:
            ClientError: the answer is an error (Refused: try again later), or breaks off.
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
        async with self._ask("POST", "/v1/completions", body | fields) as response:
            async for event in _events(response):
                self._note(event, answer)
                if on_piece is not None and answer.text:
                    on_piece(answer)
                if leave_after is not None and len(answer.trace.tokens) >= leave_after:
                    break
        return answer

    async def get(self, path: str) -> str:
        """The body of a page of the server."""
        async with self._ask("GET", path) as response:
            return (await response.read()).decode()

    @asynccontextmanager
    async def _ask(
        self, method: str, path: str, body: dict[str, Any] | None = None
    ) -> AsyncIterator[_Response]:
        """An answer that has begun. Raises ClientError if it is an error, or breaks off."""
        reader, writer = await self._connection()
        response = _Response(reader, writer, self._timeout)
        content = b"" if body is None else json.dumps(body).encode()
        target = f"{method} {self.url.path.rstrip('/')}{path} HTTP/1.1\r\n"
        head = f"{target}{self._headers}Content-Length: {len(content)}\r\n\r\n"
        try:
            writer.write(head.encode() + content)
            status, _, reason = (await response.read_head()).partition(" ")
            if status != "200":
                said = (await response.read()).decode(errors="replace")
                raise (Refused if status == "429" else ClientError)(f"{status} {reason}: {said}")
            yield response
        except (OSError, EOFError) as error:
            raise ClientError("the answer broke off: the server closed the connection") from error
        finally:
            response.timer.cancel()
            if self._is_open and response.is_whole:
                self._idle.append((reader, writer))
            else:
                writer.close()

    async def _connection(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """One that is idle, and that the server has not closed meanwhile, or a new one."""
        while self._idle:
            reader, writer = self._idle.pop()
            if not reader.at_eof():
                return reader, writer
            writer.close()
        host, port = self.url.hostname, self.url.port or 80
        try:
            return await asyncio.open_connection(host, port)
        except OSError as error:
            raise ClientError(f"no server answers at {host} port {port}: {error}") from error

    def _note(self, event: dict[str, Any], answer: Answer) -> None:
        if "error" in event:
            raise ClientError(event["error"]["message"])
        answer.usage = event.get("usage") or answer.usage
        for choice in event["choices"]:
            if choice["text"]:
                answer.trace.tokens.append(time.perf_counter())
                answer.text += choice["text"]
            answer.finish_reason = choice["finish_reason"] or answer.finish_reason


class _Response:
    """An answer as it comes: its head, then its body. If nothing comes for `timeout` seconds, the
    connection is closed, and reading raises EOFError or OSError."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, timeout: float
    ) -> None:
        self._reader, self._abort, self._timeout = reader, writer.transport.abort, timeout
        self._loop = asyncio.get_running_loop()
        self.timer = self._loop.call_later(timeout, self._abort)
        self.is_whole = False

    async def read_head(self) -> str:
        """The status and its reason."""
        first, *lines = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines if line)
        self._is_chunked = headers.get("transfer-encoding") == "chunked"
        self._length = int(headers.get("content-length", 0))
        return first.partition(" ")[2]

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body, as the server has divided it."""
        while self._is_chunked and (size := int(await self._reader.readuntil(b"\r\n"), 16)):
            yield (await self._reader.readexactly(size + 2))[:-2]
            self.timer.cancel()
            self.timer = self._loop.call_later(self._timeout, self._abort)
        rest = await self._reader.readexactly(2 if self._is_chunked else self._length)
        self.is_whole = True
        if not self._is_chunked:
            yield rest

    async def read(self) -> bytes:
        """The whole body."""
        return b"".join([piece async for piece in self.pieces()])


def closed_loop(
    client: Client, prompts: Sequence[list[int]], outputs: Sequence[int], at_once: int, salt: str
) -> list[Answer]:
    """The answers to prompts, each of a number of tokens; `at_once` requests are under way."""

    async def run() -> list[Answer]:
        limit = asyncio.Semaphore(at_once)

        async def ask(prompt: list[int], output: int) -> Answer:
            async with limit:
                return await client.stream(prompt, output, ignore_eos=True, cache_salt=salt)

        async with client:
            return await asyncio.gather(*map(ask, prompts, outputs))

    return asyncio.run(run())


def open_loop(
    client: Client,
    requests: Sequence[tuple[float, list[int], str]],
    output: int,
    refuse: bool = False,
) -> list[tuple[Answer, float]]:
    """The answers to requests of independent clients, each with the seconds by which it was late.

    Args:
        requests: (when it is due on the clock of `time.perf_counter`, prompt, cache salt).
        output: tokens of each answer.
        refuse: whether the server may refuse a request, whose answer is then empty.
    """

    async def run() -> list[tuple[Answer, float]]:
        async def ask(due: float, prompt: list[int], salt: str) -> tuple[Answer, float]:
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            late = time.perf_counter() - due
            try:
                answer = await client.stream(prompt, output, due, ignore_eos=True, cache_salt=salt)
            except Refused:
                if not refuse:
                    raise
                answer = Answer(Trace(due))
            return answer, late

        async with client:
            return await asyncio.gather(*(ask(*request) for request in requests))

    return asyncio.run(run())


async def _events(response: _Response) -> AsyncIterator[dict[str, Any]]:
    """The data of server-sent events, as they come. The answer is read to its end, so that its
    connection can be used again."""
    begun, done = b"", False
    async for piece in response.pieces():
        *lines, begun = (begun + piece).split(b"\n")  # a text may hold other ends of lines: U+2028
        for line in lines:
            if line.startswith(b"data: [DONE]"):
                done = True
            elif line.startswith(b"data: "):
                yield json.loads(line.removeprefix(b"data: "))
    if not done:
        raise ClientError("the answer broke off: the server closed the connection")
