"""`yaie serve` as a process: its first words, its end, and what stands in its way."""

import asyncio
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
from servers import EngineThread, ask_many, serving, wait_until, wanted_answers
from typer.testing import CliRunner

from yaie.cli import app
from yaie.engine.config import EngineConfig
from yaie.engine.llm import LLM
from yaie.engine.runner import Runner
from yaie.engine.start import start_engine
from yaie.server.app import Settings
from yaie.server.run import bind, serve

SENT = {"model": "tiny-llama", "prompt": "a", "ignore_eos": True}


@contextmanager
def process(folder, *options, said="", name="tiny-llama"):
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
                if found := re.search(rf"serving {name} at (http://\S+)/v1", line):
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
    said = "back ends: rms_norm by own_norm:norm; add_rms_norm, silu_and_mul, rotary, "
    with process(tiny_model, "--backend", "rms_norm=own_norm:norm", said=said) as (_, address):
        assert ask(address, max_tokens=2).status_code == 200
    assert (tmp_path / "called").exists()


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_after_the_answers_under_way(tiny_model, end):
    said = "\nweights in float32, keys and values in float32\nready after "
    with process(tiny_model, said=said) as (server, address):
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
    """Serve in this process, the engine in a thread, until something ends it."""
    saved = [(end, signal.signal(end, signal.SIG_IGN)) for end in (signal.SIGTERM, signal.SIGINT)]

    def start(model, config, exercises):
        return EngineThread(start_engine(model, config, exercises))

    monkeypatch.setattr("yaie.server.run.EngineProcess", start)

    def run(**options):
        config = EngineConfig(num_blocks=8, **options)
        serve(str(tiny_model), Settings("tiny"), config, port=0)

    yield run
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


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_the_model_is_loaded_ends_both(tiny_model, end):
    command = [sys.executable, "-m", "yaie", "serve", str(tiny_model), "--port", "0"]
    server = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, process_group=0,
        # A shell's background jobs, and what they start, ignore SIGINT.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    with killed_after(90, server):
        assert server.stdout.readline().startswith("loading")
        wait_until(lambda: any(b"yaie.server.loop" in command_of(c) for c in children(server.pid)))
        os.killpg(server.pid, end)  # as a terminal does
        rest = server.stdout.read()  # which ends with the last process that could write there
        assert server.wait() != 0
    assert "serving" not in rest


def test_an_engine_that_cannot_be_warmed_does_not_serve(served, monkeypatch, capsys):
    def warm(runner):
        raise MemoryError("too large")

    monkeypatch.setattr(Runner, "warm", warm)
    with pytest.raises(RuntimeError, match="the engine has stopped: MemoryError: too large"):
        served()
    assert "serving" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--num-blocks", "1", "--block-size", "1"], "yaie: --num-blocks must make room"),
        (["--backend", "rms_norm=no_module:norm"], "yaie: --backend"),
    ],
)
def test_why_an_engine_does_not_start_is_one_line(tiny_model, options, said):
    command = [sys.executable, "-m", "yaie", "serve", str(tiny_model), "--port", "0", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90)
    assert done.returncode == 1
    assert done.stderr.startswith(said) and done.stderr.count("\n") == 1, done.stderr
    assert not done.stdout  # not even that the model is loaded


# ------------------------------------------------------------------- when one process dies


def children(pid):
    """The processes that one has started."""
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(child) for child in file.read().split()]


def command_of(pid):
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        return file.read()


