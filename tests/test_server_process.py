"""`yaie serve` as a process: its first words, its end, and what stands in its way."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager

import httpx
import pytest
from servers import wait_until

from yaie.server.app import Settings
from yaie.server.run import Server, bind, serve

SENT = {"model": "tiny-llama", "prompt": "a", "ignore_eos": True}


@contextmanager
def process(folder, *options):
    """The server, and its address once it serves."""
    command = [sys.executable, "-m", "yaie", "serve", str(folder), "--port", "0", *options]
    server = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**os.environ, "YAIE_API_KEY": ""},
    )  # fmt: skip
    try:
        with killed_after(90, server):
            for line in server.stdout:
                if found := re.search(r"serving tiny-llama at (http://\S+)/v1", line):
                    break
            else:
                raise AssertionError("the server said nothing of its address")
        with killed_after(90, server):
            yield server, found[1]
    finally:
        server.kill()
        server.wait()


@contextmanager
def killed_after(seconds, server):
    """Rather than hang the test."""
    timer = threading.Timer(seconds, server.kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def ask(address, **fields):
    with httpx.Client(trust_env=False, timeout=60) as http:
        return http.post(f"{address}/v1/completions", json=SENT | fields)


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_after_the_answers_under_way(tiny_model, end):
    with process(tiny_model) as (server, address):
        answers = []
        thread = threading.Thread(
            target=lambda: answers.append(ask(address, max_tokens=150, n=16, seed=0))
        )
        thread.start()
        with httpx.Client(trust_env=False) as http:
            wait_until(lambda: "running 0.0" not in http.get(f"{address}/metrics").text or answers)
        server.send_signal(end)
        thread.join()
        rest = server.stdout.read()
        assert server.wait(timeout=30) == 0
        assert answers[0].status_code == 200
        assert answers[0].json()["usage"]["completion_tokens"] == 16 * 150
        assert "stopped" in rest
        assert "Traceback" not in rest


def test_a_killed_server_starts_again_on_its_port(tiny_model):
    with process(tiny_model) as (server, address):
        stream = httpx.Client(trust_env=False)
        with stream.stream(
            "POST",
            f"{address}/v1/completions",
            json=SENT | {"stream": True, "max_tokens": 400, "n": 16},
        ) as answer:
            lines = answer.iter_lines()
            next(lines)
            server.kill()
            with pytest.raises(httpx.HTTPError):
                list(lines)
    port = address.rpartition(":")[2]
    with process(tiny_model, "--port", port) as (_, again):
        assert again == address
        assert ask(again, max_tokens=2).status_code == 200


def test_a_port_in_use_is_said_before_the_model_is_loaded(tiny_model):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = subprocess.run(
            [sys.executable, "-m", "yaie", "serve", str(tiny_model), "--port", port],
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
    assert done.returncode == 1
    assert f"cannot listen on 127.0.0.1 port {port}" in done.stderr
    assert "--port" in done.stderr
    assert "loading" not in done.stdout


def test_a_port_belongs_to_who_asked_first():
    with bind("127.0.0.1", 0) as first, pytest.raises(RuntimeError, match="cannot listen on"):
        bind("127.0.0.1", first.getsockname()[1])


def test_a_signal_that_comes_before_uvicorn_listens_to_it(tiny_model, monkeypatch):
    heard, run = [], Server.run

    def welcome(*_):  # "serving ... at ..." is what a supervisor waits for
        signal.raise_signal(signal.SIGTERM)
        return []

    def checked(server, sockets):
        heard.append(server.should_exit)
        if server.should_exit:
            run(server, sockets=sockets)

    saved = [(end, signal.signal(end, signal.SIG_IGN)) for end in (signal.SIGTERM, signal.SIGINT)]
    try:
        monkeypatch.setattr("yaie.server.run.welcome", welcome)
        monkeypatch.setattr(Server, "run", checked)
        serve(str(tiny_model), Settings("tiny"), port=0, num_blocks=8)
    finally:
        for end, handler in saved:
            signal.signal(end, handler)
    assert heard == [True]


def test_a_full_cache_is_refused_and_a_small_one_preempts(tiny_model):
    with process(tiny_model, "--num-blocks", "4") as (_, address):
        too_long = ask(address, prompt="a " * 100)
        assert too_long.status_code == 400
        assert "cache 4 blocks of 16" in too_long.json()["error"]["message"]
        many = ask(address, max_tokens=40, n=8, seed=0)  # each needs three blocks of the four
        assert many.status_code == 200
        assert many.json()["usage"]["completion_tokens"] == 8 * 40


def test_a_model_that_is_missing_is_said(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "yaie", "serve", "no-such-model", "--port", "0"],
        capture_output=True, text=True, timeout=60, env={**os.environ, "YAIE_CACHE": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 1
    assert "yaie pull" in done.stderr
    assert "Traceback" not in done.stderr
