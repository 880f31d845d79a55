"""Processes that compute together: what they return, and how they fail."""

import importlib.util
import os
import socket
import subprocess
import sys
import time
from multiprocessing.connection import Client
from threading import Event, Thread
from weakref import ref

import pytest
import torch
from torch import distributed as dist

from yaie.engine import ranks as module
from yaie.engine.ranks import RankFailed, Ranks, _watch, before_leaving
from yaie.engine.sending import accept, launched_ranks, limit

pytestmark = pytest.mark.usefixtures("warm_python")


@pytest.fixture(scope="module")
def pair():
    with Ranks(2) as ranks:
        yield ranks


def add_up(number):
    from torch import distributed as dist

    total = torch.full((3,), float(number * (dist.get_rank() + 1)))
    dist.all_reduce(total)
    return dist.get_rank(), total


def test_every_rank_answers(pair):
    for number in (1, 5):  # the same processes again
        results = pair.run(add_up, number)
        assert [rank for rank, _ in results] == [0, 1]
        for _, total in results:
            assert total.tolist() == [3.0 * number] * 3


def test_functions_travel_with_what_they_need(pair, tmp_path, monkeypatch):
    def local(x):
        import math

        return math.sqrt(x)

    inside = 3
    assert pair.run(local, 9.0) == [3.0, 3.0]
    assert pair.run(lambda: inside + 1) == [4, 4]
    path = tmp_path / "exercise.py"
    path.write_text("import math\n\n\ndef root(x):\n    return math.sqrt(x)\n")
    spec = importlib.util.spec_from_file_location("exercise_99_1", path)
    exercise = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "exercise_99_1", exercise)  # as the course loads them
    spec.loader.exec_module(exercise)
    assert pair.run(call, exercise.root, 16.0) == [4.0, 4.0]


def call(function, *arguments):
    return function(*arguments)


def test_what_cannot_be_sent_is_an_error(pair):
    with pytest.raises(TypeError, match="pickle"):
        pair.run(call, Event().wait)
    assert pair.run(call, os.getcwd)  # nothing was sent, so the ranks still answer


def test_this_process_stays_out_of_it(pair):
    assert not dist.is_initialized()
    assert os.getpid() not in pair.run(os.getpid)


def fail_in_one():
    from torch import distributed as dist

    if dist.get_rank() == 1:
        raise KeyError("the reason")
    dist.all_reduce(torch.ones(3))


def die_in_one():
    import os

    from torch import distributed as dist

    if dist.get_rank() == 1:
        os._exit(7)
    dist.all_reduce(torch.ones(3))


@pytest.mark.parametrize(
    ("function", "said"),
    [(fail_in_one, r"rank 1 failed.*KeyError: 'the reason'"), (die_in_one, r"rank 1.*exit code 7")],
)
def test_a_failure_ends_all_ranks_and_is_told(function, said):
    with Ranks(2) as ranks:
        with pytest.raises(RankFailed, match=f"(?s){said}"):
            ranks.run(function)
        assert not ranks.is_open
        with pytest.raises(RankFailed, match="start them again"):
            ranks.run(add_up, 1)


def test_nothing_takes_longer_than_its_limit():
    with Ranks(1) as ranks:
        ranks.timeout = 1.0  # of the call, not of the start
        with pytest.raises(RankFailed, match=r"no answer from rank 0 within 1 s"):
            ranks.run(time.sleep, 1000.0)


def test_an_interrupt_ends_the_ranks(monkeypatch):
    """Else the next call would be answered with the results of this one."""
    with Ranks(1) as ranks:

        def interrupt(*_):
            raise KeyboardInterrupt

        monkeypatch.setattr("yaie.engine.ranks.wait", interrupt)  # for the results
        monkeypatch.setattr(ranks, "check", lambda: None)  # which waits as well
        with pytest.raises(KeyboardInterrupt):
            ranks.run(add_up, 1)
        monkeypatch.undo()
        with pytest.raises(RankFailed, match="start them again"):
            ranks.run(add_up, 2)


def test_a_rank_that_does_not_read_is_an_error():
    with Ranks(1) as ranks:
        limit(ranks._ranks[0].pipe, socket.SO_SNDTIMEO, 0.1)  # of the messages, not of the start
        ranks.post(time.sleep, 1000.0)
        with pytest.raises(RankFailed, match="rank 0 has left its messages unread"):
            ranks.post(len, bytes(2**24))
        assert not ranks.is_open


def test_ranks_end_with_the_process_that_started_them(tmp_path):
    """Even if it is killed."""
    code = (
        "from yaie.engine.ranks import Ranks\nimport os, sys\n"
        "ranks = Ranks(2)\nprint(*ranks.run(os.getpid), flush=True)\nos.kill(os.getpid(), 9)\n"
    )
    script = tmp_path / "script.py"  # without a guard for __main__
    script.write_text(code)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    pids = [int(word) for word in done.stdout.split()]
    assert len(pids) == 2
    deadline = time.monotonic() + 30
    while any(is_running(pid) for pid in pids):
        assert time.monotonic() < deadline, f"{pids} still run"
        time.sleep(0.05)


