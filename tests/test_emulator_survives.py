"""Nothing that a kernel or a launcher does ends the process, and Ctrl-C ends them."""

import json
import re
from pathlib import Path

import pytest
from warm import python

SOURCE = Path(__file__).parent / "emulator" / "dangers.cu"
LINES = SOURCE.read_text().splitlines()

# Runs in a process of its own: what survives prints, after each call, what came of it.
SCRIPT = """
import json, os, signal, sys, threading, time
import torch
from yaie.emulator import KernelError, Module, settings
signal.signal(signal.SIGINT, signal.default_int_handler)  # tests in the background ignore it
source, checked, calls = sys.argv[1], sys.argv[2] == "checked", json.loads(sys.argv[3])
module = Module(open(source).read(), source, checked)
for name, arguments, limit, interrupt in calls:
    x = torch.zeros(64)
    if interrupt:
        def send(begun=time.process_time()):
            while time.process_time() < begun + 0.2:  # only the call takes so long
                time.sleep(0.01)
            sent.append((time.process_time(), time.monotonic()))
            thread = threading.main_thread() if interrupt == "main" else threading.current_thread()
            signal.pthread_kill(thread.ident, signal.SIGINT)
        sent = []
        threading.Thread(target=send).start()
    try:
        with settings(time_limit=limit):
            getattr(module, name)(x, *arguments)
        said = ""
    except (KernelError, KeyboardInterrupt) as error:
        said = f"{type(error).__name__}: {error}"
    late = [time.process_time() - sent[0][0], time.monotonic() - sent[0][1]] if interrupt else 0
    right = x.clone()
    module.fine(x)
    print(json.dumps([name, said, right.tolist(), late, x[15].item()]), flush=True)
"""


def results(checked: bool, *calls) -> list[list]:
    """(name, what was raised, x, seconds since Ctrl-C, x[15] of a right kernel) for each call."""
    done = python(SCRIPT, SOURCE, "checked" if checked else "plain", json.dumps(calls))
    assert done.returncode == 0, done.stdout + done.stderr
    found = [json.loads(row) for row in done.stdout.splitlines() if row.startswith("[")]
    assert [row[0] for row in found] == [call[0] for call in calls]
    assert all(row[4] == 15 for row in found), "the next kernel works"
    return found


def line_of(name: str) -> int:
    return 1 + next(i for i, row in enumerate(LINES) if row.endswith(f"// {name}"))


FAULTS = {
    "returns_nothing": "in the launcher: the function that begins here reaches its end without",
    "recurses": "stack overflow: local arrays too large, or recursion",
    "overflows": "stack overflow: local arrays too large, or recursion",
    "forgets_bytes": "a store in dynamic shared memory, of which the launch gives 0 bytes",
    "prints": "segmentation fault at address",
    "kernel_aborts": "abort() was called",
    "kernel_launches": "a kernel launches a kernel, which only the host does",
    "reads_past_allocation": "past the end of memory from cudaMalloc, 2,400 bytes from its",
    "exits": "in the launcher: exit(3) was called",
    "follows_null": "in the launcher: segmentation fault",
    "sets_nowhere": "in the launcher: segmentation fault",
    "launcher_aborts": "in the launcher: abort() was called",
    "launcher_recurses": "in the launcher: stack overflow",
}


@pytest.mark.parametrize("checked", [False, True], ids=["plain", "checked"])
def test_a_crash_is_an_exception_that_names_the_line(checked):
    in_the_report = ("forgets_bytes", "reads_past_allocation") if checked else ()
    names = [name for name in FAULTS if name not in in_the_report]
    for name, said, *_ in results(checked, *([name, [], 60, 0] for name in names)):
        found = re.match(rf"KernelError: {name}: line (\d+)", said)
        assert found and FAULTS[name] in said, said
        # A stack may end at any instruction of the function that recurses, the first included.
        assert 0 <= line_of(name) - int(found[1]) <= 3 * name.endswith("recurses"), said


