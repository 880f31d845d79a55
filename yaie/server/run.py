"""`yaie serve`: load a model and answer until the process is told to end."""

import asyncio
import gc
import ipaddress
import logging
import signal
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import uvicorn

from yaie.engine.config import EngineConfig
from yaie.engine.threads import return_freed_memory
from yaie.model.pull import find_model
from yaie.model.tokenizer import Tokenizer
from yaie.server.app import Settings, build_app
from yaie.server.connection import Acceptor, Connection
from yaie.server.guards import Gate, access_log
from yaie.server.metrics import Metrics
from yaie.server.wire import STOPPED, EngineProcess
from yaie.server.worker import PATIENCE, Worker

LAST_WORDS = 5.0  # seconds in which /health says that the engine has ended, before the server ends


def serve(
    model: str, settings: Settings, config: EngineConfig | None = None, *, host: str = "127.0.0.1",
    port: int = 8000, shutdown_timeout: int = 30, exercises: bool | Sequence[str] | None = None,
    restart: bool = False,
) -> None:  # fmt: skip
    """Run the server until SIGINT or SIGTERM; then finish what is under way.

    Args:
        model, exercises: as for `LLM`.
        settings: on a loopback address only its own names, and `allowed_hosts`, may be called.
        host, port: where to listen; port 0 takes a free one.
        shutdown_timeout: seconds that answers under way may still take. What is not answered then,
            or at a second SIGINT, ends with an error.
        restart: start the engine's process again if it ends. Otherwise the server ends soon after.

    Raises RuntimeError if the port is taken, if the engine's process has ended and is not started
    again, and as `start_engine`.
    """
    if is_loopback(host):
        names = ("localhost", "127.0.0.1", "[::1]", _bracketed(host))
        allowed = (*names, *(settings.allowed_hosts or ()))
        settings = replace(settings, allowed_hosts=allowed)
    listener = bind(host, port)  # before the model is loaded, which takes longer
    start = partial(EngineProcess, model, EngineConfig() if config is None else config, exercises)
    with listener:
        begun = time.perf_counter()
        engine = start()
        try:
            ready = engine.wait()
            tokenizer = Tokenizer(find_model(model))
        except BaseException:
            engine.end(0.0)
            raise
        address = f"http://{_bracketed(host)}:{listener.getsockname()[1]}"
        if settings.access_log:
            handler = logging.StreamHandler()
            handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
            access_log.addHandler(handler)
            access_log.setLevel(logging.INFO)
            access_log.propagate = False
        metrics = Metrics(settings.model_name)
        worker = Worker(engine, ready, settings.max_queued, metrics, start if restart else None)
        app = build_app(worker, tokenizer, settings)

        def greet() -> None:
            print(f"{ready.about}\nready after {time.perf_counter() - begun:.1f} s")
            for line in welcome(address, settings, is_loopback(host)):
                print(line, flush=True)

        server = Server(app, shutdown_timeout, greet)
        for number in (signal.SIGINT, signal.SIGTERM):
            # uvicorn has handlers of its own while it runs, and raises again what these have heard.
            signal.signal(number, server.handle_exit)
        gc.freeze()  # the collector skips what exists now
        gc.set_threshold(20_000)  # and runs rarely: requests are freed without it
        return_freed_memory(libraries=True)
        try:
            server.run(sockets=[listener])
        finally:
            worker.engine.end(0.0)
        print("stopped", flush=True)
        if worker.why_ended:
            raise RuntimeError(f"{STOPPED}: {worker.why_ended}")


class Server(uvicorn.Server):
    """uvicorn, but answers that are late at the end get an error instead of a traceback.

    At the end, answers may take `patience` seconds more; `greet` is called when it serves.
    """

    def __init__(self, app: Gate, patience: int, greet: Callable[[], None] = lambda: None) -> None:
        config = uvicorn.Config(
            app, http="httptools", ws="none", log_level="warning", access_log=False,
            timeout_graceful_shutdown=patience + int(PATIENCE),  # for clients that do not read
        )  # fmt: skip
        super().__init__(config)
        logging.getLogger("uvicorn.error").addFilter(is_no_cancellation)
        self.worker, self.settings = app.worker, app.settings
        self.patience, self.greet = patience, greet

    async def startup(self, sockets: list[socket.socket]) -> None:
        """As uvicorn's, which waits for the worker. Raises RuntimeError if that has failed."""
        await super().startup([])
        about = {"server_state": self.server_state, "app_state": self.lifespan.state}
        make = partial(Connection, self.worker.catch_up, config=self.config, **about)
        limits = self.settings.max_connections, self.settings.head_timeout
        self.servers = [Acceptor(listener, make, *limits) for listener in sockets]
        self._end = asyncio.ensure_future(self._end_after_engine())
        if not self.should_exit:
            self.greet()

    async def _end_after_engine(self) -> None:
        await self.worker.ended.wait()
        await asyncio.sleep(LAST_WORDS)
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's, which waits for the calls under way; it prints how many."""
        if (calls := len(self.server_state.tasks)) and not self.force_exit:
            rest = f"(under way: {calls}; Ctrl-C now breaks off)"
            print(f"ending when all is answered, or after {self.patience} s {rest}", flush=True)
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
    """Whether a log record is not about a cancelled answer, whose client left or is slow."""
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
