"""The engine, which runs in a process of its own, seen from asyncio.

The event loop sends it requests; the engine sends back what each step added to them. A `Job` hands
that on as it comes or, where the client does not read, gathers it, so that no other answer is late.
"""

import asyncio
import logging
import os
import select
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count

from yaie.engine.request import Request, TokenLogprob
from yaie.engine.sending import as_socket, limit
from yaie.server import wire
from yaie.server.errors import ApiError
from yaie.server.metrics import Metrics

PATIENCE = 5.0  # seconds for the last step to end, and for the engine to read what it is sent
MOST_READ = 16  # messages of the engine that are read before other tasks of the event loop run
LATE = "the server is shutting down"

log = logging.getLogger("yaie.server")


@dataclass(slots=True, eq=False)
class Update:
    """What the client of a request, number `index` of its job, has not been told yet. `has_begun`:
    it has been told something; `last_token`: when the newest token came, 0 before the first.
    `text`: the `pieces`, joined when the client is told."""

    index: int
    request: Request
    text: str = ""
    pieces: list[str] = field(default_factory=list)
    num_tokens: int = 0
    logprobs: list[TokenLogprob] = field(default_factory=list)
    finish_reason: str | None = None
    error: str | None = None
    has_begun: bool = False
    last_token: float = 0.0


class Job:
    """The requests of one HTTP call.

    Attributes:
        added: the updates with news, in order, as keys.
        num_open: how many have no finish_reason.
        is_over: whether none is open, or one has failed.
        handle: deals with what is new without the task of the call, if it returns True.
    """

    def __init__(self, requests: Sequence[Request]) -> None:
        self.requests, self.num_open, self.is_over = requests, len(requests), False
        self.handle: Callable[[], bool] | None = None
        self.added: dict[Update, None] = {}
        self._changed, self._error = asyncio.Event(), None

    def tell(self) -> None:
        """Let `handle` deal with what is new; if it cannot, or at the end, wake the call's task."""
        try:
            if self.handle is not None and self.handle() and not self.is_over:
                return
        except Exception as error:  # ends this call, and no other
            self._error = error
        self._changed.set()

    async def changed(self) -> None:
        """Wait for what `handle` does not deal with. Raises what it raised."""
        await self._changed.wait()
        self._changed.clear()
        if self._error is not None:
            raise self._error

    def news(self) -> Iterator[Update]:
        """Yield the news of each request, valid until the next is taken. A token without text waits
        for the next token, unless it is the first. Raises ApiError if a request failed."""
        for update in self.added:
            if update.finish_reason == "error":
                raise ApiError(500, update.error or "the engine failed", code="engine_error")
            update.text = "".join(update.pieces)
            if update.text or update.finish_reason:
                yield update
                update.pieces, update.num_tokens, update.logprobs = [], 0, []
            elif not update.has_begun:
                yield Update(update.index, update.request)
            update.has_begun = True
        self.added.clear()


