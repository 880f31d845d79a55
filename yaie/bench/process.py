"""A server as a process that belongs to a benchmark: `yaie serve`, or another engine's."""

import os
import re
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

START_LIMIT = 600.0  # seconds that a server may take until it serves


@dataclass(frozen=True)
class Server:
    """A server that runs.

    Attributes:
        url: its address, without /v1.
        name: what requests call its model; empty if it takes any name.
        pid: of its process; None if it was not started here.
    """

    url: str
    name: str
    pid: int | None = None


@contextmanager
def serving(model: str, options: Sequence[str] = ()) -> Iterator[Server]:
    """Start `yaie serve` on a free port of this machine, and end it afterwards: see `running`."""
    command = [sys.executable, "-m", "yaie", "serve", str(model), "--port", "0", *options]
    with running(command, r"serving (?P<name>.*) at (?P<url>http://\S+)/v1") as server:
        yield server


@contextmanager
def running(command: Sequence[str], greeting: str) -> Iterator[Server]:
    """Start a server, and end it afterwards. After an error the last 20 lines that it printed are
    shown.

    Args:
        greeting: what it prints when it serves, a regular expression with the groups `url` and, if
            its model has a name, `name`.

    Raises:
        RuntimeError: it ended before it served, or was ended after `START_LIMIT` seconds; the
            message has its last words.
    """
    environment = {**os.environ, "YAIE_API_KEY": ""}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )
    patience = threading.Timer(START_LIMIT, process.kill)
    patience.start()
    try:
        found, said = None, deque[str](maxlen=20)
        for line in process.stdout:
            said.append(line)
            if found := re.search(greeting, line):
                break
        patience.cancel()
        if found is None:
            words = " ".join([*said][-3:]).strip()
            raise RuntimeError(f"the server ended before it served: {words}")
        # Its further output is read, so that it never waits for a full pipe.
        threading.Thread(target=said.extend, args=[process.stdout], daemon=True).start()
        try:
            yield Server(found["url"], found.groupdict().get("name", ""), process.pid)
        except Exception:
            print("the server printed last:", *said, sep="\n", file=sys.stderr)
            raise
    finally:
        patience.cancel()
        process.terminate()
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def resident_bytes(pid: int) -> int:
    """How much memory a process and those that it has started have in use: a server's engine, too.

    Raises:
        RuntimeError: there is no such process, or nothing that says.
    """
    return sum(family(pid).values())


def family(pid: int) -> dict[int, int]:
    """The process and those that it has started, with the bytes that each has in use.

    Raises:
        RuntimeError: there is no such process, or nothing that says.
    """
    done = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,rss="], capture_output=True, text=True)
    rows = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    if pid not in (own for own, _, _ in rows):
        raise RuntimeError(f"process {pid} has ended")
    members = {pid}
    while more := {own for own, parent, _ in rows if parent in members} - members:
        members |= more
    return {own: 1024 * kilobytes for own, _, kilobytes in rows if own in members}
