"""Where models and built kernels are kept between runs, and how a kernel is built only once."""

import errno
import hashlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

CSRC = Path(__file__).resolve().parents[2] / "csrc"  # where headers are that files share
PATIENCE = 120.0  # seconds to wait for another process that builds the same thing
LIMIT = 1 << 30  # bytes of built files in one folder; what was used least recently goes first


def cache_root(cache_dir: str | Path | None = None) -> Path:
    """The folder: `cache_dir`, else $YAIE_CACHE, else $XDG_CACHE_HOME/yaie, else ~/.cache/yaie."""
    if chosen := cache_dir or os.environ.get("YAIE_CACHE"):
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "yaie"


class DiskFull(RuntimeError):
    """There is no room for a file in the cache."""


def content_hash(*parts: str) -> str:
    """Sixteen hexadecimal digits that change with any of the parts."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()[:16]


def remembered(tool: str, ask: Callable[[], str]) -> str:
    """What `ask` says of a compiler; if it is not there, what it said the last time it was.

    Names in the cache carry it, so what a compiler built is found without the compiler. Raises what
    `ask` raises if nothing is remembered.
    """
    note = cache_root() / f"{tool}.txt"
    try:
        said = ask()
    except RuntimeError:
        if note.exists():
            return note.read_text()
        raise
    with suppress(OSError):  # a cache of another user, or a disk that cannot be written
        if not note.exists() or note.read_text() != said:
            write_whole(note, said)
    return said


def write_whole(path: Path, text: str) -> None:
    """Write a file, and its folder if it is missing. Other processes never find half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}.partial")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)


@dataclass(frozen=True)
class Built:
    """A file that was built once, the seconds that took, and whether this call built it."""

    path: Path
    seconds: float
    fresh: bool


def build_once(target: Path, build: Callable[[Path], Path]) -> Built:
    """Have a file built unless it is there already, in this process or another.

    Args:
        target: the file; its name carries a hash of all that goes into it.
        build: makes the file in the empty folder that it is given and returns its path. It moves
            to `target` when it is complete, so what bears that name is never half a file.

    A process that builds holds a lock, which the system takes back however the process ends. Others
    wait for it for at most `PATIENCE` seconds; then they build the file as well.
    """
    note = target.with_suffix(".seconds")
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with explain_full_disk(target.parent), locked(target):
            if not target.exists():
                _clean(target.parent)
                started = time.perf_counter()
                with tempfile.TemporaryDirectory(dir=target.parent, prefix="building-") as folder:
                    built = build(Path(folder))
                    seconds = time.perf_counter() - started
                    note.write_text(f"{seconds:.4f}\n")
                    os.replace(built, target)
                return Built(target, seconds, True)
    with suppress(OSError):  # a cache of another user, or a disk that cannot be written
        os.utime(target)  # in use
        os.utime(note)
        os.utime(target.with_suffix(".warnings"))  # of compilers that had any
    return Built(target, float(note.read_text()) if note.exists() else 0.0, False)


@contextmanager
def explain_full_disk(folder: Path) -> Iterator[None]:
    """Raise DiskFull if the disk is full, whether Python noticed or a compiler."""
    try:
        yield
    except Exception as error:
        if not any(os.strerror(n) in str(error) for n in (errno.ENOSPC, errno.EDQUOT)):
            raise
        raise DiskFull(
            f"the disk of {folder} is full: make room or set YAIE_CACHE to a folder on another disk"
        ) from error


@contextmanager
def locked(target: Path) -> Iterator[None]:
    """Keep others from building or changing the same file; gives up after `PATIENCE` seconds."""
    from filelock import FileLock, Timeout

    number = int(content_hash(target.name)[:2], 16) % 64  # so that the files do not add up
    lock = FileLock(target.parent / f".lock-{number:02}")
    try:
        try:
            lock.acquire(timeout=PATIENCE / 12, poll_interval=0.02)
        except Timeout:
            tell(f"waiting for another process to build {target.name}")
            lock.acquire(timeout=PATIENCE * 11 / 12, poll_interval=0.02)
    except Timeout:
        tell(f"{target.name} is being built for {PATIENCE:.0f} s elsewhere: building it here too")
    except OSError:
        pass  # a file system without locks: then several processes may build the same file
    try:
        yield
    finally:
        lock.release()


def tell(news: str) -> None:
    """Where a person waits, a terminal or `make lab`: kept outputs depend on no other builds."""
    if (terminal := sys.stderr.isatty()) or "YAIE_LAB" in os.environ:
        print(news, file=sys.stderr if terminal else sys.stdout, flush=True)


@cache  # once per process, since looking at thousands of files takes a tenth of a second
def _clean(folder: Path) -> None:
    """Remove what exceeds the limit, and what killed builds left."""
    files = []
    for found in os.scandir(folder):
        with suppress(FileNotFoundError):  # another process was faster
            if found.name.endswith((".so", ".o", ".seconds", ".warnings", ".gch")):
                files.append((found.stat().st_mtime, found.stat().st_size, Path(found.path)))
            elif found.name.startswith("building-") and time.time() - found.stat().st_mtime > 3600:
                shutil.rmtree(found.path, ignore_errors=True)
    used = 0
    for _, size, path in sorted(files, reverse=True):
        used += size
        if used > LIMIT:
            path.unlink(missing_ok=True)