class Worker:
    """Feeds an engine and hands out what it generates. All methods belong to the event loop.

    Args:
        engine: its process, which is `ready`.
        max_queued: requests that may wait in addition to the `max_num_seqs` that run.
        metrics: what to count with.
        restart: starts another process when the engine has ended; without it, the end is the end.

    Attributes:
        ready: what the engine has said of itself.
        why_ended: the error that stopped the engine, in one line; empty if there was none.
        late: set when the server no longer waits for the answers under way.
        ended: set when the engine has stopped for good, or has been abandoned in a step.
    """

    def __init__(
        self, engine: wire.EngineProcess, ready: wire.Ready, max_queued: int, metrics: Metrics,
        restart: Callable[[], wire.EngineProcess] | None = None,
    ) -> None:  # fmt: skip
        self.engine, self.ready, self._restart = engine, ready, restart
        self.max_requests = ready.max_num_seqs + max_queued
        self.metrics, metrics.load = metrics, ready.load
        self._jobs: dict[int, tuple[Job, Update]] = {}
        self.late, self.ended = asyncio.Event(), asyncio.Event()
        self.is_alive, self.why_ended = True, ""
        self._numbers, self._stopping = count(1), False

    @property
    def num_requests(self) -> int:
        """How many requests are under way."""
        return len(self._jobs)

    def listen(self) -> None:
        """Have the event loop that runs now listen to the engine."""
        self._waiting = select.poll()  # `Connection.poll` makes a selector at each call
        self._waiting.register(self.engine.pipe, select.POLLIN)
        asyncio.get_running_loop().add_reader(self.engine.pipe.fileno(), self.catch_up)
        os.set_blocking(self.engine.pipe.fileno(), True)  # uvloop has made it non-blocking
        for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):  # its process may be stopped
            limit(self.engine.pipe, option, PATIENCE)

    def check_capacity(self, count: int) -> None:
        """Raise ApiError if `count` requests cannot be taken, now or ever."""
        if self._stopping:
            raise ApiError(503, LATE, code="shutting_down")
        if not self.is_alive:
            raise ApiError(503, f"{wire.STOPPED}: the server's log says why", code="engine_error")
        if count > self.max_requests:
            message = f"one call may ask for {self.max_requests} answers, not more"
            raise ApiError(400, message, param="n")
        if self.num_requests + count > self.max_requests:
            self.metrics.refused.inc(count)
            now = f"{self.num_requests} requests are under way and {count} more came"
            message = f"{now}, but at most {self.max_requests} are accepted: try again later"
            raise ApiError(429, message, code="queue_full")

    def submit(self, requests: Sequence[Request]) -> Job:
        """Send requests for which there is capacity to the engine, each with a number in its id."""
        job = Job(requests)
        for index, request in enumerate(requests):
            request.number = next(self._numbers)
            request.request_id += f"-{request.number}"
            self._jobs[request.number] = (job, Update(index, request))
            about = (request.number, request.request_id, request.prompt_token_ids)
            more = (request.params, request.namespace, request.metrics.arrival_time)
            self._send(wire.Add(*about, *more))
        return job

    def abort(self, job: Job) -> None:
        """End what is left of a job and free its blocks."""
        for request in job.requests:
            if self._jobs.pop(request.number, None):
                self._send(request.number)
                self.metrics.observe_end(request, "abort")

    async def stop(self) -> None:
        """End the engine after its current step, and every request with it. A step that has not
        ended after `PATIENCE` seconds is broken off with the engine's process."""
        self._stopping = True
        with suppress(OSError), as_socket(self.engine.pipe) as end:
            end.shutdown(socket.SHUT_WR)
        try:
            await asyncio.wait_for(self.ended.wait(), PATIENCE)
        except asyncio.TimeoutError:
            log.error("a step of the engine does not end: it is abandoned")
            self._close()

    def give_up(self) -> None:
        """End every request under way with an error."""
        self.late.set()
        self._end_all(LATE)

    def _end_all(self, message: str) -> None:
        for number, (job, _) in list(self._jobs.items()):
            self._finish(number, "error", message)
            job.tell()

    def _send(self, message: wire.Add | int) -> None:
        try:
            wire.send(self.engine.pipe, message)
        except BlockingIOError:  # see `listen`; part of the message may have been sent
            log.error("the engine has read nothing for %.0f s and is killed", PATIENCE)
            self.engine.kill()
        except OSError:  # it has ended, which `catch_up` will notice
            pass

    def catch_up(self) -> None:
        """Take up to `MOST_READ` of the engine's messages, then tell what is new. If the event loop
        is slower than the engine, one update holds the tokens of several steps. Also called between
        requests: many may come together, and reading one takes as long as 20 tokens."""
        changed: dict[Job, None] = {}
        for _ in range(MOST_READ):
            if not self._waiting.poll(0):
                break
            self._take(wire.receive(self.engine.pipe), changed)
        for job in changed:
            job.tell()

    def _take(self, message: wire.Message | None, changed: dict[Job, None]) -> None:
        """Act on a message; None means that the engine has ended. Note which jobs have news."""
        if message is None:
            self._note_end()
        elif isinstance(message, wire.Step):
            self.metrics.load = message.load
            self._add(message, changed)
        elif isinstance(message, wire.Failed):
            self.why_ended = message.line
        else:  # an engine that was started again
            self.ready, self.is_alive, self.why_ended = message, True, ""
            self.metrics.load = message.load
            print("the engine is ready again", flush=True)

    def _add(self, step: wire.Step, changed: dict[Job, None]) -> None:
        """Add what a step has added to the requests and their jobs."""
        now, last_tokens = time.perf_counter(), {}
        for i, number in enumerate(step.numbers):
            job, update = self._jobs.get(number, (None, None))
            if job is None:  # aborted meanwhile
                continue
            request, changed[job], job.added[update] = update.request, None, None
            if state := step.states.get(i):
                request.metrics, request.prompt_logprobs = state.metrics, state.prompt_logprobs
            if text := step.texts[i]:
                update.pieces.append(text)
            if (token := step.tokens[i]) >= 0:
                request.token_ids.append(token)
                update.num_tokens += 1
                last_tokens[update.last_token] = last_tokens.get(update.last_token, 0) + 1
                if not update.last_token:
                    self.metrics.observe_first(request, now)
                update.last_token = now
            if logprobs := step.logprobs.get(i):
                update.logprobs += logprobs
            if state and state.finish_reason is not None:
                self._finish(number, state.finish_reason, state.error)
        self.metrics.observe_tokens(last_tokens, now)

    def _finish(self, number: int, reason: str, error: str | None) -> None:
        job, update = self._jobs.pop(number)
        update.finish_reason, update.error = reason, error
        job.added[update] = None
        job.num_open -= 1
        job.is_over = job.is_over or not job.num_open or reason == "error"
        self.metrics.observe_end(update.request, reason)

    def _note_end(self) -> None:
        """Start the engine again, if it has not ended as it was to."""
        asyncio.get_running_loop().remove_reader(self.engine.pipe.fileno())
        self._waiting.unregister(self.engine.pipe)
        self.engine.end(PATIENCE)
        if not self._stopping:
            self.why_ended = self.why_ended or self.engine.ended()
            log.error("%s: %s", wire.STOPPED, self.why_ended)
        if self._stopping or self._restart is None or not self.is_alive:
            self._close()
            return
        self.is_alive = False
        self._end_all(wire.STOPPED)
        self.engine = self._restart()
        self.listen()

    def _close(self) -> None:
        """End every request, also those that came too late for the engine to know them."""
        self.is_alive = False
        self._end_all(wire.STOPPED)
        self.ended.set()