def is_running(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().split()[2] != "Z"
    except FileNotFoundError:
        return False


def test_joined_this_process_is_rank_0():
    """And has its share of the threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        with Ranks(2, joined=True) as ranks:
            assert torch.get_num_threads() == 2
            ranks.post(add_up, 1)
            assert add_up(1)[0] == 0
            with pytest.raises(ValueError, match="has joined other ranks: close those"):
                Ranks(2, joined=True)
            with pytest.raises(ValueError, match="post instead"):
                ranks.run(add_up, 1)
            ranks.check()
        assert torch.get_num_threads() == 4
    finally:
        torch.set_num_threads(before)
    assert not dist.is_initialized()
    ranks.close()


def test_ranks_end_by_themselves_though_a_thread_waits_for_their_pipes(monkeypatch):
    """As one does where they are GPUs: NCCL waits until all have left the group."""
    monkeypatch.setattr(module, "END_LIMIT", 60.0)
    waits, wait = Event(), module.wait
    monkeypatch.setattr(module, "wait", lambda *given: (waits.set(), wait(*given))[1])
    with Ranks(2) as ranks:
        processes = list(ranks._ranks)
        pipes = [process.pipe for process in processes]
        waits.clear()
        watch = Thread(target=_watch, args=(pipes, ref(ranks)))
        watch.start()
        assert waits.wait(60)
    assert [process._process.returncode for process in processes] == [0, 0]
    watch.join(60)
    assert not watch.is_alive()


def test_what_holds_on_to_a_group_is_released_first():
    released = []

    class Graphs:
        def __init__(self, name):
            self.name = name

        def forget(self):
            released.append((self.name, dist.is_initialized()))

    kept, gone = Graphs("kept"), Graphs("gone")
    with Ranks(2, joined=True):
        before_leaving(kept.forget)
        before_leaving(gone.forget)
        del gone
    assert released == [("kept", True)]
    with Ranks(2, joined=True):
        pass
    assert released == [("kept", True)]


@pytest.mark.parametrize("end", ["destroy_process_group", "_abort_process_group"])
def test_kernels_are_released_before_their_group_ends(monkeypatch, end):
    """And the group ends even if that fails: other kernels may be waiting in NCCL."""
    calls = []

    def fails():
        calls.append("stop_waiting")
        raise RuntimeError("no stream")

    monkeypatch.setattr(module.dist, "is_initialized", lambda: True)
    monkeypatch.setattr(module, "stop_waiting", fails)
    monkeypatch.setattr(module, "_release", lambda: calls.append("release"))
    with pytest.raises(RuntimeError, match="no stream"):
        module._leave(lambda: calls.append(end))
    assert calls == ["stop_waiting", "release", end]


def test_a_rank_that_leaves_stops_waiting(monkeypatch):
    stopped = []
    monkeypatch.setattr(module, "stop_waiting", lambda: stopped.append(dist.is_initialized()))
    with Ranks(2, joined=True):
        pass
    assert stopped == [True]


def test_a_rank_whose_first_one_is_gone_leaves_at_once(monkeypatch):
    """When its step fails, and cannot be told."""
    one, other = socket.socketpair()
    ours, theirs = module.Connection(one.detach()), module.Connection(other.detach())
    codes = []

    def leave(code):
        codes.append(code)
        raise SystemExit

    def fails():
        ours.close()
        raise ValueError("of the step")

    monkeypatch.setattr(module.os, "_exit", leave)
    monkeypatch.setattr(module.pickle, "loads", lambda _: (fails, (), False))
    monkeypatch.setattr(Ranks, "answering", False)
    ours.send_bytes(b"a call")
    with pytest.raises(SystemExit):
        module._answer(theirs)
    assert codes == [1]
    theirs.close()


def test_strangers_are_turned_away_and_nobody_is_waited_for_longer_than_the_limit(monkeypatch):
    monkeypatch.setattr("yaie.engine.sending.ANSWER_LIMIT", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        with pytest.raises(TimeoutError, match="a rank has not connected in time"):
            accept(server, b"key", time.monotonic() - 1)
        silent = socket.create_connection(address)
        wrong = socket.create_connection(address)
        wrong.sendall(b"\x00\x00\x00\x05wrong")
        sent = []
        knows = Thread(target=lambda: sent.append(Client(address, authkey=b"key")))
        knows.start()
        pipe = accept(server, b"key", time.monotonic() + 60)
        knows.join(60)
        sent[0].send(3)
        assert pipe.recv() == 3
        for end in (silent, wrong, pipe, sent[0]):
            end.close()


def test_torchrun_is_known_by_all_of_its_variables(monkeypatch):
    for name in ("RANK", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("RANK", "0")
    assert launched_ranks() == 1
    monkeypatch.setenv("LOCAL_RANK", "0")
    assert launched_ranks() == 4


def test_ranks_of_torchrun_are_joined_once(monkeypatch):
    def fails(*_):
        raise RuntimeError("the first")

    for name, value in (("WORLD_SIZE", "2"), ("RANK", "0"), ("LOCAL_RANK", "0")):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(module, "_meet_followers", fails)
    monkeypatch.setattr(Ranks, "_met", False)
    with pytest.raises(RuntimeError, match="the first"):
        Ranks(2, joined=True)
    with pytest.raises(ValueError, match="the ranks that torchrun started have ended"):
        Ranks(2, joined=True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [({"size": 0}, "size"), ({"size": True}, "size"), ({"size": 2, "device": "tpu"}, "device")],
)
def test_bad_arguments(arguments, said):
    with pytest.raises(ValueError, match=said):
        Ranks(**arguments)
