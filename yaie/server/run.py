"""`yaie serve`: load a model and answer until the process is told to end."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import torch
import uvicorn
from fastapi import FastAPI

from yaie.engine.config import EngineConfig
from yaie.engine.start import start_engine
from yaie.server.app import Settings, build_app
from yaie.server.connection import ONCE_PER_SECOND, Acceptor, Connection
from yaie.server.identify import access_log
from yaie.server.worker import PATIENCE, STOPPED, Worker


def serve(
    model: str,
    settings: Settings,
    config: EngineConfig | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    shutdown_timeout: int = 30,
    exercises: bool | Sequence[str] | None = None,
) -> None:
    """Run the server until SIGINT or SIGTERM; then finish what is under way.

    Args:
        model, exercises: as for `LLM`.
        settings: on a loopback address only its own names, and `allowed_hosts`, may be called.
        host, port: where to listen; port 0 takes a free one.
        shutdown_timeout: seconds that answers under way may still take. What is not answered then,
            or at a second SIGINT, ends with an error.

    Raises RuntimeError if the port is taken, or if the engine failed while it was prepared.
    """
    if is_loopback(host):
        names = ("localhost", "127.0.0.1", "[::1]", _bracketed(host))
        allowed = (*names, *(settings.allowed_hosts or ()))
        settings = replace(settings, allowed_hosts=allowed)
    listener = bind(host, port)  # before the model is loaded, which takes longer
    with listener:
        started = time.perf_counter()
        print(f"loading {model} ...", flush=True)
        threads = torch.get_num_threads()
        # OpenMP gives each thread that computes in parallel helper threads of its own, and more of
        # them than processors halve the speed: so only the engine's thread gets helpers.
        torch.set_num_threads(1)
        config = EngineConfig() if config is None else config
        engine = start_engine(model, config, exercises)
        address = f"http://{_bracketed(host)}:{listener.getsockname()[1]}"
        if settings.access_log:
            handler = logging.StreamHandler()
            handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
            access_log.addHandler(handler)
            access_log.setLevel(logging.INFO)
            access_log.propagate = False
        app = build_app(engine, settings)
        worker = app.state.worker
        threads //= config.tensor_parallel_size  # every rank has an equal share of them
        worker.call(partial(torch.set_num_threads, max(1, threads)))
        worker.call(engine.runner.warm)

        def greet() -> None:
            print(f"operators: {engine.back_ends}")
            print(f"ready after {time.perf_counter() - started:.1f} s")
            for line in welcome(address, settings, is_loopback(host)):
                print(line, flush=True)

        server = Server(app, worker, shutdown_timeout, greet)
        for number in (signal.SIGINT, signal.SIGTERM):
            # uvicorn has handlers of its own while it runs, and raises again what these have heard.
            signal.signal(number, server.handle_exit)
        server.run(sockets=[listener])
        has_ended = worker.join(1.0)
        engine.close()
        print("stopped", flush=True)
        if not has_ended:  # Python would crash, ending under a thread that computes
            os._exit(1)


class Server(uvicorn.Server):
    """uvicorn, but answers that are late at the end get an error instead of a traceback.

    At the end, answers may take `patience` seconds more; `greet` is called when it serves.
    """

    def __init__(
        self,
        app: FastAPI,
        worker: Worker,
        patience: int,
        greet: Callable[[], None] = lambda: None,
    ) -> None:
        config = uvicorn.Config(
            app,
            http="h11",
            ws="none",
            log_level="warning",
            timeout_graceful_shutdown=patience + int(PATIENCE),  # for clients that do not read
            h11_max_incomplete_event_size=64 * 1024,
        )
        super().__init__(config)
        logger = logging.getLogger("uvicorn.error")
        logger.addFilter(is_no_cancellation)
        logger.addFilter(ONCE_PER_SECOND)
        self.worker, self.settings = worker, app.state.settings
        self.patience = patience
        self.greet = greet

    def _connection(self, acceptor: Acceptor) -> Connection:
        state = self.lifespan.state
        return Connection(
            acceptor, config=self.config, server_state=self.server_state, app_state=state
        )

    async def startup(self, sockets: list[socket.socket]) -> None:
        """As uvicorn's, which waits for the worker. Raises RuntimeError if that has failed."""
        await super().startup([])
        limits = self.settings.max_connections, self.settings.head_timeout
        self.servers = [Acceptor(listener, self._connection, *limits) for listener in sockets]
        if not self.worker.is_alive:
            raise RuntimeError(f"{STOPPED}: {self.worker.why_ended}")
        if not self.should_exit:
            self.greet()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's, which waits for the calls under way; it prints how many."""
        if (calls := len(self.server_state.tasks)) and not self.force_exit:
            print(
                f"ending when all is answered, or after {self.patience} s "
                f"(under way: {calls}; Ctrl-C now breaks off)",
                flush=True,
            )
        asyncio.get_running_loop().call_later(self.patience, self._break_off)
        await super().shutdown(sockets)
        if self.force_exit:  # by a second Ctrl-C: uvicorn would cancel what is left
            self._break_off()
            if self.server_state.tasks:
                await asyncio.wait(self.server_state.tasks, timeout=1.0)
            await self.lifespan.shutdown()

    def _break_off(self) -> None:
        if requests := self.worker.num_requests:
            print(f"broken off: {requests} that had no whole answer yet", flush=True)
        self.worker.give_up()


def is_no_cancellation(record: logging.LogRecord) -> bool:
    """Whether a log record is about anything but an answer that was cancelled at the end, because
    its client does not read."""
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens; clients that connect wait until the server runs. Raises RuntimeError
    that says why the port cannot be had."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # asyncio switches delayed sending (Nagle's algorithm) off only for sockets created for TCP.
        # Others keep a body back until its head is acknowledged, which a client may delay 40 ms.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(1024)
    except OSError as error:
        raise RuntimeError(
            f"cannot listen on {host} port {port} ({error.strerror}): "
            "choose another with --port, or 0 for any that is free"
        ) from error
    return listener


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host name."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def welcome(address: str, settings: Settings, only_here: bool) -> list[str]:
    """What to print when the server is up."""
    key = '-H "Authorization: Bearer $YAIE_API_KEY" ' if settings.api_key else ""
    body = (
        f'{{"model": "{settings.model_name}", "max_tokens": 32, "temperature": 0, '
        '"messages": [{"role": "user", "content": "Name three colors."}]}'
    )
    lines = [
        f"serving {settings.model_name} at {address}/v1   (Ctrl-C ends it)",
        f"curl -s {address}/v1/chat/completions {key}"
        f"-H 'Content-Type: application/json' -d '{body}'",
    ]
    if not only_here and not settings.api_key:
        lines.append(
            "every client that reaches this machine can use it: --api-key-file demands a key"
        )
    if not settings.allowed_hosts:
        lines.append("the Host header is not checked: --allowed-host names those to accept")
    return lines


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