def is_gone(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"  # whom none waits for here
    except (FileNotFoundError, ProcessLookupError):
        return True


@contextmanager
def streaming(address):
    """The lines of a long answer that has begun."""
    sent = SENT | {"stream": True, "max_tokens": 400, "n": 16}
    url = f"{address}/v1/completions"
    with httpx.stream("POST", url, json=sent, trust_env=False, timeout=60) as answer:
        lines = answer.iter_lines()
        next(lines)
        yield lines


def metrics(address):
    return httpx.get(f"{address}/metrics", trust_env=False).text


def health(address):
    try:
        return httpx.get(f"{address}/health", trust_env=False)
    except httpx.HTTPError:
        return None


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_killed_engine_is_told_and_ends_the_server(tiny_model, ranks):
    with process(tiny_model, "--tensor-parallel-size", str(ranks)) as (server, address):
        [engine] = children(server.pid)
        others = children(engine)
        assert len(others) == ranks - 1
        with streaming(address) as lines:
            os.kill(engine, signal.SIGKILL)
            *_, error, done = filter(None, lines)
        assert "the engine has stopped" in error and done == "data: [DONE]"
        sick = health(address)
        assert sick.status_code == 503 and "The process ended by signal 9" in sick.text
        assert "the engine has stopped" in ask(address, max_tokens=1).text
        assert server.wait() == 1
        assert "yaie: the engine has stopped: The process ended by signal 9" in server.stdout.read()
        wait_until(lambda: all(map(is_gone, [engine, *others])))


def test_a_killed_engine_is_started_again_by_option(tiny_model):
    with process(tiny_model, "--restart") as (server, address):
        for _ in range(2):
            [engine] = children(server.pid)
            with streaming(address) as lines:
                os.kill(engine, signal.SIGKILL)
                assert "the engine has stopped" in [line for line in lines if line][-2]
            assert health(address).status_code == 503
            wait_until(lambda: health(address).status_code == 200)
            assert ask(address, max_tokens=3).json()["usage"]["completion_tokens"] == 3
        server.send_signal(signal.SIGINT)
        assert "stopped" in server.stdout.read()
        assert server.wait() == 0


@pytest.mark.parametrize("options", [[], ["--restart"]])
def test_an_engine_that_is_stopped_is_killed_when_its_pipe_is_full(tiny_model, options):
    with process(tiny_model, "--max-queued", "5000", *options) as (server, address):
        [engine] = children(server.pid)
        os.kill(engine, signal.SIGSTOP)
        answer = ask(address, prompt=["a" * 60] * 64, n=64)  # more than the pipe holds
        assert answer.status_code == 500 and "the engine has stopped" in answer.text
        assert is_gone(engine)
        assert health(address).status_code == 503
        if options:
            wait_until(lambda: health(address).status_code == 200)
            assert ask(address, max_tokens=1).status_code == 200
            return
        assert "The process ended by signal 9" in health(address).text
        rest = server.stdout.read()
        assert server.wait() == 1 and "the engine has read nothing for 5 s" in rest


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_killed_server_takes_its_engine_along(tiny_model, ranks, tmp_path, monkeypatch):
    """And leaves nothing: no process, no file, no shared memory, and its port is free."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    before, options = set(os.listdir("/dev/shm")), ("--num-blocks", "32")
    with process(tiny_model, "--tensor-parallel-size", str(ranks), *options) as (server, address):
        assert health(address).status_code == 200  # before the first request
        told = metrics(address)
        assert "yaie_kv_blocks 32.0" in told and "yaie_kv_blocks_in_use 0.0" in told
        [engine] = children(server.pid)
        started = [engine, *children(engine)]
        assert len(started) == ranks
        with streaming(address) as lines:
            server.kill()
            with pytest.raises(httpx.HTTPError):
                list(lines)
            wait_until(lambda: all(map(is_gone, started)), seconds=30)
        server.wait()
        bind("127.0.0.1", int(address.rpartition(":")[2])).close()
    assert not list(tmp_path.glob("yaie-*"))
    assert set(os.listdir("/dev/shm")) <= before


@pytest.mark.slow
def test_no_answer_of_another_process_is_lost_or_mixed_up(untied_model):
    want = wanted_answers(LLM(untied_model, num_blocks=256))
    name, options = untied_model.name, ("--num-blocks", "96", "--max-num-seqs", "16")
    with process(untied_model, *options, name=name) as (_, address):
        is_right = ask_many(address, want, 2000, name)
        wait_until(lambda: "yaie_num_requests_running 0.0" in metrics(address))
        told = dict(line.rsplit(" ", 1) for line in metrics(address).splitlines() if line)
    assert len(is_right) == 2000 and sum(is_right) >= 0.85 * 2000
    assert told["yaie_num_requests_waiting"] == "0.0"
    assert told["yaie_kv_cache_usage"] == "0.0"
    assert told["yaie_kv_blocks_in_use"] == told["yaie_kv_blocks_cached"]


def test_stop_strings_end_answers_also_with_two_ranks(tiny_model):
    def answers(address, model):
        sent = {"model": model, "max_tokens": 60, "seed": 3, "n": 4, "temperature": 1.5}
        found = [ask(address, **sent, stop=stop).json() for stop in (None, ["a", "e", " "])]
        return [[(c["text"], c["finish_reason"]) for c in body["choices"]] for body in found]

    with process(tiny_model, "--tensor-parallel-size", "2") as (_, address):
        whole, cut = answers(address, "tiny-llama")
    assert {reason for _, reason in cut} == {"stop"}
    assert [text for text, _ in cut] == [re.split("[ae ]", text)[0] for text, _ in whole]
    with serving(LLM(tiny_model, num_blocks=64)) as alone:
        assert answers(alone.url, "tiny") == [whole, cut]


def test_a_folder_is_called_by_its_name_also_from_within(tiny_model, monkeypatch):
    called = []

    def serve(model, settings, *_, **__):
        called.append(settings.model_name)

    monkeypatch.setattr("yaie.server.run.serve", serve)
    monkeypatch.chdir(tiny_model)
    for model in (".", "../tiny-llama/", "org/tiny-llama"):
        assert CliRunner().invoke(app, ["serve", model]).exit_code == 0
    assert called == ["tiny-llama"] * 3
