"""`python -m yaie.lab`: it finds its own server, and leaves none behind."""

from __future__ import annotations

import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from yaie import lab


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
