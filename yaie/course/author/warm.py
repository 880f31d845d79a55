"""Python processes that have torch from the beginning, for tests: forked from one that imported it.

In `with warm():` a process that `subprocess` starts as `python -c`, `python -m` or `python
script.py` has its own arguments, environment, folder, open files and exit status, as it has
otherwise. But torch is imported already, and has read the environment of the process from which it
was forked.
"""

import atexit
import ctypes
import fcntl
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from types import ModuleType
from unittest import mock

Popen = subprocess.Popen
ADOPT = 36  # PR_SET_CHILD_SUBREAPER: processes that lose their parent become this one's children
MOST_BYTES, MOST_FILES = 1 << 17, 32  # of a message
HIGH = 500  # above all numbers of files that are passed on


class Parent:
    """The process that has imported `modules` and is forked."""

    def __init__(self, *modules: str) -> None:
        self._lock = threading.Lock()
        self._pipe, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = Popen(
            [sys.executable, __file__, str(theirs.fileno()), *modules], pass_fds=[theirs.fileno()]
        )
        theirs.close()
        atexit.register(self.end)

    def end(self) -> None:
        """Close the pipe, which ends the process, and wait for it."""
        self._pipe.close()
        self._process.wait()

    def fork(self, ends: list[int], **asked: object) -> int:
        """The process id of a new child of this process."""
        with self._lock:
            socket.send_fds(self._pipe, [json.dumps(asked).encode()], ends)
            return int(self._pipe.recv(MOST_BYTES))


@cache
def parent(*modules: str) -> Parent | None:
    """None where the system does not give a child's children to this process."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    return Parent(*modules) if prctl and prctl(ADOPT, 1, 0, 0, 0) == 0 else None


class Forked(Popen):
    """As `subprocess.Popen`, but a Python that is started without options is forked."""

    modules: tuple[str, ...]

    def _execute_child(
        self, args, executable, preexec_fn, close_fds, pass_fds, cwd, env, *rest
    ) -> None:
        _, _, shell, read, _, _, write, _, error, _, *owner, session = rest[:15]
        group = rest[15] if len(rest) > 15 else -1
        words = [] if isinstance(args, str) or shell else [str(word) for word in args]
        if (
            words[:1] != [sys.executable]
            or len(words) == 1
            or (words[1][:1] == "-" and words[1] not in ("-c", "-m"))
            or any((executable, preexec_fn, *owner[:3]))
            or (forks := parent(*self.modules)) is None
        ):  # fmt: skip
            first = args, executable, preexec_fn, close_fds, pass_fds, cwd, env
            return super()._execute_child(*first, *rest)
        ends = [number if end == -1 else end for number, end in enumerate((read, write, error))]
        given = os.environ if env is None else env
        known = {os.fsdecode(k): os.fsdecode(v) for k, v in given.items()}
        self.pid = forks.fork(
            [*ends, *pass_fds], words=words[1:], files=[0, 1, 2, *pass_fds], environment=known,
            folder=str(cwd or os.getcwd()), session=session, group=group,
        )  # fmt: skip
        self._child_created = True
        self._close_pipe_fds(*rest[3:9])


@contextmanager
def warm(place: str = "subprocess.Popen", modules: tuple[str, ...] = ("torch",)) -> Iterator[None]:
    """Processes that the class at `place` starts in this block have imported `modules`."""
    with mock.patch(place, type("Popen", (Forked,), {"modules": modules})):
        yield


# ------------------------------------------------------------------------- in the forked process


def serve(pipe: socket.socket) -> dict:
    """Fork for each message; returns in the new process, with what it is asked to do."""
    while True:
        message, files, *_ = socket.recv_fds(pipe, MOST_BYTES, MOST_FILES)
        if not message:
            os._exit(0)
        told, tell = os.pipe()
        if between := os.fork():
            os.waitpid(between, 0)  # then the new process is the first one's child
            os.close(tell)
            pipe.send(os.read(told, MOST_BYTES))
            for file in (told, *files):
                os.close(file)
            continue
        between = os.getpid()
        if os.fork():
            os._exit(0)
        while os.getppid() == between:
            time.sleep(0.001)
        pipe.close()
        asked = json.loads(message)
        if asked["session"]:
            os.setsid()
        if asked["group"] >= 0:
            os.setpgid(0, asked["group"])
        os.write(tell, b"%d" % os.getpid())
        high = [fcntl.fcntl(file, fcntl.F_DUPFD, HIGH) for file in files]
        for file in (told, tell, *files):
            os.close(file)
        for file, number in zip(high, asked["files"], strict=True):
            os.dup2(file, number)
            os.close(file)
        return asked


def begin(asked: dict, path: list[str]) -> None:
    """Take the environment, folder and import path that this process was asked to have."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.chdir(asked["folder"])
    added = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:] = [*filter(None, added), *path]


def execute(first: str, *rest: str) -> None:
    """Run `-c code`, `-m module` or a script, as Python does."""
    if first == "-c":
        sys.argv, main = ["-c", *rest[1:]], ModuleType("__main__")
        sys.path.insert(0, "")
        sys.modules["__main__"] = main
        exec(compile(rest[0], "<string>", "exec"), main.__dict__)
    elif first == "-m":
        sys.argv = [*rest]
        sys.path.insert(0, os.getcwd())
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = [first, *rest]
        sys.path.insert(0, os.path.dirname(os.path.abspath(first)))
        runpy.run_path(first, run_name="__main__")


def finish(*asked: str) -> None:
    """Execute, and end as Python does, but for what takes 0.3 s: torch's modules are not taken
    apart."""
    status, interrupted = 1, False
    try:
        execute(*asked)
        status = 0
    except SystemExit as ended:
        status = ended.code or 0
        if not isinstance(status, int):
            status = print(status, file=sys.stderr) or 1
    except BaseException as error:
        sys.excepthook(*sys.exc_info())
        interrupted = isinstance(error, KeyboardInterrupt)
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    if interrupted:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(status)


if __name__ == "__main__":
    handle, *modules = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ours = {os.path.dirname(os.path.abspath(__file__)), ""}
    others = ours | {*os.environ.get("PYTHONPATH", "").split(os.pathsep)}
    sys.path[:] = [folder for folder in sys.path if folder not in ours]
    for name in modules:
        importlib.import_module(name)
    gc.freeze()
    asked = serve(socket.socket(fileno=int(handle)))
    begin(asked, [folder for folder in sys.path if folder not in others])
    finish(*asked["words"])