@pytest.mark.parametrize("checked", [False, True], ids=["plain", "checked"])
def test_ctrl_c_ends_a_call(checked):
    """Whichever thread of the process the system gives the signal to."""
    loops = [("hangs", [1]), ("hangs", [64]), ("launcher_loops", []), ("launches_for_ever", [])]
    calls = [(*loop, 60, thread) for loop in loops for thread in ("main", "another")]
    for name, said, _, late, _ in results(checked, *calls):
        assert said.startswith(f"KeyboardInterrupt: {name}: "), said
        assert late[0] < 1 and late[1] < 10, "others may have the processors"
        if name != "launches_for_ever":
            assert f"line {line_of(name)}" in said


@pytest.mark.parametrize("checked", [False, True], ids=["plain", "checked"])
def test_the_time_limit_holds_for_kernels_and_launchers(checked):
    names = ("never_ends", "launcher_loops", "prints_for_ever", "waits_for_a_later_block")
    calls = [[name, [], 0.1, 0] for name in names]
    calls += [["hangs", [64], 0.1, 0]]
    for name, said, *_ in results(checked, *calls):
        assert f"line {line_of(name)}" in said and "still running when the time limit" in said
        if name in ("never_ends", "waits_for_a_later_block"):
            waits = "a thread block that has yet to run" in said
            assert waits == (name == "waits_for_a_later_block"), said


def test_a_thread_that_waits_in_a_loop_lets_the_others_run():
    n = 30_000_000  # during which threads are preempted: no register may change
    waits, computes = results(False, ["waits", [], 20, 0], ["computes", [n], 20, 0])
    assert waits[1] == "" and waits[2][:2] == [7, 7]
    assert computes[1] == ""
    for thread in range(4):
        state, states = (thread, 1, 0), []  # the low 8 bits, which repeat
        while state not in states:
            states.append(state)
            a = (state[0] * 3 + state[2]) % 256
            state = (a, state[1] ^ a, (state[2] + 1) % 8)
        assert states.index(state) == 0
        expected = states[n % len(states)][1] + sum(1 / k for k in range(1, 7))
        assert computes[2][thread] == pytest.approx(expected, abs=1e-3)


def test_a_thread_that_waits_is_preempted_in_checked_mode_too():
    (waits,) = results(True, ["waits", [], 20, 0])
    assert waits[1] == "" and waits[2][:2] == [7, 7]


COMPILER = """#!/bin/sh
case "$*" in *--version*) echo slow 1.0; exit;; esac
sleep 1000 &
echo $! >> "$PIDS"
wait
"""
INTERRUPTED = """
import os, signal, subprocess, sys, time
from pathlib import Path
from yaie.course.core import native
from yaie.emulator import Module
signal.signal(signal.SIGINT, signal.default_int_handler)  # tests in the background ignore it
sent = []
class Popen(subprocess.Popen):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        if options.get("start_new_session") and not sent:  # a compiler, which no table has yet
            sent.append(True)
            while not Path(os.environ["PIDS"]).exists():
                time.sleep(0.05)
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.5)
subprocess.Popen = Popen
source = 'extern "C" cudaError_t f(int n) { return cudaSuccess; }'
if sys.argv[1] == "for the CPU":
    native.build('extern "C" void f() {}', Path("slow.cpp"), checked=False)
Module(source, "slow.cu", apart=sys.argv[1] == "apart").f(1)
"""


@pytest.mark.parametrize("what", ["whole", "apart", "for the CPU"])
def test_ctrl_c_ends_a_compiler(tmp_path, what):
    """Even if it comes as soon as the compiler has started."""
    (tmp_path / "cc").write_text(COMPILER)
    (tmp_path / "cc").chmod(0o755)
    names = {"CXX": tmp_path / "cc", "PIDS": tmp_path / "pids", "YAIE_CACHE": tmp_path / "cache"}
    done = python(INTERRUPTED, what, **names)
    assert done.returncode and "KeyboardInterrupt" in done.stderr, done.stderr
    for process in (tmp_path / "pids").read_text().split():
        state = Path(f"/proc/{process}/stat")
        assert not state.exists() or state.read_text().split()[2] == "Z", "what it started ended"
