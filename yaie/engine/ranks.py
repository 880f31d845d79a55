"""Processes that compute together: the ranks of a group of torch.distributed.

Each rank is a fresh Python process, whether this one is a script, a notebook or a server. Or
torchrun has started all of them, on one machine or several. A rank receives functions to call by a
pipe or a socket, and sends tensors to the other ranks by gloo, or between GPUs by NCCL. When this
process ends, however it ends, the pipes close and the ranks end. When a rank fails, or a call is
interrupted, all ranks are ended and the error is raised here.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import secrets
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Client, Connection, wait
from pathlib import Path
from threading import Thread, current_thread, main_thread
from types import MethodType
from typing import Any, NoReturn
from weakref import WeakMethod, ref

import torch
from torch import distributed as dist
from torch.distributed import distributed_c10d

from yaie.engine.sending import Child, accept, as_socket, launched_ranks, limit, pack
from yaie.model.parallel import stop_waiting

START_LIMIT = 120.0  # seconds for Python and torch to load, on a busy machine
END_LIMIT = 5.0  # seconds for a process to end before it is killed
MOST_SHOWN = 2000  # characters of what a rank that failed has printed
MEETING = "yaie"  # where torchrun's store says how rank 0 is reached


class RankFailed(RuntimeError):
    """A rank raised an error, ended, or took too long. The group has ended."""


class Ranks(contextlib.AbstractContextManager):
    """A group of processes.

    Use it in a `with` statement, or call `close` at the end.

    Args:
        device: "cpu", or "cuda" for a GPU each.
        joined: make this process rank 0, so that only the others are started; where torchrun has
            started them, they `follow`. Only one group can be joined at a time.
        timeout: seconds that a call of `run`, or anything that the ranks send each other, may take,
            and that a full pipe may stay unread.

    Attributes:
        joined_here: whether this process is rank 0 of a group that it has made.
        answering: whether this process is a rank that executes the calls of rank 0.
    """

    joined_here = answering = _met = False

    def __init__(
        self, size: int, *, device: str = "cpu", joined: bool = False, timeout: float = 60.0
    ) -> None:
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ValueError(f"size must be an int, at least 1, got {size!r}")
        if device not in ("cpu", "cuda"):
            raise ValueError(f'device must be "cpu" or "cuda", got {device!r}')
        if joined and Ranks.joined_here:
            raise ValueError("this process has joined other ranks: close those first")
        if joined and dist.is_initialized():
            raise ValueError("this process is a rank of another group already")
        self.size, self.timeout = size, timeout
        self._joined = joined
        self._folder = tempfile.TemporaryDirectory(prefix="yaie-ranks-")
        meeting = str(Path(self._folder.name, "meeting"))
        self._threads = torch.get_num_threads()
        launched = joined and launched_ranks() > 1
        if launched and Ranks._met:
            raise ValueError("the ranks that torchrun started have ended with their only group")
        if launched:
            Ranks._met = True
            self._ranks = _meet_followers(size, device, timeout)
        else:
            self._ranks = [
                _Process(rank, timeout, (rank, size, device, meeting, timeout))
                for rank in range(1 if joined else 0, size)
            ]
        with self._ended_on_error():
            self._collect(START_LIMIT)
            if joined:
                if not launched:
                    _join(0, size, device, meeting, timeout)
                Ranks.joined_here = True
                if device == "cuda":
                    pipes = [process.pipe for process in self._ranks]
                    Thread(target=_watch, args=(pipes, ref(self)), daemon=True).start()

    @property
    def is_open(self) -> bool:
        """Whether the ranks have not ended, as far as is known."""
        return bool(self._ranks) or (self._joined and self.size == 1)  # a single rank

    def run(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Let every rank call `function(*arguments)`, and return what each returned, by rank.

        The function may come from a module, a notebook's cell or an exercise's file; what it uses
        of a cell or a file is sent with it. Inside, `torch.distributed` is initialized. Raises
        RankFailed if a rank raised an error, ended, or took longer than `timeout`; the group has
        ended then, as it has after an interrupt.
        """
        if self._joined:
            raise ValueError("run is for groups that this process has not joined; post instead")
        message = pack((function, arguments, True))
        with self._ended_on_error():
            self._send(message)
            return self._collect(self.timeout)

    def post(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Let every started rank call `function(*arguments)`, without waiting for it. Raises
        RankFailed if a rank has failed since, or reads nothing for `timeout` seconds."""
        message = pack((function, arguments, False))
        with self._ended_on_error():
            self._send(message)

    def check(self, patience: float = 0.0) -> None:
        """Raise `RankFailed` if a rank has failed, or fails in the next `patience` seconds."""
        if not self.is_open:
            raise RankFailed("the ranks have ended: start them again")
        failed = wait([process.pipe for process in self._ranks], patience)
        for process in self._ranks:
            if process.pipe in failed:
                self._receive(process)

    def close(self) -> None:
        """End all ranks. Calling it twice does no harm."""
        self._end(END_LIMIT)

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_ranks", None):
            self.close()

    @contextlib.contextmanager
    def _ended_on_error(self) -> Iterator[None]:
        """End all ranks if the block fails or is interrupted: half a message may be in a pipe then,
        or a result that the next call would take for its own."""
        try:
            yield
        except BaseException:
            self._end(0.0)
            raise

    def _end(self, patience: float) -> None:
        ranks, self._ranks = self._ranks, []
        for process in ranks:
            process.hang_up()
        if ranks and self._joined:
            Ranks.joined_here = False
            _leave()
            torch.set_num_threads(self._threads)
        for process in ranks:
            process.end(patience)
        self._folder.cleanup()

    def _send(self, message: bytes) -> None:
        self.check()
        for process in self._ranks:
            try:
                process.pipe.send_bytes(message)
            except BlockingIOError as error:
                said = f"rank {process.rank} has left its messages unread for too long"
                raise RankFailed(said) from error
            except OSError:
                self._fail()

    def _collect(self, limit: float) -> list[Any]:
        """The next message of every rank, in their order."""
        results, deadline = {}, time.monotonic() + limit
        while waiting := {p.pipe: p for p in self._ranks if p not in results}:
            ready = wait(list(waiting), max(0.0, deadline - time.monotonic()))
            for pipe in ready:
                results[waiting[pipe]] = self._receive(waiting[pipe])
            if not ready:
                self._end(0.0)
                late = [str(process.rank) for process in waiting.values()]
                names = f"rank{'s' * (len(late) > 1)} {', '.join(late)}"
                raise RankFailed(f"no answer from {names} within {limit:g} s")
        return [results[process] for process in self._ranks]

    def _receive(self, process: _Process) -> Any:
        result, failure = process.receive()
        if failure:
            self._fail({process: failure})
        return result

    def _fail(self, failures: dict[_Process, _Failure] | None = None) -> None:
        """End all ranks, and raise the error that came first: later ones may be its effects."""
        failures = failures or {}
        for process in self._ranks:
            if process not in failures and process.pipe.poll():
                _, failure = process.receive()
                failures |= {process: failure} if failure else {}
        self._end(0.5)
        if not failures:
            raise RankFailed("a rank has closed its pipe")
        process, failure = min(failures.items(), key=lambda item: item[1].time)
        details = (failure.text or process.ended(), process.printed)
        raise RankFailed("\n".join([f"rank {process.rank} failed.", *filter(None, details)]))


@dataclass(frozen=True)
class _Failure:
    """When a rank failed, and its traceback; neither is known if it ended without a message."""

    time: float = 0.0
    text: str = ""


class _Process(Child):
    """One rank: its process, the pipe to it, and what it has `printed`, once it has ended."""

    def __init__(self, rank: int, timeout: float, arguments: tuple) -> None:
        self.rank = rank
        self._output = tempfile.TemporaryFile()  # noqa: SIM115, it lives as long as this
        super().__init__("yaie.engine.ranks", "_answer", arguments, self._output)
        limit(self.pipe, socket.SO_SNDTIMEO, timeout)

    def receive(self) -> tuple[Any, _Failure | None]:
        """The next message, once there is one: a result, or how the rank failed."""
        try:
            return pickle.loads(self.pipe.recv_bytes())
        except (EOFError, OSError):
            return None, _Failure()

    def end(self, patience: float) -> None:
        """As `Child.end`; then read what it has printed."""
        super().end(patience)
        with self._output as output:
            output.seek(0)
            self.printed = output.read().decode(errors="replace").strip()[-MOST_SHOWN:]


class _Follower(_Process):
    """A rank that torchrun has started: this process only has a connection to it."""

    printed = ""

    def __init__(self, rank: int, timeout: float, pipe: Connection) -> None:
        self.rank, self.pipe = rank, pipe
        limit(pipe, socket.SO_SNDTIMEO, timeout)
        with as_socket(pipe) as end:  # else a message waits until the one before it is acknowledged
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def end(self, patience: float) -> None:
        """Close the connection, so that it ends; torchrun waits for it."""
        self.hang_up()

    def ended(self) -> str:
        """How the process ended."""
        return "Its connection has ended; torchrun shows what it printed."


def _meet_followers(size: int, device: str, timeout: float) -> list[_Process]:
    """Join the group that torchrun has started; the other ranks connect to this one."""
    _join(0, size, device, None, timeout)
    key, several = secrets.token_bytes(32), int(os.environ.get("LOCAL_WORLD_SIZE", size)) < size
    try:
        with socket.create_server(("" if several else os.environ["MASTER_ADDR"], 0)) as server:
            address = f"{server.getsockname()[1]} {key.hex()}"
            distributed_c10d._get_default_store().set(MEETING, address)
            deadline = time.monotonic() + timeout
            pipes = [accept(server, key, deadline) for _ in range(1, size)]
        return sorted((_Follower(p.recv(), timeout, p) for p in pipes), key=lambda one: one.rank)
    except BaseException:
        _leave()
        raise


# ----------------------------------------------------------------------------- in every rank


def follow(size: int, device: str, timeout: float) -> NoReturn:
    """Run a rank other than 0 that torchrun has started: execute the calls of rank 0 until it
    closes its `Ranks`. Then the process ends."""
    rank = int(os.environ["RANK"])
    _join(rank, size, device, None, timeout)
    port, key = distributed_c10d._get_default_store().get(MEETING).decode().split()
    pipe = Client((os.environ["MASTER_ADDR"], int(port)), authkey=bytes.fromhex(key))
    pipe.send(rank)
    if current_thread() is main_thread():  # the closed pipe ends it
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
    _answer(pipe)
    sys.exit()


def _answer(pipe: Connection, *group: Any) -> None:
    """Join a group, unless that is done, and call what rank 0 asks for, until the pipe closes."""
    Ranks.answering = True
    try:
        pipe.send_bytes(pickle.dumps((None, None)))
        if group:
            _join(*group)
        while True:
            try:
                message = pipe.recv_bytes()
            except (EOFError, OSError):
                break
            function, arguments, wants_result = pickle.loads(message)
            result = function(*arguments)
            if wants_result:
                pipe.send_bytes(pickle.dumps((result, None)))
    except BaseException:
        failure = _Failure(time.time(), traceback.format_exc(limit=-3).strip())
        with contextlib.suppress(OSError):  # rank 0 may be gone
            pipe.send_bytes(pickle.dumps((None, failure)))
        os._exit(1)  # immediately: the others may be waiting for a tensor
    _leave()


def _join(rank: int, size: int, device: str, meeting: str | None, timeout: float) -> None:
    """Become a rank of the group whose members find each other through the file `meeting`, with an
    equal share of this machine's threads. Without a file, torchrun's environment says how to."""
    if meeting:
        torch.set_num_threads(max(1, torch.get_num_threads() // size))
    place = None
    if device == "cuda":
        place = torch.device("cuda", rank if meeting else int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(place)
    dist.init_process_group(
        "nccl" if device == "cuda" else "gloo",
        store=dist.FileStore(meeting, size) if meeting else None,
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=timeout),
        device_id=place,
    )


def _watch(pipes: Sequence[Any], group: ref[Ranks]) -> None:
    """Free this process if a rank fails while it waits for that rank's tensor: gloo notices the
    failure, kernels of NCCL go on waiting. Watching a group does not keep it alive."""
    with contextlib.suppress(OSError):  # the pipes are closed when the group is
        wait(pipes)
    ranks = group()
    if ranks is not None and ranks.is_open:
        _leave(distributed_c10d._abort_process_group)


_to_release: list[WeakMethod] = []


def before_leaving(release: MethodType) -> None:
    """Call a bound method before this process leaves its group, if its object is still there.

    NCCL waits with the end of a communicator until no CUDA graph has its kernels.
    """
    _to_release.append(WeakMethod(release))


def _release() -> None:
    while _to_release:
        if release := _to_release.pop()():
            release()


def _leave(end: Callable[[], None] = dist.destroy_process_group) -> None:
    """Leave the group, if there is one; each of the three is done even if one before it fails."""
    if dist.is_initialized():
        with contextlib.ExitStack() as last:
            last.callback(end)
            last.callback(_release)
            stop_waiting()
