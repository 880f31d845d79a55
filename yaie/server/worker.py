"""The engine in a thread of its own, seen from asyncio.

Only that thread runs the engine. The event loop puts commands into its queue; the thread sends back
what each step added to the requests, and a `Job` gathers that until it is read. So a client that
does not read delays only its own answer.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import traceback
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue

from yaie.engine.device import still_works
from yaie.engine.engine import Engine
from yaie.engine.logprobs import TokenLogprob
from yaie.engine.request import Request, RequestOutput, StepOutput
from yaie.server.metrics import Metrics

PATIENCE = 5.0  # seconds for the last step to end
LATE = "the server is shutting down"
STOPPED = "the engine has stopped"

log = logging.getLogger("yaie.server")


class QueueFull(RuntimeError):
    """The server takes no more requests until some are finished."""


class Stopping(RuntimeError):
    """The server takes no more requests: it is about to end, or its engine has stopped."""


@dataclass
class Update:
    """What was added to a request since the reader looked last."""

    pieces: list[str] = field(default_factory=list)
    num_tokens: int = 0
    logprobs: list[TokenLogprob] = field(default_factory=list)
    finish_reason: str | None = None
    error: str | None = None

    @property
    def text(self) -> str:
        """The new text."""
        return "".join(self.pieces)

    @property
    def has_news(self) -> bool:
        """Whether there is anything to show. A token without text waits for the next one."""
        return bool(self.pieces) or self.finish_reason is not None

    def add(self, output: StepOutput) -> None:
        """Add what another step has added."""
        if output.new_text:
            self.pieces.append(output.new_text)
        self.num_tokens += len(output.new_token_ids)
        self.logprobs.extend(output.new_logprobs)
        self.finish_reason, self.error = output.finish_reason, output.error


class Job:
    """The requests of one HTTP call, numbered from 0."""

    def __init__(self, requests: Sequence[Request]) -> None:
        self.requests = requests
        self._updates: dict[int, Update] = {}
        self._changed = asyncio.Event()

    def publish(self, index: int, output: StepOutput) -> None:
        """Note what a step added to a request."""
        self._updates.setdefault(index, Update()).add(output)
        self._changed.set()

    async def updates(self) -> AsyncIterator[tuple[int, Update]]:
        """(number of the request, what is new), until each has its finish_reason.

        A request's first token is told even if it has no text to show yet.
        """
        unfinished, begun = len(self.requests), set()
        while unfinished:
            await self._changed.wait()
            self._changed.clear()
            for index, update in list(self._updates.items()):
                if update.has_news:
                    del self._updates[index]
                    unfinished -= update.finish_reason is not None
                    yield index, update
                elif index not in begun:
                    yield index, Update()
                begun.add(index)


class Worker:
    """Feeds an engine and hands out what it generates. All methods belong to the event loop.

    Args:
        engine: only the worker may use it from now on.
        max_queued: requests that may wait in addition to the `max_num_seqs` that run.
        metrics: what to count with.

    Attributes:
        why_ended: the error that stopped the engine, in one line; empty if there was none.
        late: set when the server no longer waits for the answers under way.
    """

    def __init__(self, engine: Engine, max_queued: int, metrics: Metrics) -> None:
        self.engine = engine
        self.max_requests = engine.scheduler.max_num_seqs + max_queued
        self.metrics = metrics
        self._jobs: dict[str, tuple[Job, int]] = {}
        self._commands: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._open: dict[str, Request] = {}  # not finished by the engine; only its thread looks
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
        """Whether the engine can answer: it has not stopped, nor been abandoned in a step."""
        return not self._ended.is_set()

    async def start(self) -> None:
        """Start the engine's thread, whose results go to the event loop that runs now, and wait
        until it has done what `call` asked of it, or has failed."""
        self._loop = asyncio.get_running_loop()
        self.call(partial(self._call_in_loop, self._begun.set))
        self._thread.start()
        await self._begun.wait()

    def new_id(self, name: str = "request") -> str:
        """An id for a request that will be submitted, beginning with the HTTP request's."""
        self._next_id += 1
        return f"{name}-{self._next_id}"

    def check_capacity(self, count: int) -> None:
        """Raise QueueFull or Stopping if `count` requests cannot be taken now, and ValueError if
        they are more than the server ever takes together."""
        if self._stopping:
            raise Stopping(LATE)
        if not self.is_alive:
            raise Stopping(f"{STOPPED}: the server's log says why")
        if count > self.max_requests:
            raise ValueError(f"one call may ask for {self.max_requests} answers, not more")
        if self.num_requests + count > self.max_requests:
            self.metrics.refused.inc(count)
            raise QueueFull(
                f"{self.num_requests} requests are under way and {count} more came, "
                f"but at most {self.max_requests} are accepted: try again later"
            )

    def submit(self, requests: Sequence[Request]) -> Job:
        """Queue requests for which there is capacity, with ids from `new_id`."""
        job = Job(requests)
        for index, request in enumerate(requests):
            self._jobs[request.request_id] = (job, index)
            self._commands.put(partial(self._queue, request))
        return job

    def abort(self, job: Job) -> None:
        """End what is left of a job and free its blocks."""
        for request in job.requests:
            if self._jobs.pop(request.request_id, None):
                self._commands.put(partial(self._abort, request))

    def call(self, function: Callable[[], None]) -> None:
        """Have the engine's thread call a function, before any request that comes later."""
        self._commands.put(function)

    async def stop(self) -> None:
        """End the engine's thread after its current step, and every request with it. A step that
        has not ended after `PATIENCE` seconds is left to run until the process ends."""
        self._stopping = True
        self._commands.put(None)
        try:
            await asyncio.wait_for(self._ended.wait(), PATIENCE)
        except asyncio.TimeoutError:
            log.error("a step of the engine does not end: it is abandoned")
            self._close()

    def give_up(self) -> None:
        """End every request under way with an error."""
        self.late.set()
        self._end_all(LATE)

    def _end_all(self, message: str) -> None:
        jobs = self._jobs.values()
        outputs = [_failure(job.requests[index], message) for job, index in jobs]
        self.metrics.observe_step(outputs)
        self._publish(outputs)

    def join(self, seconds: float) -> bool:
        """Wait for the engine's thread, and return whether it has ended."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _publish(self, outputs: list[StepOutput]) -> None:
        for output in outputs:
            job, index = self._jobs.get(output.request_id, (None, 0))
            if job is None:  # aborted meanwhile
                continue
            if output.finish_reason is not None:
                del self._jobs[output.request_id]
            job.publish(index, output)

    def _close(self) -> None:
        """End every request, also those that came too late for the engine to know them."""
        self._ended.set()
        self._begun.set()
        self._end_all(STOPPED)

    # ------------------------------------------------------------------------ the thread

    def _run(self) -> None:
        try:
            while self._run_commands():
                if self.engine.has_work:
                    self._step()
        except BaseException as error:  # also a learner's exit(), which would say nothing
            log.exception(STOPPED)
            self.why_ended = "".join(traceback.format_exception_only(error)).split("\n")[0]
        finally:
            for request in list(self._open.values()):
                self._end(request)
            self._call_in_loop(self._close)

    def _run_commands(self) -> bool:
        """Run what is in the queue; without other work, wait for it. False ends the thread."""
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
            has_requests = bool(self._open)
            self._report(self.engine.take_outputs())  # known before it failed
            if not has_requests or not self._can_go_on():  # it would fail again and again
                raise
            log.exception("a step of the engine failed, and ended %s", ", ".join(self._open))
            self._fail(error, list(self._open.values()))
        else:
            self._report(outputs)

    def _can_go_on(self) -> bool:
        """After an error: whether another step may succeed."""
        return self.engine.is_usable and still_works(self.engine.device)

    def _queue(self, request: Request) -> None:
        self._open[request.request_id] = request
        try:
            self.engine.queue(request)
        except Exception as error:
            if not self._can_go_on():
                raise
            log.exception("%s could not be added", request.request_id)
            self._fail(error, [request])

    def _abort(self, request: Request) -> None:
        if self._end(request):
            self.metrics.observe_end(request, "abort")

    def _end(self, request: Request) -> RequestOutput | None:
        """End a request; return what it has, or None if the engine no longer knows it."""
        self._open.pop(request.request_id, None)
        try:
            return self.engine.abort(request.request_id)
        except Exception:
            log.exception("%s could not be ended", request.request_id)
            return None

    def _fail(self, error: Exception, requests: Sequence[Request]) -> None:
        """End requests with an error."""
        for request in requests:
            self._end(request)
        message = f"the engine failed: {type(error).__name__}"
        self._report([_failure(request, message) for request in requests])

    def _report(self, outputs: list[StepOutput]) -> None:
        """Pass on what steps have added to requests."""
        for output in outputs:
            if output.finish_reason is not None:
                self._open.pop(output.request_id, None)
        self.metrics.observe_step(outputs)
        self._call_in_loop(self._publish, outputs)

    def _call_in_loop(self, function: Callable[..., None], *arguments: list[StepOutput]) -> None:
        """Have the event loop call a function."""
        with suppress(RuntimeError):  # the loop has ended, and with it every client
            self._loop.call_soon_threadsafe(function, *arguments)


def _failure(request: Request, message: str) -> StepOutput:
    """The end of a request with an error."""
    return StepOutput(request, finish_reason="error", error=message)
