"""`python -m yaie.course.lab`: JupyterLab at the first notebook.

Its kernel is this environment, and nothing is registered outside it. Further arguments go to
JupyterLab.
"""

import argparse
import contextlib
import getpass
import logging
import os
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any
from urllib.error import URLError

from yaie.engine.threads import share_processors

ROOT = Path(__file__).resolve().parents[2]
LAB_EXTENSIONS = ROOT / "yaie" / "course" / "labextensions"
FIRST = "notebooks/00_start_here.ipynb"
STARTUP_SECONDS = 60


class NoPings(logging.Filter):
    """Leaves out tornado's warning that a ping may take longer than the time between two pings:
    jupyter_server gives it milliseconds for seconds, and does all the pinging itself."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to keep a record: True for all but that warning."""
        return "websocket_ping_timeout" not in record.getMessage()


LOGGING = {
    "filters": {"no_pings": {"()": "yaie.course.lab.NoPings"}},
    "loggers": {"tornado.general": {"filters": ["no_pings"]}},
}


def free_port(first: int) -> int:
    """The first port from `first` on that no process listens on; SystemExit if there is none."""
    for port in range(first, min(first + 50, 65536)):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port
    raise SystemExit(f"every port from {first} to {first + 49} is taken: name another with --port")


def shell() -> str:
    """The shell of JupyterLab's terminals: the one in use here, else bash, else sh."""
    names = (os.environ.get("SHELL"), "bash", "sh")
    return next(path for name in names if name and (path := shutil.which(name)))


def command(port: int, *extra: str, root: Path = ROOT) -> list[str]:
    """JupyterLab over the whole repository, so that exercises/ can be edited there too."""
    arguments = [
        f"--ServerApp.root_dir={root}",
        f"--ServerApp.port={port}",
        "--ServerApp.port_retries=0",
        "--ServerApp.open_browser=False",
        "--ServerApp.answer_yes=True",
        "--Application.log_level=WARN",
        "--KernelManager.transport_encryption=auto",
        # Named, it runs as it is; left out, it is a login shell, whose /etc/profile resets PATH.
        f"--ServerApp.terminado_settings=shell_command={shlex.quote(shell())}",
        f"--LabServerApp.extra_labextensions_path={LAB_EXTENSIONS}",
        "--ContentsManager.pre_save_hook=yaie.course.lab.without_version",
        f"--ServerApp.logging_config={LOGGING}",
    ]
    if os.geteuid() == 0:
        arguments.append("--ServerApp.allow_root=True")
    return [sys.executable, "-m", "jupyterlab", *arguments, *extra]


def environment(token: str) -> dict[str, str]:
    """What kernels and terminals get: `yaie` on the path, this environment's kernel before the
    user's own, and threads that share the processors."""
    env = {**os.environ, "JUPYTER_TOKEN": token, "JUPYTER_PREFER_ENV_PATH": "1"}
    env["YAIE_LAB"] = "1"  # what takes long says so in a notebook, too
    # Tabs that some other JupyterLab of this user had open are not ours to open.
    env.setdefault(
        "JUPYTERLAB_WORKSPACES_DIR", str(Path(sys.prefix, "share", "yaie", "workspaces"))
    )
    share_processors(env)  # a notebook and a server, say
    env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{env.get('PATH', '')}"
    return env


def without_version(model: dict[str, Any], **_: object) -> None:
    """Called before a file is saved: a notebook keeps its language and not this machine's Python,
    so that one that was only opened is as git has it."""
    if model["type"] == "notebook" and model["content"]:
        metadata = model["content"]["metadata"]
        if language := metadata.get("language_info"):
            metadata["language_info"] = {"name": language["name"]}


def trust(notebooks: Path) -> None:
    """Sign the notebooks of a folder, so that JupyterLab runs the scripts in their outputs, which
    move the sliders, as it does once all cells were run here."""
    import nbformat
    from nbformat.sign import NotebookNotary

    notary = NotebookNotary()
    for path in sorted(notebooks.glob("*.ipynb")):
        with contextlib.suppress(ValueError):  # no notebook: JupyterLab says what it is instead
            notary.sign(nbformat.read(path, as_version=4))


def wait_until_up(port: int, token: str, server: subprocess.Popen) -> None:
    """Return once the server answers; SystemExit if it ends or stays silent."""
    address = f"http://127.0.0.1:{port}/api?token={token}"
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # whatever http_proxy is
    deadline = time.monotonic() + STARTUP_SECONDS
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise SystemExit(f"JupyterLab ended with status {server.returncode}, see above")
        try:
            with direct.open(address, timeout=2):
                return
        except (URLError, OSError):
            time.sleep(0.2)
    server.terminate()
    raise SystemExit(f"JupyterLab did not answer on port {port} within {STARTUP_SECONDS} s")


def stop(server: subprocess.Popen, seconds: float = 30) -> None:
    """Let the server end by the Ctrl-C that it heard too; end it if it does not."""
    try:
        server.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        server.terminate()
        server.wait()


def stop_at_term(server: subprocess.Popen) -> None:
    """Treat SIGTERM like a Ctrl-C; the server hears only the latter by itself, so pass it on."""

    def pass_on(number: int, frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a second one does not wait
        server.terminate()
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, pass_on)


def has_display() -> bool:
    """Whether a browser can be opened for the person at the keyboard."""
    if os.environ.get("SSH_CONNECTION"):
        return False
    return sys.platform == "darwin" or any(
        os.environ.get(name)
        for name in ("DISPLAY", "WAYLAND_DISPLAY", "WSL_DISTRO_NAME", "BROWSER")
    )


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m yaie.course.lab", description=__doc__)
    parser.add_argument("--port", type=int, default=8888)
    parser.add_argument("--no-browser", action="store_true", help="print the address only")
    options, extra = parser.parse_known_args(argv)

    port, token = free_port(options.port), secrets.token_hex(16)
    if port != options.port:
        print(f"Port {options.port} is taken, perhaps by another `make lab`. This one uses {port}.")
    print("starting JupyterLab ...", flush=True)
    server = subprocess.Popen(command(port, *extra), cwd=ROOT, env=environment(token))
    stop_at_term(server)
    try:
        trust(ROOT / "notebooks")
        wait_until_up(port, token, server)
        address = f"http://localhost:{port}/lab/tree/{FIRST}?token={token}"
        print(f"\n  {address}\n\nCtrl-C stops it.", flush=True)
        if Path(sys.prefix) == ROOT / ".venv":
            print("In another terminal: source .venv/bin/activate, then yaie status", flush=True)
        if not options.no_browser and has_display():
            import webbrowser

            webbrowser.open(address)
        else:
            here = f"{getpass.getuser()}@{socket.gethostname()}"
            print(f"From another machine, first: ssh -L {port}:localhost:{port} {here}", flush=True)
        return server.wait()
    except KeyboardInterrupt:
        stop(server)
        return 0


if __name__ == "__main__":
    sys.exit(main())
