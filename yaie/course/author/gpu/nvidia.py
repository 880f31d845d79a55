"""NVIDIA's tools as commands: run, their versions, and ncu's table."""

import csv
import os
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence

from yaie.course.core.profilers import find

NCU = [find("ncu") or "ncu", "--clock-control", "none"]


def run(
    command: Sequence[object], seconds: float = 120, may_fail: bool = False, **environment: str
) -> str:
    """What a command prints.

    Args:
        seconds: after which it is ended, with all that it started.
        may_fail: whether it may fail, or be ended.

    Raises:
        RuntimeError: it may not, and did.
    """
    process = subprocess.Popen(
        [str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, errors="replace", start_new_session=True, env={**os.environ, **environment},
    )  # fmt: skip
    try:
        text, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # the tool and the program under it
        text, _ = process.communicate()
    if process.returncode and not may_fail:
        raise RuntimeError(f"{command[0]} returned {process.returncode}\n{text[-4000:]}")
    return text


def version_of(tool: str) -> str:
    """What a tool calls its version."""
    found = re.search(r"(?:Version|release) ([\d.]+)", run([tool, "--version"]))
    return found[1] if found else "unknown"


def sanitized(tool: str, program: Sequence[object], name: str, caching: str) -> str:
    """What a tool of compute-sanitizer prints about a program, and those of the program's own lines
    that begin with `name` and a colon. The program may fail. With `caching` "1" torch does not
    cache memory, so every tensor is an allocation of its own."""
    words = ["--tool", tool, "--print-limit", "2", "--show-backtrace", "no"]
    command = ["compute-sanitizer", *words, *program]
    said = run(command, may_fail=True, PYTORCH_NO_CUDA_MEMORY_CACHING=caching)
    return "\n".join(x for x in said.splitlines() if x.startswith(("=====", f"{name}: ")))


def profile(metrics: Sequence[str], program: Sequence[object], options: Sequence[str] = ()) -> str:
    """What ncu prints of these metrics, one row for each launch of a program."""
    asked = ["--csv", "--page", "raw", "--print-units", "base", "--metrics", ",".join(metrics)]
    return run([*NCU, *options, *asked, *program], 200)


def table(text: str) -> list[Mapping[str, str]]:
    """The rows of what `profile` returned, in order."""
    lines = text[text.index('"ID"') :].splitlines()
    return [row for row in csv.DictReader(lines) if row["ID"]]


def number(text: str) -> float | None:
    """A figure of ncu's; None where there is none."""
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None
