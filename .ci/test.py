"""Everything that `make test` and CI run, one step after the other, each timed.

    python .ci/test.py            all steps
    python .ci/test.py tests      the steps whose names start so

A step that fails does not stop the others: the table at the end says which did, and pytest's own
closing lines stand above it. Runs with the environment's own Python.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHON = sys.executable
WORKERS = f"--numprocesses={min(os.cpu_count() or 1, 4)}"
BY_SCOPE = "--dist=loadscope"
LEAN = ("-pno:nbval", "-pno:schemathesis")  # 1.6 s in each process; tests that use them import them
BY_NAME = "--no-loadscope-reorder"  # conftest.py puts the tests last that come in small parts

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
STEPS = {
    "lint": ["ruff", "check", "."],
    "format": ["ruff", "format", "--check", "."],
    "generated files": ["yaie.course", "build", "--check"],
    "tests": [
        "pytest",
        "tests",
        "--ignore=tests/test_browser.py",
        *LEAN,
        WORKERS,
        BY_SCOPE,
        BY_NAME,
        "--durations=20",
    ],
    "notebooks": ["yaie.course.author", "test", WORKERS, BY_SCOPE],
    "browser": ["pytest", "tests/test_browser.py", "-mbrowser", *LEAN, "-rs", WORKERS, BY_SCOPE],
}


def environment() -> dict[str, str]:
    """One thread a process, since the processes already fill the cores; no outer Python's settings.

    Models run on the CPU, whose outputs the notebooks show, unless a test names another device.
    """
    env = {**os.environ, "OMP_NUM_THREADS": "1", "JUPYTER_PREFER_ENV_PATH": "1"}
    env["YAIE_DEVICE"] = "cpu"
    env["PATH"] = f"{Path(PYTHON).parent}{os.pathsep}{env.get('PATH', '')}"
    for name in (
        "PYTHONPATH",
        "PYTHONHOME",
        "PYTHONDONTWRITEBYTECODE",  # else every process compiles the package again
        "YAIE_EXERCISES_DIR",
        "YAIE_USE_EXERCISES",
        "YAIE_STATE",
    ):
        env.pop(name, None)
    return env


def lacks(name: str) -> str:
    """Why a step cannot run on this machine, and what to install; "" if it can.

    In CI nothing is skipped: the step runs, and fails.
    """
    found = any(map(shutil.which, BROWSERS))
    if name == "browser" and not found and not os.environ.get("CI"):
        return "no Chromium (Debian, Ubuntu: sudo apt-get install chromium)"
    return ""


def main(wanted: list[str]) -> int:
    steps = {n: c for n, c in STEPS.items() if not wanted or n.startswith(tuple(wanted))}
    results = []
    for number, (name, command) in enumerate(steps.items(), start=1):
        print(f"\n[{number}/{len(steps)}] {name}: python -m {' '.join(command)}", flush=True)
        if missing := lacks(name):
            results.append((name, f"skipped: {missing}", 0.0))
            continue
        started = time.perf_counter()
        status = subprocess.run([PYTHON, "-m", *command], cwd=ROOT, env=environment()).returncode
        verdict = "ok" if status == 0 else f"FAILED (exit status {status})"
        results.append((name, verdict, time.perf_counter() - started))

    print()
    for name, verdict, seconds in results:
        print(f"{name:16} {seconds:7.1f} s  {verdict}")
    print(f"{'in all':16} {sum(seconds for _, _, seconds in results):7.1f} s")
    return 1 if not results or any(v.startswith("FAILED") for _, v, _ in results) else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit("\ninterrupted")
