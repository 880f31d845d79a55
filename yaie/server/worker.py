"""The engine in a thread of its own, seen from asyncio.

Only that thread touches the engine. The event loop puts commands into its queue; results come back
as snapshots, of which a reader who is slow sees only the latest. So nobody waits for a client that
does not read, and nothing piles up for it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from queue import SimpleQueue

from yaie.engine.engine import Engine
from yaie.engine.request import RequestOutput
from yaie.sampling import SamplingParams
from yaie.server.metrics import Metrics

log = logging.getLogger("yaie.server")


class QueueFull(RuntimeError):
    """As many requests are under way as the server takes."""


class Stopping(RuntimeError):
    """The server takes no more requests, since it is about to end."""


class Job:
    """The requests of one HTTP call, numbered from 0."""

    def __init__(self, request_ids: list[str]) -> None:
        self.request_ids = request_ids
        self._latest: dict[int, RequestOutput] = {}
        self._changed = asyncio.Event()

    def publish(self, index: int, output: RequestOutput) -> None:
        """Note what a request has so far."""
        self._latest[index] = output
        self._changed.set()

    async def updates(self) -> AsyncIterator[tuple[int, RequestOutput]]:
        """(number of the request, all it has so far), until each has its finish_reason."""
        unfinished = len(self.request_ids)
        while unfinished:
            await self._changed.wait()
            self._changed.clear()
            latest, self._latest = self._latest, {}
            for index, output in latest.items():
                unfinished -= output.finish_reason is not None
                yield index, output


class Worker:
    """Feeds an engine and hands out what it generates. All methods belong to the event loop.

    Args:
        engine: nobody else may use it from now on.
        max_queued: requests that may wait beside the `max_num_seqs` that run.
        metrics: what to count with.
    """

    def __init__(self, engine: Engine, max_queued: int, metrics: Metrics) -> None:
        self.engine = engine
        self.max_requests = engine.scheduler.max_num_seqs + max_queued
        self.metrics = metrics
        self._jobs: dict[str, tuple[Job, int]] = {}
        self._commands: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._next_id = 0
        self._stopping = False

    @property
    def num_requests(self) -> int:
        """How many requests are under way."""
        return len(self._jobs)

    @property
    def is_alive(self) -> bool:
        """Whether the engine's thread runs."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Start the engine's thread; results go to the event loop that runs now."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def submit(
        self, requests: Sequence[tuple[Sequence[int], SamplingParams]], namespace: str = ""
    ) -> Job:
        """Queue requests, all of them or none.

        Args:
            requests: (prompt, parameters), which the engine has checked.
            namespace: requests of different namespaces share no cached prefix.

        Raises:
            QueueFull, Stopping: see there.
        """
        if self._stopping or not self.is_alive:
            raise Stopping("the server is shutting down")
        if self.num_requests + len(requests) > self.max_requests:
            self.metrics.refused.inc(len(requests))
            raise QueueFull(
                f"{self.num_requests} requests are under way and {len(requests)} came, "
                f"{self.max_requests} are the most: try again later"
            )
        job = Job([self._new_id() for _ in requests])
        for index, (prompt, params) in enumerate(requests):
            request_id = job.request_ids[index]
            self._jobs[request_id] = (job, index)
            self._commands.put(self._adding(request_id, prompt, params, namespace))
        return job

    def abort(self, job: Job) -> None:
        """End what is left of a job and free its blocks."""
        for request_id in job.request_ids:
            if self._jobs.pop(request_id, None):
                self._commands.put(lambda request_id=request_id: self._aborting(request_id))

    async def stop(self) -> None:
        """End the engine's thread after its current step, and every request with it."""
        self._stopping = True
        self._commands.put(None)
        await asyncio.to_thread(self._thread.join)

    def _new_id(self) -> str:
        self._next_id += 1
        return f"request-{self._next_id}"

    def _publish(self, outputs: list[RequestOutput]) -> None:
        for output in outputs:
            job, index = self._jobs.get(output.request_id, (None, 0))
            if job is None:  # aborted meanwhile
                continue
            if output.finish_reason is not None:
                del self._jobs[output.request_id]
            job.publish(index, output)

    # ------------------------------------------------------------------------ the thread

    def _run(self) -> None:
        while self._obey():
            if self.engine.has_work:
                self._step()
        for request_id in list(self.engine.requests):
            self.engine.abort(request_id)

    def _obey(self) -> bool:
        """Carry out commands; without other work, wait for one. False: the thread is to end."""
        while not self.engine.has_work or not self._commands.empty():
            command = self._commands.get()
            if command is None:
                return False
            command()
        return True

    def _step(self) -> None:
        try:
            outputs = self.engine.step()
        except Exception as error:
            # Whatever a kernel raised, its requests end with it, and the next ones are served.
            log.exception("a step of the engine failed")
            outputs = [self._failed(id_, error) for id_ in list(self.engine.requests)]
        self.metrics.observe_step(outputs)
        self._deliver(outputs)

    def _failed(self, request_id: str, error: Exception) -> RequestOutput:
        output = self.engine.abort(request_id)
        output.finish_reason = "error"
        output.error = f"the engine failed: {type(error).__name__}"
        return output

    def _deliver(self, outputs: list[RequestOutput]) -> None:
        with suppress(RuntimeError):  # the loop has ended: nobody listens any more
            self._loop.call_soon_threadsafe(self._publish, outputs)

    def _adding(
        self, request_id: str, prompt: Sequence[int], params: SamplingParams, namespace: str
    ) -> Callable[[], None]:
        arrived = time.perf_counter()

        def add() -> None:
            self.engine.add_request(prompt, params, request_id, namespace)
            self.engine.requests[request_id].metrics.arrival_time = arrived

        return add

    def _aborting(self, request_id: str) -> None:
        if output := self.engine.abort(request_id):
            self.metrics.observe_end(output, "abort")
