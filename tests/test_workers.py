"""What pytest's workers do with the tests, as conftest.py has it."""

import subprocess
import sys
from pathlib import Path

import pytest

DIES = """
import os
import pytest

@pytest.mark.parametrize("i", range(5))
def test_one(i):
    if i == 2:
        os.kill(os.getpid(), 9)
"""


@pytest.mark.slow
def test_a_worker_that_dies_costs_its_test_alone(tmp_path):
    """pytest-xdist alone would start that test again and again, in a new worker each time."""
    (tmp_path / "test_dies.py").write_text(DIES)
    (tmp_path / "test_lives.py").write_text(DIES.replace("i == 2", "i == 9"))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "conftest"]
    command += ["-p", "no:nbval", "-p", "no:schemathesis", "-p", "no:hypothesispytest"]
    options = ["-n", "1", "--dist=loadscope", "--no-loadscope-reorder", f"--rootdir={tmp_path}"]
    done = subprocess.run(
        [*command, *options, tmp_path], cwd=Path(__file__).parent, capture_output=True, text=True
    )
    assert "1 failed, 9 passed" in done.stdout, done.stdout + done.stderr
    assert "crashed while running 'test_dies.py::test_one[2]'" in done.stdout
