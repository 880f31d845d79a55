"""How the server takes connections and receives bytes.

Clients that connect and say nothing, or send half of a request's head, cost a file each. So heads
have a deadline, connections a limit, and where the limit is reached the connection whose head has
been awaited the longest makes room for a new one: what floods the server delays no other client.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import resource
import select
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from yaie.server.errors import ApiError

MOST_CONNECTIONS = 4096
MOST_HEAD = 64 * 1024  # bytes of the head of a request, and of the fields after its body
SPARE_FILES = 64  # for everything that is opened while the server runs
MOST_AT_ONCE = 32  # connections taken before others are served
PAUSE = 1.0  # seconds until the deadlines, and a limit that was reached, are looked at again

log = logging.getLogger("yaie.server.connection")


class Connection(HttpToolsProtocol):
    """uvicorn's connection, which calls `catch_up` before it reads, and tells its acceptor whether
    it awaits the head of a request. The state in a request's scope refers to it."""

    answering: RequestResponseCycle | None = None  # the request being answered, or the last one

    def __init__(self, catch_up: Callable[[], None], acceptor: Acceptor, **options: Any) -> None:
        super().__init__(**options)
        self._acceptor, self._catch_up, self._held = acceptor, catch_up, 0
        self.app_state = self.app_state | {"connection": self}

    @property
    def has_begun(self) -> bool:
        """Whether part of a head has come, but not all."""
        return self.scope is not None and "method" not in self.scope

    def begin(self, headers: Sequence[tuple[bytes, bytes]]) -> None:
        """Send the head of an answer whose body `write` sends: in chunks or, to a client of
        HTTP/1.0, up to the end of the connection. ASGI would take several times as long."""
        cycle = self.answering
        cycle.response_started, cycle.chunked_encoding = True, cycle.scope["http_version"] == "1.1"
        chunks = [(b"Transfer-Encoding", b"chunked")] if cycle.chunked_encoding else []
        end = [] if cycle.keep_alive else [(b"Connection", b"close")]
        headers = [*self.server_state.default_headers, *headers, *chunks, *end]
        lines = [b"HTTP/1.1 200 OK", *(b"%s: %s" % header for header in headers), b"\r\n"]
        self.transport.write(b"\r\n".join(lines))

    def write(self, text: str, ends: bool) -> None:
        """Send a piece of the body, in ASCII; it may be empty. `ends`: whether it is the last."""
        cycle = self.answering
        if cycle.chunked_encoding:
            text = (f"{len(text):x}\r\n{text}\r\n" if text else "") + ("0\r\n\r\n" if ends else "")
        if text:
            self.transport.write(text.encode("ascii"))
        if ends:
            cycle.response_complete = True
            if not cycle.keep_alive:
                self.transport.close()
            cycle.on_response()

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Await the head of the first request."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Read requests, and note whether the head of one is still to come."""
        self._catch_up()
        self._held += len(data)
        try:
            while data:
                data = self._read(data)
            if self._held > MOST_HEAD:
                raise httptools.HttpParserError("Head or trailer too long")
        except httptools.HttpParserError as error:
            if (now := self.answering) and not (now.more_body or now.response_complete):
                now.keep_alive = False  # half of the answer may be sent: close after it
                self.flow.pause_reading()
            else:
                self.send_400_response(f"Invalid HTTP request received: {error}")
        self._watch()

    def _read(self, data: bytes) -> bytes:
        """Have the parser read; returns the bytes to parse again, a request without its offer of
        another protocol: Java's clients offer HTTP/2. The parser has stopped after its head."""
        try:
            self.parser.feed_data(data)
            return b""
        except httptools.HttpParserUpgrade as stopped:
            rest = data[stopped.args[0] :]
        about = (self.parser.get_method(), self.url, self.parser.get_http_version().encode())
        fields = [b"%s: %s\r\n" % field for field in self.headers if field[0] != b"upgrade"]
        self.parser = httptools.HttpRequestParser(self)
        return b"%s %s HTTP/%s\r\n%s\r\n" % (*about, b"".join(fields)) + rest

    def on_headers_complete(self) -> None:
        """Answer the request, unless `_read` has it read again. An error here is answered 400."""
        self._held = 0
        if self.parser.get_method() == b"CONNECT":
            raise ValueError("this server is not a proxy")
        hosts = sum(name == b"host" for name, _ in self.headers)
        if hosts != 1 and self.parser.get_http_version() == "1.1":  # RFC 9112, section 3.2
            raise ValueError(f"send one Host header, got {hosts}")
        if not self.parser.should_upgrade():
            super().on_headers_complete()
            self.headers = deque(maxlen=0)  # drops trailer fields, which follow the body

    def on_body(self, body: bytes) -> None:
        """Part of the body has come."""
        self._held = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The body has come."""
        self._held = 0
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self.answering, self._task = cycle, self.loop.create_task(cycle.run_asgi(app))
        self._task.add_done_callback(self.tasks.discard)
        self.tasks.add(self._task)

    def on_response_complete(self) -> None:
        """Await the head of the next request, for as long as the acceptor allows."""
        super().on_response_complete()
        self._unset_keepalive_if_required()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the answer, and make room for another connection."""
        super().connection_lost(exc)
        self._acceptor.forget(self)
        if self.answering is not None and not self.answering.response_complete:
            self.answering.disconnected = True
            self._task.cancel()

    def _watch(self) -> None:
        self._acceptor.note(self, self.cycle is None or self.cycle.response_complete)

    def refuse(self) -> None:
        """Close the connection, since its head is late or another needs the place."""
        self._acceptor.forget(self)
        if self.has_begun:
            error = ApiError(408, "the head of the request is late", code="request_timeout")
            body = json.dumps(error.body).encode()
            head = "HTTP/1.1 408 Request Timeout\r\nContent-Type: application/json\r\n"
            head += f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            self.transport.write(head.encode() + body)
        self.transport.close()

    @property
    def has_more(self) -> bool:
        """Whether bytes have come that the event loop has yet to read: if it was busy past the
        deadline, a request may have come in time. A connection that is closing, as after a reset by
        the client, is read no more."""
        if self.transport.is_closing():
            return False
        waiting = select.poll()
        waiting.register(self.transport.get_extra_info("socket"), select.POLLIN)
        return bool(waiting.poll(0))


