"""The engine, which runs in a process of its own, seen from asyncio.

The event loop sends it requests; the engine sends back what each step added to them, and a `Job`
gathers that until it is read. So a client that does not read delays only its own answer.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count

from yaie.engine.request import Request, StepOutput, TokenLogprob
from yaie.engine.sending import as_socket
from yaie.server import wire
from yaie.server.errors import ApiError
from yaie.server.metrics import Metrics

PATIENCE = 5.0  # seconds for the last step to end
MOST_READ = 16  # messages of the engine that are read before other tasks of the event loop run
LATE = "the server is shutting down"

log = logging.getLogger("yaie.server")


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
        engine: its process, which is `ready`.
        max_queued: requests that may wait in addition to the `max_num_seqs` that run.
        metrics: what to count with.
        restart: starts another process when the engine has ended; without it, the end is the end.

    Attributes:
        ready: what the engine has told of itself.
        why_ended: the error that stopped the engine, in one line; empty if there was none.
        late: set when the server no longer waits for the answers under way.
        ended: set when the engine has stopped for good, or has been abandoned in a step.
    """

    def __init__(
        self,
        engine: wire.EngineProcess,
        ready: wire.Ready,
        max_queued: int,
        metrics: Metrics,
        restart: Callable[[], wire.EngineProcess] | None = None,
    ) -> None:
        self.engine, self.ready, self._restart = engine, ready, restart
        self.max_requests = ready.max_num_seqs + max_queued
        self.metrics, metrics.load = metrics, ready.load
        self._jobs: dict[int, tuple[Job, int]] = {}
        self.late, self.ended = asyncio.Event(), asyncio.Event()
        self.is_alive, self.why_ended = True, ""
        self._numbers, self._stopping = count(1), False

    @property
    def num_requests(self) -> int:
        """How many requests are under way."""
        return len(self._jobs)

    def listen(self) -> None:
        """Have the event loop that runs now listen to the engine."""
        asyncio.get_running_loop().add_reader(self.engine.pipe.fileno(), self._receive)

    def check_capacity(self, count: int) -> None:
        """Raise ApiError if `count` requests cannot be taken, now or ever."""
        if self._stopping or not self.is_alive:
            why = LATE if self._stopping else f"{wire.STOPPED}: the server's log says why"
            raise ApiError(503, why, code="shutting_down")
        if count > self.max_requests:
            message = f"one call may ask for {self.max_requests} answers, not more"
            raise ApiError(400, message, param="n")
        if self.num_requests + count > self.max_requests:
            self.metrics.refused.inc(count)
            now = f"{self.num_requests} requests are under way and {count} more came"
            message = f"{now}, but at most {self.max_requests} are accepted: try again later"
            raise ApiError(429, message, code="queue_full")

    def submit(self, requests: Sequence[Request]) -> Job:
        """Send requests for which there is capacity to the engine. A number is added to their ids,
        which makes them unique."""
        job = Job(requests)
        for index, request in enumerate(requests):
            request.number = next(self._numbers)
            request.request_id += f"-{request.number}"
            self._jobs[request.number] = (job, index)
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
        requests = [job.requests[index] for job, index in self._jobs.values()]
        self._publish([StepOutput(r, finish_reason="error", error=message) for r in requests])

    def _send(self, message: wire.Add | int) -> None:
        with suppress(OSError):  # it has ended, which `_receive` will notice
            wire.send(self.engine.pipe, message)

    def _receive(self) -> None:
        """Take the messages that have come, up to `MOST_READ`. If the event loop is slower than the
        engine, one update of an answer then holds the tokens of several steps."""
        pipe = self.engine.pipe
        for _ in range(MOST_READ):
            message = wire.receive(pipe)
            self._take(message)
            if message is None or not pipe.poll():
                break

    def _take(self, message: wire.Message | None) -> None:
        """Act on a message; None means that the engine has ended."""
        if message is None:
            self._note_end()
        elif isinstance(message, wire.Step):
            self.metrics.load = message.load
            self._publish(self._outputs(message))
        elif isinstance(message, wire.Failed):
            self.why_ended = message.line
        else:  # an engine that was started again
            self.ready, self.is_alive, self.why_ended = message, True, ""
            self.metrics.load = message.load
            print("the engine is ready again", flush=True)

    def _outputs(self, step: wire.Step) -> list[StepOutput]:
        """What a step has added to the requests, which have it then."""
        outputs = []
        for i, (number, token) in enumerate(zip(step.numbers, step.tokens, strict=True)):
            if (place := self._jobs.get(number)) is None:  # aborted meanwhile
                continue
            request = place[0].requests[place[1]]
            tokens, text, logprobs = (token,)[: token >= 0], step.texts[i], step.logprobs.get(i, ())
            if told := step.told.get(i):
                request.metrics, request.prompt_logprobs = told.metrics, told.prompt_logprobs
                request.finish_reason, request.error = told.finish_reason, told.error
            request.token_ids.extend(tokens)
            request.output_text.pieces.append(text)
            request.logprobs.extend(logprobs)
            end = (request.finish_reason, request.error)
            outputs.append(StepOutput(request, tokens, text, logprobs, *end))
        return outputs

    def _publish(self, outputs: list[StepOutput]) -> None:
        self.metrics.observe_step(outputs)
        for output in outputs:
            job, index = self._jobs[output.request.number]
            if output.finish_reason is not None:
                del self._jobs[output.request.number]
            job.publish(index, output)

    def _note_end(self) -> None:
        """Start the engine again, if it has not ended as it was to."""
        asyncio.get_running_loop().remove_reader(self.engine.pipe.fileno())
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
