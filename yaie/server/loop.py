"""The process of the engine: requests come in, and out goes what each step has added to them."""

import gc
import logging
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any

from yaie.engine.config import EngineConfig
from yaie.engine.device import still_works
from yaie.engine.engine import Engine
from yaie.engine.params import SamplingParams
from yaie.engine.request import Request, StepOutput
from yaie.engine.start import start_engine
from yaie.engine.threads import return_freed_memory
from yaie.server import wire

PATIENCE = 5.0  # seconds for the last step to end
LISTENING = 1e-4  # seconds until the thread that computes lets the one that listens run

log = logging.getLogger("yaie.server")


class Loop:
    """Runs an engine as the server at the other end of a pipe wants it.

    Only the thread that calls `prepare` and `run` uses the engine; another one calls `listen`.
    """

    engine: Engine

    def __init__(self, pipe: Connection) -> None:
        self.pipe = pipe
        self._commands: SimpleQueue[wire.Add | int | None] = SimpleQueue()
        self._open: dict[int, Request] = {}  # those that are not finished
        self._new: set[int] = set()  # those not yet reported to the server

    def listen(self) -> None:
        """Note what the server sends, until it has ended or has no more to say."""
        while (message := wire.receive(self.pipe)) is not None:
            self._commands.put(message)
        self._commands.put(None)

    def prepare(self, engine: Engine) -> None:
        """Take an engine, warm it, and tell the server that it is ready."""
        self.engine = engine
        engine.runner.warm()
        sys.stdout.flush()
        about = (engine.limits, engine.scheduler.max_num_seqs, engine.about, self._load())
        wire.send(self.pipe, wire.Ready(*about))

    def run(self) -> None:
        """Run steps until the server has ended. If the engine cannot go on, tell the server why."""
        try:
            while self._run_commands():
                if self.engine.has_work:
                    self._step()
        except (BrokenPipeError, ConnectionResetError):  # the server has ended
            pass
        except BaseException as error:  # also a learner's exit(), which would say nothing
            log.exception(wire.STOPPED)
            self.tell(error)
        finally:
            for request in list(self._open.values()):
                self._end(request)

    def tell(self, error: BaseException) -> None:
        """Tell the server the error that ends the engine, if the server is still there."""
        line = "".join(traceback.format_exception_only(error)).split("\n")[0]
        is_known = isinstance(error, ValueError | TypeError | RuntimeError | OSError)
        message = str(error) if is_known else f"{wire.STOPPED}: {line}"
        whole = "".join(traceback.format_exception(error))
        with suppress(OSError):
            wire.send(self.pipe, wire.Failed(message, line, whole))

    def _run_commands(self) -> bool:
        """Do what the server wants; without other work, wait for it. False ends the loop."""
        while not self.engine.has_work or not self._commands.empty():
            command = self._commands.get()
            if command is None:
                return False
            if isinstance(command, wire.Add):
                self._add(command)
            elif request := self._open.get(command):
                self._end(request)
                if not self.engine.has_work:
                    self._report([])
        return True

    def _step(self) -> None:
        try:
            outputs = self.engine.step()
        except Exception as error:
            has_requests = bool(self._open)
            self._report(self.engine.take_outputs())  # known before it failed
            if not has_requests or not self._can_go_on():  # it would fail again and again
                raise
            names = [request.request_id for request in self._open.values()]
            log.exception("a step of the engine failed, and ended %s", ", ".join(names))
            self._fail(error, list(self._open.values()))
        else:
            self._report(outputs)

    def _can_go_on(self) -> bool:
        """After an error: whether another step may succeed."""
        return self.engine.is_usable and still_works(self.engine.device)

    def _add(self, message: wire.Add) -> None:
        about = (message.prompt_token_ids, SamplingParams(**message.params), message.request_id)
        request = self.engine.make_request(*about, message.namespace)
        request.metrics.arrival_time = message.arrival_time
        request.number = message.number
        self._open[request.number] = request
        self._new.add(request.number)
        try:
            self.engine.queue(request)
        except Exception as error:
            if not self._can_go_on():
                raise
            log.exception("%s could not be added", request.request_id)
            self._fail(error, [request])

    def _end(self, request: Request) -> None:
        """End a request, if the engine knows it."""
        self._open.pop(request.number, None)
        self._new.discard(request.number)
        try:
            self.engine.abort(request.request_id)
        except Exception:
            log.exception("%s could not be ended", request.request_id)

    def _fail(self, error: Exception, requests: Sequence[Request]) -> None:
        """End requests with an error."""
        message = f"the engine failed: {type(error).__name__}"
        for request in requests:
            self._end(request)
        self._report([StepOutput(r, finish_reason="error", error=message) for r in requests])

    def _report(self, outputs: list[StepOutput]) -> None:
        """Tell the server what has been added to requests."""
        states, logprobs = {}, {}
        for i, out in enumerate(outputs):
            request, reason = out.request, out.finish_reason
            if reason is not None or request.number in self._new:
                self._new.discard(request.number)
                states[i] = wire.State(request.metrics, request.prompt_logprobs, reason, out.error)
                if reason is not None:
                    self._open.pop(request.number, None)
            if out.new_logprobs:
                logprobs[i] = list(out.new_logprobs)
        numbers = [output.request.number for output in outputs]
        tokens = [out.new_token_ids[0] if out.new_token_ids else -1 for out in outputs]
        texts = [output.new_text for output in outputs]
        wire.send(self.pipe, wire.Step(numbers, tokens, texts, states, logprobs, self._load()))

    def _load(self) -> list[float]:
        """What `yaie.server.metrics.LOAD` names."""
        engine, size = self.engine, self.engine.kv.pool.num_blocks
        requests = (len(engine.scheduler.running), len(engine.scheduler.waiting))
        blocks = (size - engine.kv.pool.num_free, engine.cache.num_cached, size)
        return [*requests, *blocks, 1 - engine.cache.num_available / size]


def main(
    pipe: Connection, model: str, options: dict[str, Any], exercises: bool | Sequence[str] | None
) -> None:
    """Make an engine, and run it until the server at the other end of a pipe ends."""
    signal.signal(signal.SIGTERM, lambda *_: None)  # the server hears it, and ends this process
    sys.setswitchinterval(LISTENING)
    loop = Loop(pipe)
    threading.Thread(target=_listen, args=[loop], daemon=True).start()
    try:
        engine = start_engine(model, EngineConfig(**options), exercises, announce=True)
        engine.tokenizer.forget_encoding()  # the HTTP process encodes
        loop.prepare(engine)
        gc.freeze()  # what is there stays, and need not be looked through
        return_freed_memory(libraries=True)
    except BaseException as error:
        loop.tell(error)
        sys.exit(1)
    try:
        loop.run()
    finally:
        engine.close()


def _listen(loop: Loop) -> None:
    """As `Loop.listen`; a step that then takes too long is broken off."""
    loop.listen()
    time.sleep(PATIENCE)
    os._exit(1)
