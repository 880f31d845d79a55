"""A client of the server that notes when each piece of an answer comes.

Connections are kept and used again, as many as there are requests under way: no request waits here
for another, so it is late only if the server is.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from yarl import URL

from yaie.bench.load import Trace

BROKEN = "the answer broke off: the server closed the connection"
IDLE = 4.0  # seconds after which a connection is not used again: uvicorn closes it after 5


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
        url: such as http://127.0.0.1:8000; it may end in /v1, as `yaie serve` prints it.
        model: what the server calls its model.
        api_key: if it demands one.
        timeout: seconds without a piece after which a request has failed.
    """

    def __init__(
        self, url: str, model: str, api_key: str | None = None, timeout: float = 300.0
    ) -> None:
        self.url = URL(url.rstrip("/").removesuffix("/v1"))
        self.model, self._timeout = model, timeout
        if self.url.scheme != "http" or not self.url.host:
            raise ValueError(f"url must look like http://127.0.0.1:8000, got {url!r}")
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Client:
        self._session = self._new_session()
        return self

    async def __aexit__(self, *_: object) -> None:
        session, self._session = self._session, None
        await session.close()

    def _new_session(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE),
            headers=self._headers | {"Accept-Encoding": "identity"},
            timeout=aiohttp.ClientTimeout(
                total=None, sock_connect=self._timeout, sock_read=self._timeout
            ),
        )

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
        async with self._ask("POST", "/v1/completions", json=body | fields) as response:
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
            return await response.text()

    @asynccontextmanager
    async def _ask(
        self, method: str, path: str, **what: Any
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """An answer that has begun. Raises ClientError if it is an error, or breaks off."""
        session = self._session or self._new_session()
        try:
            async with session.request(method, self.url / path[1:], **what) as response:
                if response.status != 200:
                    said = _message((await response.read()).decode(errors="replace"))
                    error = Refused if response.status == 429 else ClientError
                    raise error(f"{response.status} {response.reason}: {said}")
                yield response
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            where = f"{self.url.host} port {self.url.port}"
            raise ClientError(f"no server answers at {where}") from error
        except (aiohttp.ClientPayloadError, aiohttp.ServerDisconnectedError) as error:
            raise ClientError(BROKEN) from error
        except asyncio.TimeoutError as error:
            raise ClientError(f"nothing came for {self._timeout:g} s") from error
        except aiohttp.ClientError as error:
            raise ClientError(f"the answer broke off: {error}") from error
        finally:
            if session is not self._session:
                await session.close()

    def _note(self, event: dict[str, Any], answer: Answer) -> None:
        if "error" in event:
            raise ClientError(event["error"]["message"])
        answer.usage = event.get("usage") or answer.usage
        for choice in event["choices"]:
            if choice["text"]:
                answer.trace.tokens.append(time.perf_counter())
                answer.text += choice["text"]
            answer.finish_reason = choice["finish_reason"] or answer.finish_reason


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


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[dict[str, Any]]:
    """The data of server-sent events, as they come. The answer is read to its end, so that its
    connection can be used again."""
    begun, done = b"", False
    async for piece in response.content.iter_any():
        *lines, begun = (begun + piece).split(b"\n")  # a text may hold other ends of lines: U+2028
        for line in lines:
            if line.startswith(b"data: [DONE]"):
                done = True
            elif line.startswith(b"data: "):
                yield json.loads(line.removeprefix(b"data: "))
    if not done:
        raise ClientError(BROKEN)


def _message(body: str) -> str:
    """What an error says: the message of OpenAI's form, or the first line of another one."""
    try:
        return json.loads(body)["error"]["message"]
    except (ValueError, KeyError, TypeError):
        return (body.strip().splitlines() or ["no message"])[0][:200]
