"""Processes that end with this one, and what they are sent: pickles that hold functions, too."""

import contextlib
import io
import os
import socket
import struct
import subprocess
import sys
import time
from importlib.machinery import PathFinder
from multiprocessing import AuthenticationError, Pipe
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge, wait
from pathlib import Path
from types import FunctionType
from typing import Any

import cloudpickle

ANSWER_LIMIT = 5.0  # seconds for a client to show that it knows the key


def pack(message: Any) -> bytes:
    """Any objects and functions, to be read by `pickle.loads` in another process."""
    stream = io.BytesIO()
    _Pickler(stream).dump(message)
    return stream.getvalue()


def launched_ranks() -> int:
    """How many processes torchrun has started, this one among them; 1 if it has not."""
    is_rank = {"RANK", "LOCAL_RANK"} <= os.environ.keys()
    return int(os.environ.get("WORLD_SIZE", 1)) if is_rank else 1


def check_launched(size: int) -> None:
    """Raise ValueError if torchrun has started another number of processes than share a model."""
    if (started := launched_ranks()) not in (1, size):
        wanted = f"{started}, the number of processes that torchrun has started"
        raise ValueError(f"tensor_parallel_size must be {wanted}, got {size}")


def search_path() -> list[str]:
    """Where a process that this one starts looks for modules: where this one does, and in the
    folder of this package."""
    return [str(Path(__file__).resolve().parents[2]), *filter(None, sys.path)]


class Child:
    """A fresh Python process, which calls a function: (its end of a pipe, *arguments).

    Args:
        arguments: whose `repr` is Python.
        output: the file that it prints to; by default where this process does.

    Attributes:
        pipe: this end of the pipe, which ends when either process does.
    """

    def __init__(self, module: str, function: str, arguments: tuple, output: Any = None) -> None:
        self.pipe, theirs = Pipe()
        call = f"{function}(Connection({theirs.fileno()}), *{arguments!r})"
        names = f"from {module} import {function}; from {Connection.__module__} import Connection"
        # An interrupt is for the process that started it.
        command = f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); {names}; {call}"
        self._process = subprocess.Popen(
            [sys.executable, "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output and subprocess.STDOUT,
            pass_fds=[theirs.fileno()],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(search_path())},
        )
        theirs.close()

    def hang_up(self) -> None:
        """Close the pipe, which tells the process to end. The shutdown comes first, because the
        system keeps a pipe open while a thread waits for it."""
        with contextlib.suppress(OSError), as_socket(self.pipe) as end:
            end.shutdown(socket.SHUT_RDWR)
        self.pipe.close()

    def end(self, patience: float) -> None:
        """Wait for the process, whose pipe is closed, and kill it if it does not end."""
        self.hang_up()
        try:
            self._process.wait(patience)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def kill(self) -> None:
        """End the process immediately, even one that is stopped."""
        self._process.kill()

    def ended(self) -> str:
        """How the process ended."""
        code = self._process.returncode
        by = f"by signal {-code}" if code < 0 else f"with exit code {code}"
        return f"The process ended {by}."


def as_socket(pipe: Connection) -> socket.socket:
    """What a two-way pipe is, by another handle."""
    return socket.socket(fileno=os.dup(pipe.fileno()))


def limit(pipe: Connection, option: int, seconds: float) -> None:
    """Have reading (SO_RCVTIMEO) or writing (SO_SNDTIMEO) raise BlockingIOError after this time."""
    with as_socket(pipe) as end:
        time_value = struct.pack("ll", int(seconds), int(seconds % 1 * 1e6))
        end.setsockopt(socket.SOL_SOCKET, option, time_value)


def accept(server: socket.socket, key: bytes, deadline: float) -> Connection:
    """Wait for a `Client` that knows the key; others are refused."""
    while True:
        if not wait([server], max(0.0, deadline - time.monotonic())):
            raise TimeoutError("a rank has not connected in time")
        pipe = Connection(server.accept()[0].detach())
        limit(pipe, socket.SO_RCVTIMEO, ANSWER_LIMIT)
        try:
            deliver_challenge(pipe, key)
            answer_challenge(pipe, key)
            limit(pipe, socket.SO_RCVTIMEO, 0.0)
            return pipe
        except (AuthenticationError, EOFError, OSError):
            pipe.close()


class _Pickler(cloudpickle.Pickler):
    """Sends functions by value if the other process cannot import their modules: cloudpickle does
    so for a notebook's cells, but not for an exercise's file."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, FunctionType):
            module = sys.modules.get(value.__module__)
            package = value.__module__.partition(".")[0]
            if module and PathFinder.find_spec(package, search_path()) is None:
                cloudpickle.register_pickle_by_value(module)
        return super().reducer_override(value)
