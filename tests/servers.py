"""A server on a port of its own, for tests."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
import uvicorn

from yaie.engine.llm import LLM
from yaie.server.app import Settings, build_app
from yaie.server.worker import Worker


@dataclass
class Running:
    """A server that runs in a thread of the test."""

    url: str
    llm: LLM
    worker: Worker
    server: uvicorn.Server

    def client(self, **options) -> httpx.Client:
        """An HTTP client; its requests time out rather than hang the test."""
        return httpx.Client(base_url=self.url, timeout=60, trust_env=False, **options)

    def wait_until_idle(self, seconds: float = 30) -> None:
        """Wait for every request to end, also of clients that left."""
        for _ in range(int(seconds / 0.01)):
            if not self.worker.num_requests and not self.llm.engine.requests:
                return
            time.sleep(0.01)
        raise AssertionError(f"{self.llm.engine.requests} are still under way")


@contextmanager
def serving(llm: LLM, **settings) -> Iterator[Running]:
    """Serve a model under the name "tiny" on a free port of this machine."""
    app = build_app(llm.engine, Settings("tiny", **settings))
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
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
