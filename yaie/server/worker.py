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
import traceback
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from functools import partial
from queue import SimpleQueue

from yaie.engine.device import still_works
from yaie.engine.engine import Engine
from yaie.engine.request import Metrics as RequestMetrics
from yaie.engine.request import RequestOutput
from yaie.engine.sampling import SamplingParams
from yaie.server.metrics import Metrics

PATIENCE = 5.0  # seconds for the last step to end
LATE = "the server is shutting down"
STOPPED = "the engine has stopped"

log = logging.getLogger("yaie.server")


class QueueFull(RuntimeError):
    """As many requests are under way as the server takes."""


class Stopping(RuntimeError):
    """The server takes no more requests: it is about to end, or its engine has stopped."""


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

    Attributes:
        why_ended: the error that stopped the engine, if one did, in a line.
        late: set when the server no longer waits for what is under way.
    """

    def __init__(self, engine: Engine, max_queued: int, metrics: Metrics) -> None:
        self.engine = engine
        self.max_requests = engine.scheduler.max_num_seqs + max_queued
        self.metrics = metrics
        self._jobs: dict[str, tuple[Job, int]] = {}
        self._commands: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._open: set[str] = set()  # requests that the engine has not finished; the thread's
        self._begun = asyncio.Event()
        self._ended = asyncio.Event()
        self.late = asyncio.Event()
        self.why_ended = ""
        self._next_id = 0
        self._stopping = False

    @property
    def num_requests(self) -> int:
        """How many requests are under way."""
        return len(self._jobs)

    @property
    def is_alive(self) -> bool:
        """Whether the engine can answer: it has not stopped, nor been left behind in a step."""
        return not self._ended.is_set()

    async def start(self) -> None:
        """Start the engine's thread, and wait until it has done what `call` asked of it, or has
        failed. Results go to the event loop that runs now."""
        self._loop = asyncio.get_running_loop()
        self.call(partial(self._tell_loop, self._begun.set))
        self._thread.start()
        await self._begun.wait()

    def submit(
        self, requests: Sequence[tuple[Sequence[int], SamplingParams]], namespace: str = ""
    ) -> Job:
        """Queue requests, all of them or none.

        Args:
            requests: (prompt, parameters), which the engine has checked.
            namespace: requests of different namespaces share no cached prefix.

        Raises:
            ValueError: they are more than the server ever takes at once.
            QueueFull, Stopping: see there.
        """
        if self._stopping:
            raise Stopping(LATE)
        if not self.is_alive:
            raise Stopping(f"{STOPPED}: the server's log says why")
        if len(requests) > self.max_requests:
            raise ValueError(f"one call may ask for {self.max_requests} answers, not more")
        if self.num_requests + len(requests) > self.max_requests:
            self.metrics.refused.inc(len(requests))
            raise QueueFull(
                f"{self.num_requests} requests are under way and {len(requests)} came, "
                f"{self.max_requests} are the most: try again later"
            )
        job = Job([self._new_id() for _ in requests])
        arrived = time.perf_counter()
        for index, (prompt, params) in enumerate(requests):
            request_id = job.request_ids[index]
            self._jobs[request_id] = (job, index)
            self._commands.put(partial(self._add, request_id, prompt, params, namespace, arrived))
        return job

    def abort(self, job: Job) -> None:
        """End what is left of a job and free its blocks."""
        for request_id in job.request_ids:
            if self._jobs.pop(request_id, None):
                self._commands.put(partial(self._abort, request_id))

    def call(self, function: Callable[[], None]) -> None:
        """Have the engine's thread call a function, before any request that comes later."""
        self._commands.put(function)

    async def stop(self) -> None:
        """End the engine's thread after its current step, and every request with it.

        A step that has not ended after `PATIENCE` seconds is left behind: nothing can end the
        thread that computes it but the end of the process.
        """
        self._stopping = True
        self._commands.put(None)
        try:
            await asyncio.wait_for(self._ended.wait(), PATIENCE)
        except asyncio.TimeoutError:
            log.error("a step of the engine does not end: it is left behind")
            self._close()

    def give_up(self) -> None:
        """Answer all that is under way with an error."""
        self.late.set()
        self._end_all(LATE)

    def _end_all(self, message: str) -> None:
        outputs = [_failure(request_id, message) for request_id in self._jobs]
        self.metrics.observe_step(outputs)
        self._publish(outputs)

    def join(self, seconds: float) -> bool:
        """Wait for the engine's thread, and return whether it has ended."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

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

    def _close(self) -> None:
        """The engine's thread has ended, or does not end. Also a request that came too late for the
        engine to know it hears of that."""
        self._ended.set()
        self._begun.set()
        self._end_all(STOPPED)

    # ------------------------------------------------------------------------ the thread

    def _run(self) -> None:
        try:
            while self._obey():
                if self.engine.has_work:
                    self._step()
        except BaseException as error:  # also a learner's exit(), which would say nothing
            log.exception(STOPPED)
            self.why_ended = "".join(traceback.format_exception_only(error)).split("\n")[0]
        finally:
            for request_id in list(self._open):
                self._end(request_id)
            self._tell_loop(self._close)

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
            no_one_asked = not self._open
            self._tell(self.engine.take_outputs())  # known before it failed
            if no_one_asked or not self._can_go_on():  # it would fail again and again
                raise
            # Whatever a kernel raised, its requests end with it, and the next ones are served.
            log.exception("a step of the engine failed")
            self._fail(error, list(self._open))
        else:
            self._tell(outputs)

    def _can_go_on(self) -> bool:
        """After an error: whether another step may succeed."""
        return self.engine.is_usable and still_works(self.engine.device)

    def _add(
        self,
        request_id: str,
        prompt: Sequence[int],
        params: SamplingParams,
        namespace: str,
        arrived: float,
    ) -> None:
        self._open.add(request_id)
        try:
            self.engine.add_request(prompt, params, request_id, namespace)
            self.engine.requests[request_id].metrics.arrival_time = arrived
        except Exception as error:
            if not self._can_go_on():
                raise
            log.exception("a request could not be added")
            self._fail(error, [request_id])

    def _abort(self, request_id: str) -> None:
        if output := self._end(request_id):
            self.metrics.observe_end(output, "abort")

    def _end(self, request_id: str) -> RequestOutput | None:
        """End a request; return what it has, or None if the engine does not know it any more."""
        self._open.discard(request_id)
        try:
            return self.engine.abort(request_id)
        except Exception:
            log.exception("a request could not be ended")
            return None

    def _fail(self, error: Exception, request_ids: Sequence[str]) -> None:
        """End requests with an error."""
        outputs = []
        for request_id in request_ids:
            message = f"the engine failed: {type(error).__name__}"
            outputs.append(_failure(request_id, message, self._end(request_id)))
        self._tell(outputs)

    def _tell(self, outputs: list[RequestOutput]) -> None:
        """Hand out what requests have so far."""
        self._open -= {output.request_id for output in outputs if output.finish_reason}
        self.metrics.observe_step(outputs)
        self._tell_loop(self._publish, outputs)

    def _tell_loop(self, function: Callable[..., None], *arguments: list[RequestOutput]) -> None:
        """Have the event loop call a function."""
        with suppress(RuntimeError):  # the loop has ended: nobody listens any more
            self._loop.call_soon_threadsafe(function, *arguments)


def _failure(request_id: str, message: str, output: RequestOutput | None = None) -> RequestOutput:
    """The end of a request with an error, given what it had if that is known."""
    output = output or RequestOutput(request_id, [], [], "", None, RequestMetrics())
    output.finish_reason, output.error = "error", message
    return output
