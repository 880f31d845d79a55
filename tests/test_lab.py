"""`python -m yaie.course.lab`: it finds its own server, and leaves none behind."""

import os
import signal
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import nbformat
import pytest
from nbformat.sign import NotebookNotary
from nbformat.v4 import new_code_cell, new_notebook, new_output

from yaie.course import lab


@pytest.fixture
def sleeper():
    """A process that stands for JupyterLab and does not end by itself."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process
    process.kill()
    process.wait()


def test_a_proxy_does_not_hide_the_server(sleeper, monkeypatch) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args):
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=http.serve_forever, daemon=True).start()
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.setattr(lab, "STARTUP_SECONDS", 5)
    lab.wait_until_up(http.server_port, "token", sleeper)
    assert sleeper.poll() is None
    http.shutdown()
    http.server_close()


def test_a_server_that_ended_is_told() -> None:
    ended = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    ended.wait()
    with pytest.raises(SystemExit, match="ended with status 3"):
        lab.wait_until_up(9, "token", ended)


def test_a_server_that_does_not_hear_ctrl_c_is_ended(sleeper) -> None:
    lab.stop(sleeper, seconds=0.1)
    assert sleeper.poll() is not None


def test_the_courses_notebooks_are_trusted_as_they_are(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "data"))
    slides = new_output("display_data", data={"text/html": "<img onload='move()'>"})
    notebook = new_notebook(cells=[new_code_cell("slider(x)", outputs=[slides])])
    nbformat.write(notebook, tmp_path / "a.ipynb")
    (tmp_path / "0.ipynb").write_text("<<<<<<< a conflict")
    assert not NotebookNotary().check_signature(notebook)
    lab.trust(tmp_path)
    assert NotebookNotary().check_signature(notebook)
    slides["data"]["text/html"] = "<img onload='steal()'>"
    assert not NotebookNotary().check_signature(notebook)


@pytest.mark.parametrize("named", ["/bin/sh", "no-such-shell", ""])
def test_a_terminal_is_no_login_shell(named, monkeypatch, capsys) -> None:
    """A login shell reads /etc/profile, which takes the environment's programs off PATH."""
    from jupyter_server.serverapp import ServerApp
    from jupyter_server_terminals.app import TerminalsExtensionApp

    monkeypatch.setenv("SHELL", named)
    assert not sys.stdout.isatty()  # where a login shell is the default
    server, terminals = ServerApp(), TerminalsExtensionApp()
    server.parse_command_line([a for a in lab.command(1) if "terminado" in a])
    terminals.serverapp = server
    terminals.initialize_configurables()
    [shell] = terminals.terminal_manager.shell_command
    assert os.access(shell, os.X_OK)
    assert not named.startswith("/") or shell == named


def test_term_ends_the_server_too() -> None:
    """It runs on the next port, since the one asked for is taken; that is told."""
    taken = socket.create_server(("127.0.0.1", 0))
    port = taken.getsockname()[1]
    sleeper = "import os, time; print('server', os.getpid(), flush=True); time.sleep(600)"
    script = (
        "import sys; from yaie.course import lab; lab.wait_until_up = lambda *_: None\n"
        f"lab.command = lambda *_: [sys.executable, '-c', {sleeper!r}]\n"
        f"sys.exit(lab.main(['--no-browser', '--port={port}']))"
    )
    ours = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    seen = ""
    while "server " not in seen or "ssh -L" not in seen:
        line = ours.stdout.readline()
        assert line, seen
        seen += line
    taken.close()
    assert f"Port {port} is taken" in seen
    ours.send_signal(signal.SIGTERM)
    assert ours.wait(timeout=60) == 0
    server = int(seen.partition("server ")[2].split()[0])
    with pytest.raises(ProcessLookupError):
        os.kill(server, 0)
    in_place = sys.prefix == str(lab.ROOT / ".venv")
    assert ("source .venv/bin/activate" in seen) is in_place


def test_what_lab_starts_shares_the_processors(monkeypatch):
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        monkeypatch.delenv(name, raising=False)
    assert lab.environment("token")["GOMP_SPINCOUNT"] == "5000"
    monkeypatch.setenv("GOMP_SPINCOUNT", "5")
    assert lab.environment("token")["GOMP_SPINCOUNT"] == "5"
    monkeypatch.delenv("GOMP_SPINCOUNT")
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    assert "GOMP_SPINCOUNT" not in lab.environment("token")
