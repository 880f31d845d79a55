"""`yaie serve` as a process: its first words, its end, and what stands in its way."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from dataclasses import replace

import httpx
import pytest
import torch
from servers import wait_until
from typer.testing import CliRunner

from yaie.cli import app
from yaie.engine.config import EngineConfig
from yaie.engine.runner import Runner
from yaie.engine.start import start_engine
from yaie.server.app import Settings
from yaie.server.run import bind, serve

SENT = {"model": "tiny-llama", "prompt": "a", "ignore_eos": True}


@contextmanager
def process(folder, *options, said=""):
    """The server, and its address once it serves; before that it has `said` something."""
    command = [sys.executable, "-m", "yaie", "serve", str(folder), "--port", "0", *options]
    server = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**os.environ, "YAIE_API_KEY": ""},
    )  # fmt: skip
    try:
        with killed_after(90, server):
            before = ""
            for line in server.stdout:
                before += line
                if found := re.search(r"serving tiny-llama at (http://\S+)/v1", line):
                    break
            else:
                raise AssertionError(f"the server said nothing of its address: {before}")
            assert said in before
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


def test_a_back_end_of_ones_own_computes(tiny_model, tmp_path, monkeypatch):
    """A function of the working directory, which leaves a word where it was called."""
    (tmp_path / "own_norm.py").write_text(
        "from yaie.ops.reference.norm import rms_norm\n"
        "def norm(*arguments):\n    open('called', 'w').close()\n    return rms_norm(*arguments)\n"
    )
    monkeypatch.chdir(tmp_path)
    said = "operators: rms_norm by own_norm:norm; add_rms_norm, silu_and_mul, rotary, "
    with process(tiny_model, "--backend", "rms_norm=own_norm:norm", said=said) as (_, address):
        assert ask(address, max_tokens=2).status_code == 200
    assert (tmp_path / "called").exists()


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_after_the_answers_under_way(tiny_model, end):
    with process(tiny_model) as (server, address):
        answers = []
        thread = threading.Thread(
            target=lambda: answers.append(ask(address, max_tokens=120, n=8, seed=0))
        )
        thread.start()
        with httpx.Client(trust_env=False) as http:
            wait_until(lambda: "running 0.0" not in http.get(f"{address}/metrics").text or answers)
        server.send_signal(end)
        thread.join()
        rest = server.stdout.read()
        assert server.wait(timeout=30) == 0
        assert answers[0].status_code == 200
        assert answers[0].json()["usage"]["completion_tokens"] == 8 * 120
        assert "stopped" in rest
        assert "Traceback" not in rest


def test_the_port_of_a_killed_server_is_free_again(tiny_model):
    with process(tiny_model) as (server, address):
        sent = SENT | {"stream": True, "max_tokens": 400, "n": 16}
        with httpx.stream(
            "POST", f"{address}/v1/completions", json=sent, trust_env=False
        ) as answer:
            lines = answer.iter_lines()
            next(lines)
            server.kill()
            with pytest.raises(httpx.HTTPError):
                list(lines)
        server.wait()
        bind("127.0.0.1", int(address.rpartition(":")[2])).close()


def test_a_port_in_use_is_said_before_the_model_is_loaded(tiny_model, capsys):
    with bind("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        said = f"cannot listen on 127.0.0.1 port {port}.*--port"
        with pytest.raises(RuntimeError, match=said):
            serve(str(tiny_model), Settings("tiny"), EngineConfig(), port=port)
    assert "loading" not in capsys.readouterr().out


def test_what_is_sent_goes_at_once():
    async def main():
        asked = asyncio.get_running_loop().create_future()

        def connected(_, writer):
            own = writer.get_extra_info("socket")
            asked.set_result(own.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        with bind("127.0.0.1", 0) as listener:
            await asyncio.start_server(connected, sock=listener)
            _, writer = await asyncio.open_connection(*listener.getsockname())
            assert await asked
            writer.close()

    asyncio.run(main())


@pytest.fixture
def served(tiny_model, monkeypatch):
    """Serve in this process, until something ends it."""
    saved = [(end, signal.signal(end, signal.SIG_IGN)) for end in (signal.SIGTERM, signal.SIGINT)]
    threads = torch.get_num_threads()

    def run(**options):
        config = EngineConfig(num_blocks=8, **options)
        serve(str(tiny_model), Settings("tiny"), config, port=0)

    yield run
    torch.set_num_threads(threads)
    for end, handler in saved:
        signal.signal(end, handler)


def end_this():
    """As a supervisor would."""
    signal.pthread_kill(threading.main_thread().ident, signal.SIGTERM)


def test_it_serves_when_its_engine_is_warm(served, monkeypatch, capsys):
    """And ends rightly, however soon it is told to."""
    done = []
    monkeypatch.setattr(Runner, "warm", lambda runner: done.append("warm"))

    def welcome(*_):  # "serving ... at ..." is what a supervisor waits for
        done.append("serves")
        end_this()
        return ["serving"]

    monkeypatch.setattr("yaie.server.run.welcome", welcome)
    served()
    assert done == ["warm", "serves"]
    assert "serving\nstopped" in capsys.readouterr().out


def test_a_signal_while_the_engine_is_warmed_ends_it_then(served, monkeypatch, capsys):
    monkeypatch.setattr(Runner, "warm", lambda runner: end_this())
    served()
    said = capsys.readouterr().out
    assert "stopped" in said
    assert "ready" not in said and "serving" not in said


def test_an_engine_that_cannot_be_warmed_does_not_serve(served, monkeypatch, capsys):
    def warm(runner):
        raise MemoryError("too large")

    monkeypatch.setattr(Runner, "warm", warm)
    with pytest.raises(RuntimeError, match="the engine has stopped: MemoryError: too large"):
        served()
    assert "serving" not in capsys.readouterr().out


def test_the_engine_takes_the_threads_that_the_ranks_leave_it(served, monkeypatch):
    taken = {}

    def set_num_threads(number):
        taken[threading.current_thread().name] = number

    def one_rank(model, config, exercises):
        return start_engine(model, replace(config, tensor_parallel_size=1), exercises)

    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    monkeypatch.setattr(torch, "set_num_threads", set_num_threads)
    monkeypatch.setattr("yaie.server.run.start_engine", one_rank)
    monkeypatch.setattr(Runner, "warm", lambda runner: end_this())
    served(tensor_parallel_size=3)
    assert taken == {"MainThread": 1, "engine": 2}


def test_a_folder_is_called_by_its_name_also_from_within(tiny_model, monkeypatch):
    called = []

    def serve(model, settings, *_, **__):
        called.append(settings.model_name)

    monkeypatch.setattr("yaie.server.run.serve", serve)
    monkeypatch.chdir(tiny_model)
    for model in (".", "../tiny-llama/", "org/tiny-llama"):
        assert CliRunner().invoke(app, ["serve", model]).exit_code == 0
    assert called == ["tiny-llama"] * 3
