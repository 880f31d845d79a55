"""Forked processes of `yaie.course.author.warm` answer as those that Python starts."""

import os
import subprocess
import sys

import pytest

from yaie.course.author.warm import warm

TELL = """import os, sys
known = sorted({*os.environ} - {"LC_CTYPE"})  # which Python may set when it starts
print(sys.argv[1:], os.getcwd(), known, sys.stdin.read())
"""
INTERRUPTED = """import os, signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # tests in the background ignore it
os.kill(os.getpid(), signal.SIGINT)
signal.pause()
"""


@pytest.mark.parametrize(
    ("words", "options"),
    [
        (["-c", TELL, "a", "b c"], {"input": "in", "cwd": "/", "env": {"ONE": "é"}}),
        (["-c", TELL], {"input": "", "env": {}}),
        (["-c", "import sys; sys.exit(3)"], {}),
        (["-c", "import sys; sys.exit('why')"], {}),
        (["-c", "import atexit; atexit.register(print, 'end'); print('begun')"], {}),
        (["-c", "import os; print(os.getsid(0) == os.getpid())"], {"start_new_session": True}),
        (["-c", INTERRUPTED], {}),
        (["-c", "import os, signal; os.kill(os.getpid(), signal.SIGTERM)"], {}),
        (["-c", "1 / 0"], {"stderr": subprocess.DEVNULL}),
        (["-m", "platform", "--terse"], {}),
        (["-I", "-c", "import sys; print(sys.flags.isolated)"], {}),  # not forked
        ([], {"input": "print(6 * 7)"}),  # nor is this
    ],
    ids=str,
)
def test_a_forked_process_is_as_one_that_was_started(words, options):
    def ask() -> tuple[int, str, list[str]]:
        given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | options
        done = subprocess.run([sys.executable, *words], **given)
        last = (done.stderr or "").strip().splitlines()[-1:]  # a traceback has other files
        return done.returncode, done.stdout, last

    with warm(modules=("json",)):
        got = ask()
    assert got == ask()


def test_it_has_its_modules_and_the_files_that_it_is_passed():
    read, write = os.pipe()
    code = f"import os, sys; os.write({write}, b'has it' * ('decimal' in sys.modules))"
    with warm(modules=("decimal",)):
        subprocess.run([sys.executable, "-c", code], pass_fds=[write], check=True)
    os.close(write)
    with os.fdopen(read) as told:
        assert told.read() == "has it"
