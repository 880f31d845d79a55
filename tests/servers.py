"""A server on a port of its own, for tests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx

from yaie.engine.llm import LLM
from yaie.server.app import Settings, build_app
from yaie.server.run import Server, bind
from yaie.server.worker import Worker


@dataclass
class Running:
    """A server that runs in a thread of the test."""

    url: str
    llm: LLM
    worker: Worker
    server: Server

    def client(self, **options) -> httpx.Client:
        """An HTTP client; its requests time out rather than hang the test."""
        return httpx.Client(base_url=self.url, timeout=60, trust_env=False, **options)

    def wait_until_idle(self) -> None:
        """Wait for every request to end, also of clients that left."""
        wait_until(lambda: not self.worker.num_requests and not self.llm.engine.requests)

    def hold(self, until: Callable[[], bool]) -> None:
        """Let no step begin before something is so."""
        step = self.llm.engine.step

        def held():
            wait_until(until)
            return step()

        self.llm.engine.step = held


def wait_until(is_so: Callable[[], bool], seconds: float = 60) -> None:
    """Wait, but rather fail than hang."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.005)


@contextmanager
def serving(llm: LLM, **settings) -> Iterator[Running]:
    """Serve a model under the name "tiny" on a free port of this machine."""
    app = build_app(llm.engine, Settings("tiny", **settings))
    listener = bind("127.0.0.1", 0)
    server = Server(app, app.state.worker, patience=60)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the server ended before it began"
        time.sleep(0.01)
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    try:
        yield Running(address, llm, app.state.worker, server)
    finally:
        server.should_exit = True
        thread.join(timeout=60)
        assert not thread.is_alive(), "the server does not end"
