"""The engine's process, and what it and the server tell each other: MessagePack, through a pipe.

The engine sends one message per step, whatever number of requests it has. The server sends a
message per request, and its number alone to end it.
"""

from collections.abc import Sequence
from dataclasses import asdict
from multiprocessing.connection import Connection
from typing import Any

import msgspec

from yaie.engine.config import EngineConfig
from yaie.engine.params import Limits
from yaie.engine.request import Metrics, TokenLogprob
from yaie.engine.sending import Child

STOPPED = "the engine has stopped"


class Message(msgspec.Struct, tag=True, array_like=True):
    """A message: an array of its name and its fields."""


class Ready(Message):
    """The engine can take requests, `max_num_seqs` of them together. `about` is the text
    of `Engine.about`."""

    limits: Limits
    max_num_seqs: int
    about: str
    load: list[float]


class Add(Message):
    """A request. All later messages know it by its number. Its `params` are SamplingParams, which
    arrive as a mapping of their fields."""

    number: int
    request_id: str
    prompt_token_ids: list[int]
    params: Any
    namespace: str
    arrival_time: float


class State(Message):
    """The state of a request, sent with its first token and its last."""

    metrics: Metrics
    prompt_logprobs: list[TokenLogprob | None]
    finish_reason: str | None
    error: str | None


class Step(Message):
    """What a step added: output i is a token, or -1, and text of the request `numbers[i]`; `states`
    and `logprobs` say more of some, by i. `load` is what `yaie.server.metrics.LOAD` names."""

    numbers: list[int]
    tokens: list[int]
    texts: list[str]
    states: dict[int, State]
    logprobs: dict[int, list[TokenLogprob]]
    load: list[float]


class Failed(Message):
    """The last words of an engine: the error that ended it, also in one line."""

    message: str
    line: str
    traceback: str


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(int | Add | Ready | Step | Failed).decode


def send(pipe: Connection, message: Message | int) -> None:
    """Send a message. Raises OSError if the other process has ended."""
    pipe.send_bytes(_encode(message))


def receive(pipe: Connection) -> Message | int | None:
    """The next message; None if the other process has ended, or has no more to say."""
    try:
        return _decode(pipe.recv_bytes())
    except (EOFError, OSError):
        return None


class EngineProcess(Child):
    """An engine in a process of its own. It ends when this process ends, however that happens.

    Args:
        model, config, exercises: as for `start_engine`.
    """

    def __init__(
        self, model: str, config: EngineConfig, exercises: bool | Sequence[str] | None = None
    ) -> None:
        options = asdict(config) | {"backend": config.backend}
        super().__init__("yaie.server.loop", "main", (str(model), options, exercises))

    def wait(self) -> Ready:
        """Wait until it is ready. Raises RuntimeError that says why it does not start."""
        message = receive(self.pipe)
        if message is None:
            self.end(1.0)
            raise RuntimeError(f"{STOPPED}. {self.ended()}")
        if isinstance(message, Failed):
            raise RuntimeError(message.message) from RuntimeError(message.traceback)
        return message