class Acceptor:
    """Takes connections from a socket that listens, in place of asyncio's own loop, which where
    files run out logs thousands of lines a second.

    Args:
        make: makes a `Connection` of this acceptor.
        most: how many may be open; None allows what the limit of open files leaves.
        head_timeout: seconds until the head of a request must have come.
    """

    def __init__(
        self, listener: socket.socket, make: Callable[[Acceptor], Connection], most: int | None,
        head_timeout: float,
    ) -> None:  # fmt: skip
        self._loop = asyncio.get_running_loop()
        self._listener, self._make = listener, make
        self._most = most_connections() if most is None else most
        self._head_timeout = head_timeout
        self._open: set[Connection] = set()
        # Since when each head is awaited, the oldest first: by those never answered, by others.
        self._awaited: tuple[dict[Connection, float], ...] = {}, {}
        self._is_paused, self._last_said = False, 0.0
        self._refused = 0  # connections since then
        listener.setblocking(False)
        self._loop.add_reader(listener.fileno(), self._accept)
        self._timer = self._loop.call_later(PAUSE, self._look)

    def close(self) -> None:
        """Take no more connections."""
        self._timer.cancel()
        self._is_paused = False
        self._loop.remove_reader(self._listener.fileno())

    async def wait_closed(self) -> None:
        """Nothing is left to wait for: uvicorn waits for the connections itself."""

    def note(self, connection: Connection, awaits_head: bool) -> None:
        """Note whether a connection is yet to send the head of a request."""
        known = self._awaited[connection.cycle is not None]
        if awaits_head and connection in self._open:
            known.setdefault(connection, time.monotonic())
        else:
            self._settle(connection)

    def forget(self, connection: Connection) -> None:
        """A connection has ended."""
        self._open.discard(connection)
        self._settle(connection)
        self._resume()

    def _settle(self, connection: Connection) -> None:
        for awaited in self._awaited:
            awaited.pop(connection, None)

    def _accept(self) -> None:
        for _ in range(MOST_AT_ONCE):
            if len(self._open) >= self._most and not self._make_room():
                self._pause(f"{self._most} connections are at work, and more have to wait")
                return
            try:
                accepted, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # no file, or no memory
                if not self._make_room():
                    self._pause(f"no connection can be taken: {error.strerror}")
                return
            accepted.setblocking(False)
            connection = self._make(self)
            self._open.add(connection)
            self._loop.create_task(self._begin(connection, accepted))

    async def _begin(self, connection: Connection, accepted: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: connection, accepted)
        except OSError:  # the client has left
            self.forget(connection)
            accepted.close()

    def _make_room(self) -> bool:
        """Refuse the connection whose head has been awaited the longest, of those never answered if
        there are any; False if no head is awaited."""
        awaited = next(filter(None, self._awaited), None)
        if awaited is None:
            return False
        self._refused += 1
        next(iter(awaited)).refuse()
        self._tell()
        return True

    def _pause(self, why: str) -> None:
        self._is_paused = True
        self._loop.remove_reader(self._listener.fileno())
        self._say(why)

    def _resume(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self._loop.add_reader(self._listener.fileno(), self._accept)

    def _look(self) -> None:
        """Refuse what is late, and go on after a pause."""
        latest = time.monotonic() - self._head_timeout
        for awaited in self._awaited:
            late = [x for x, since in awaited.items() if since <= latest and not x.has_more]
            for connection in late:
                self._refused += connection.has_begun
                connection.refuse()
        self._tell()
        self._resume()
        self._timer = self._loop.call_later(PAUSE, self._look)

    def _tell(self) -> None:
        if self._refused:
            self._say(f"connections closed before the head of a request had come: {self._refused}")

    def _say(self, message: str) -> None:
        """Log a line, if the last one is a second old."""
        now = time.monotonic()
        if now - self._last_said >= 1.0:
            log.warning(message)
            self._last_said, self._refused = now, 0


def most_connections() -> int:
    """How many connections the limit of open files leaves room for."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return MOST_CONNECTIONS
    in_use = len(os.listdir("/proc/self/fd"))
    return max(1, min(MOST_CONNECTIONS, limit - in_use - SPARE_FILES))
