"""How the server takes connections and receives bytes.

Clients that connect and say nothing, or send half of a request's head, cost a file each. So heads
have a deadline, connections a limit, and where the limit is reached the connection that has owed a
head the longest makes room for a new one: what floods the server delays no other client.
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
from collections.abc import Callable
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from yaie.server.errors import ApiError

MOST_CONNECTIONS = 4096
SPARE_FILES = 64  # for everything that is opened while the server runs
MOST_AT_ONCE = 32  # connections taken before others are served
PAUSE = 1.0  # seconds until the deadlines, and a limit that was reached, are looked at again

log = logging.getLogger("yaie.server.connection")


class Connection(H11Protocol):
    """uvicorn's connection, which calls `catch_up` before it reads, and tells its acceptor whether
    it awaits the head of a request. A request finds `write_piece` in the state of its scope."""

    def __init__(self, catch_up: Callable[[], None], acceptor: Acceptor, **options: Any) -> None:
        super().__init__(**options)
        self._acceptor, self._catch_up = acceptor, catch_up
        self.app_state = self.app_state | {"write_piece": self.write_piece}

    def write_piece(self, make: Callable[[], str]) -> bool:
        """Write what `make` returns, in ASCII, as a chunk of the body, or return False if that has
        to wait. Through ASGI and h11 a piece needs a task and takes several times as long."""
        if self.flow.write_paused or self.transport.is_closing():
            return False
        if piece := make():
            self.transport.write(f"{len(piece):x}\r\n{piece}\r\n".encode("ascii"))
        return True

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Await the head of the first request."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Pass the data on, and note whether they complete the head."""
        self._catch_up()
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """Await the head of the next request."""
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Make room for another."""
        super().connection_lost(exc)
        self._acceptor.forget(self)

    def _watch(self) -> None:
        self._acceptor.note(self, owes_head=self.conn.their_state is h11.IDLE)

    def refuse(self) -> None:
        """Close the connection, since its head is late or another needs the place."""
        self._acceptor.forget(self)
        if self.conn.trailing_data[0]:
            error = ApiError(408, "the head of the request is late", code="request_timeout")
            body = json.dumps(error.body).encode()
            head = "HTTP/1.1 408 Request Timeout\r\nContent-Type: application/json\r\n"
            head += f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            self.transport.write(head.encode() + body)
        self.transport.close()

    def timeout_keep_alive_handler(self) -> None:
        """Close the idle connection, unless a request has yet to be read."""
        if not self.has_more:
            super().timeout_keep_alive_handler()

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

    def _unsupported_upgrade_warning(self) -> None:
        """Log nothing when a client asks for a websocket; uvicorn would log what to install."""


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
        # Which owe a head since when, the longest first: those never answered, and the others.
        self._owing: tuple[dict[Connection, float], ...] = {}, {}
        self._is_paused = False
        self._last_said = 0.0
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

    def note(self, connection: Connection, owes_head: bool) -> None:
        """Note whether a connection is yet to send the head of a request."""
        known = self._owing[connection.cycle is not None]
        if owes_head and connection in self._open:
            known.setdefault(connection, time.monotonic())
        else:
            self._settle(connection)

    def forget(self, connection: Connection) -> None:
        """A connection has ended."""
        self._open.discard(connection)
        self._settle(connection)
        self._resume()

    def _settle(self, connection: Connection) -> None:
        for owing in self._owing:
            owing.pop(connection, None)

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
        """Refuse the connection that has owed a head the longest, of those never answered if there
        are any; False if none owes one."""
        owing = next(filter(None, self._owing), None)
        if owing is None:
            return False
        self._refused += 1
        next(iter(owing)).refuse()
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
        for owing in self._owing:
            late = [x for x, since in owing.items() if since <= latest and not x.has_more]
            for connection in late:
                self._refused += bool(connection.conn.trailing_data[0])
                connection.refuse()
        self._tell()
        self._resume()
        self._timer = self._loop.call_later(PAUSE, self._look)

    def _tell(self) -> None:
        if self._refused:
            self._say(f"connections closed that owed the head of a request: {self._refused}")

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


_last_said: dict[str, float] = {}


def is_new(record: logging.LogRecord) -> bool:
    """Whether a log record is no warning of the last second: a client could fill a disk."""
    now, last = time.monotonic(), _last_said.get(record.msg, 0.0)
    if has_passed := now - last >= 1.0:
        _last_said[record.msg] = now
    return has_passed or record.levelno != logging.WARNING
