"""`yaie serve` as a process that belongs to a benchmark."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

START_LIMIT = 600.0  # seconds that a server may take until it serves


@dataclass(frozen=True)
class Server:
    """A server that runs.

    Attributes:
        url: its address, without /v1.
        name: what requests call its model.
        pid: of its process; None if it was not started here.
    """

    url: str
    name: str
    pid: int | None = None


@contextmanager
def serving(model: str, options: Sequence[str] = ()) -> Iterator[Server]:
    """Start `yaie serve` on a free port of this machine, and end it afterwards.

    Raises:
        RuntimeError: it ended before it served, or was ended after `START_LIMIT` seconds; the
            message has its last words.
    """
    command = [sys.executable, "-m", "yaie", "serve", str(model), "--port", "0", *options]
    environment = {**os.environ, "YAIE_API_KEY": ""}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )
    patience = threading.Timer(START_LIMIT, process.kill)
    patience.start()
    try:
        found, said = None, []
        for line in process.stdout:
            said.append(line)
            if found := re.search(r"serving (.*) at (http://\S+)/v1", line):
                break
        patience.cancel()
        if found is None:
            raise RuntimeError(f"the server ended before it served: {' '.join(said[-3:]).strip()}")
        # Its further output is read, so that it never waits for a full pipe.
        threading.Thread(target=process.stdout.read, daemon=True).start()
        yield Server(found[2], found[1], process.pid)
    finally:
        patience.cancel()
        process.terminate()
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def resident_bytes(pid: int) -> int:
    """How much memory a process has in use.

    Raises:
        RuntimeError: there is no such process, or nothing that says.
    """
    status = Path(f"/proc/{pid}/status")
    if status.exists():
        found = re.search(r"VmRSS:\s+(\d+) kB", status.read_text())
        if found:
            return int(found[1]) * 1024
        raise RuntimeError(f"process {pid} has ended")
    done = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True)
    if not done.stdout.strip():
        raise RuntimeError(f"process {pid} has ended")
    return int(done.stdout) * 1024
