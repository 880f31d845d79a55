"""Python in a process of its own that has torch already."""

import os
import subprocess
import sys

from yaie.course.author.warm import warm


def python(code: str, *arguments: object, **environment: object) -> subprocess.CompletedProcess:
    """As `python -c code arguments`; it is ended after 100 s."""
    known = {**os.environ, **{name: str(value) for name, value in environment.items()}}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    with warm():
        return subprocess.run(command, env=known, capture_output=True, text=True, timeout=100)
