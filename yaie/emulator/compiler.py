"""The C++ compiler: which one it is, how it is run and interrupted, which messages are shown."""

import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path

from yaie.build.cache import remembered

INCLUDE = Path(__file__).resolve().parent / "include"  # messages leave out the lines that name it


class CompileError(RuntimeError):
    """The compiler refused a source. The message is what it said, in the source's own lines."""


@lru_cache(maxsize=1)
def compiler() -> str:
    """The C++ compiler: $CXX, else g++, clang++ or c++ on the path. Raises CompileError if none."""
    for name in (os.environ.get("CXX"), "g++", "clang++", "c++"):
        if name and shutil.which(name):
            return name
    raise CompileError(
        "no C++ compiler: install g++ (Debian, Ubuntu: sudo apt-get install g++) or name one "
        "with CXX=/path/to/g++"
    )


@lru_cache(maxsize=1)
def compiler_version() -> str:
    """What the compiler says of itself: another one must not use this one's files.

    Without a compiler, the one that was used last: what it built needs none. Raises CompileError if
    there never was one.
    """

    def ask() -> str:
        command = [compiler(), "--version"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode or not done.stdout:
            raise CompileError(f"{' '.join(command)} fails: {done.stderr.strip()}")
        return done.stdout.splitlines()[0]

    return remembered("compiler", ask)


_jobs: set[subprocess.Popen[str]] = set()  # that have not ended
_one_start = threading.Lock()
_interrupted = False


@contextmanager
def workers() -> Iterator[ThreadPoolExecutor]:
    """Threads that compile. Ctrl-C ends what they do."""
    global _interrupted
    try:
        with ThreadPoolExecutor() as pool:
            try:
                yield pool
            except KeyboardInterrupt:
                with _one_start:
                    _interrupted = True
                    for job in _jobs:
                        with suppress(ProcessLookupError):
                            os.killpg(job.pid, signal.SIGKILL)
                raise
    except KeyboardInterrupt:
        _interrupted = False  # all have ended
        raise


def start(arguments: Sequence[str]) -> subprocess.Popen[str]:
    """Start the compiler. Raises CompileError after a Ctrl-C, and if there is none."""
    environment = {**os.environ, "LC_ALL": "C"}
    with _one_start:
        if _interrupted:
            raise CompileError("interrupted")
        job = subprocess.Popen(
            [compiler(), *arguments],
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,  # a group of its own: g++ starts processes
        )
        _jobs.add(job)
    return job


def finish(job: subprocess.Popen[str]) -> str:
    """Wait for a compiler's end, and return what it warns of. Raises CompileError if it failed."""
    _, errors = job.communicate()
    _jobs.discard(job)
    if job.returncode:
        silent = f"{compiler()} ended with status {job.returncode} and said nothing"
        raise CompileError(_only_the_message(errors) or silent)
    return errors


def run_compiler(arguments: Sequence[str]) -> str:
    """Run the compiler, and return what it warns of. Ctrl-C ends it.

    Raises CompileError with its messages if it refuses, or if there is none.
    """
    with workers() as pool:  # Ctrl-C interrupts the main thread, perhaps before `_jobs` has the job
        return pool.submit(lambda: finish(start(arguments))).result()


# Lines that say how the compiler came to an error: through our headers and templates.
_ON_THE_WAY = re.compile(
    r"\s*(In file included|from )|.*: In instantiation of |.*:\s+(recursively )?required (from|by) "
)
_ATTRIBUTE = re.compile(r"call to '[^']+' declared with (?:attribute error|'error' attribute): ")
_HEAD = re.compile(r".*: (warning|error|fatal error|note): |.*: (?:In .*|At global scope):$")
# Notes about the compiler's own operators, instances of templates, and expanded macros.
_NO_HELP = re.compile(r"\(built-in\)$|built-in candidate|in instantiation of|<scratch space>")
# Our types → the names that CUDA gives them.
_FORMATS = {"HalfFormat": "half", "BrainFormat": "nv_bfloat16"}
_OURS = re.compile(r"(?:emulator::)?(Small|Pair)<(?:emulator::)?(HalfFormat|BrainFormat)>")
_TWICE = re.compile(r"('[^']*'|\b(?:const )?\w+) [{(]aka \1[)}]")


def _cuda_name(ours: re.Match[str]) -> str:
    return f"__{_FORMATS[ours[2]]}{'2' * (ours[1] == 'Pair')}"


def _only_the_message(errors: str) -> str:
    """Without warnings, lines that speak of our own headers and temporary files, and marks under
    a launch that point at what it was replaced by. Types have CUDA's names."""
    kept, width, warns, inside = [], 0, False, False
    said = _TWICE.sub(r"\1", _OURS.sub(_cuda_name, _ATTRIBUTE.sub("", errors)))
    for line in said.splitlines():
        if head := _HEAD.match(line):
            is_note = head[1] == "note"
            warns = warns if is_note else head[1] == "warning"
            inside = is_note and (str(INCLUDE) in line or bool(_NO_HELP.search(line)))
        if warns or inside or str(INCLUDE) in line or _ON_THE_WAY.match(line):
            continue
        if re.match(r"\s*\d+ \|", line):
            width = len(line)
        elif (mark := re.match(r"\s+\| *", line)) and mark.end() > width:
            continue
        kept.append(line)
    return "\n".join(kept).strip() or errors.strip()
