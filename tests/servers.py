"""A server on a port of its own, for tests."""

import asyncio
import json
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import Pipe

import httpx

from yaie.engine.engine import Engine
from yaie.engine.llm import LLM
from yaie.engine.params import SamplingParams
from yaie.engine.sending import as_socket
from yaie.server.app import Settings, build_app
from yaie.server.guards import Gate
from yaie.server.loop import Loop
from yaie.server.metrics import Metrics
from yaie.server.run import Server, bind
from yaie.server.wire import EngineProcess
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


class EngineThread:
    """In place of an `EngineProcess`: the same loop and the same messages, in a thread, so that a
    test can look into the engine."""

    wait, hang_up = EngineProcess.wait, EngineProcess.hang_up

    def __init__(self, engine: Engine) -> None:
        self.pipe, self._theirs = Pipe()
        self._loop = Loop(self._theirs)
        threading.Thread(target=self._loop.listen, daemon=True).start()
        self._thread = threading.Thread(target=self._run, args=[engine], daemon=True)
        self._thread.start()

    def _run(self, engine: Engine) -> None:
        try:
            self._loop.prepare(engine)
            self._loop.run()
        except BaseException as error:
            self._loop.tell(error)
        finally:
            with as_socket(self._theirs) as end:
                end.shutdown(socket.SHUT_RDWR)
            self._theirs.close()

    def ended(self) -> str:
        """As `EngineProcess.ended`."""
        return "The thread ended."

    def end(self, seconds: float) -> None:
        """As `EngineProcess.end`, but no thread can be killed."""
        self.hang_up()
        self._thread.join(seconds)

    def join(self, seconds: float) -> bool:
        """Wait for the thread, and return whether it has ended."""
        self._thread.join(seconds)
        return not self._thread.is_alive()


def app_of(llm: LLM, **settings) -> Gate:
    """The application of a server whose engine is a thread."""
    engine = EngineThread(llm.engine)
    given = Settings("tiny", **settings)
    worker = Worker(engine, engine.wait(), given.max_queued, Metrics("tiny"))
    return build_app(worker, llm.tokenizer, given)


@contextmanager
def serving(llm: LLM, **settings) -> Iterator[Running]:
    """Serve a model under the name "tiny" on a free port of this machine."""
    app = app_of(llm, **settings)
    listener = bind("127.0.0.1", 0)
    server = Server(app, patience=60)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the server ended before it began"
        time.sleep(0.01)
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    try:
        yield Running(address, llm, app.worker, server)
    finally:
        server.should_exit = True
        thread.join(timeout=60)
        assert not thread.is_alive(), "the server does not end"


ASKED = {"temperature": 0.9, "max_tokens": 6, "seed": 1}


def wanted_answers(llm: LLM) -> dict[str, str]:
    """Prompts, and what an engine answers to each."""
    prompts = [f"{i} " + "Once upon a time there was a small engine. "[: i % 40] for i in range(97)]
    outputs = llm.generate(prompts, SamplingParams(**ASKED))
    want = {prompt: output.text for prompt, output in zip(prompts, outputs, strict=True)}
    assert len(set(want.values())) > 50  # so that a mix-up would show
    return want


def ask_many(url: str, want: dict[str, str], number: int, model: str = "tiny") -> list[bool]:
    """Send requests by 64 connections, a tenth of which leave early; whether each has its answer.
    An answer that is not the wanted one fails the test."""

    async def ask(http: httpx.AsyncClient, rng: random.Random, limit: asyncio.Semaphore) -> bool:
        prompt, stream, leaves = rng.choice([*want]), rng.random() < 0.5, rng.random() < 0.1
        sent = {"model": model, "prompt": prompt, "stream": stream, **ASKED}
        async with limit:
            try:
                timeout = {"timeout": rng.random() * 0.05} if leaves else {}
                answer = await http.post("/v1/completions", json=sent, **timeout)
            except httpx.TimeoutException:
                assert leaves
                return False
        assert answer.status_code == 200, answer.text
        if stream:
            events = [line[6:] for line in answer.text.splitlines() if line]
            assert events[-1] == "[DONE]"
            text = "".join(json.loads(e)["choices"][0]["text"] for e in events[:-1])
        else:
            text = answer.json()["choices"][0]["text"]
        assert text == want[prompt]
        return True

    async def main() -> list[bool]:
        rng, limit = random.Random(0), asyncio.Semaphore(64)
        limits = httpx.Limits(max_connections=64, max_keepalive_connections=32)
        options = {"base_url": url, "timeout": 120, "limits": limits, "trust_env": False}
        async with httpx.AsyncClient(**options) as http:
            return await asyncio.gather(*(ask(http, rng, limit) for _ in range(number)))

    return asyncio.run(main())
