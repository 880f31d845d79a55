"""A cache folder on a disk that is full: what is said, and that all is well once there is room."""

import subprocess
import sys
from pathlib import Path

import pytest

from yaie.emulator.build import build_runtime

ROOT = Path(__file__).resolve().parents[1]
BUILD = """
import torch
from yaie.course.lessons.ops.elementwise import add
print(add(torch.ones(100), torch.ones(100), backend="cuda").sum().item())
"""
NO_MOUNT = "this machine does not let an ordinary user mount a small disk"


def on_a_small_disk(folder: Path, kilobytes: int, *lines: str) -> subprocess.CompletedProcess:
    """Run shell commands with the cache on a disk of its own that vanishes afterwards.

    $YAIE is the `yaie` command, $PYTHON the interpreter, $DISK the folder.
    """
    script = [
        "set -u",
        f"mount -t tmpfs -o size={kilobytes}k small-disk {folder} || exit 99",
        f"export YAIE_CACHE={folder} DISK={folder} PYTHON={sys.executable}",
        *lines,
    ]
    try:
        done = subprocess.run(
            ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", "\n".join(script)],
            capture_output=True, text=True, timeout=300, cwd=ROOT,
        )  # fmt: skip
    except FileNotFoundError:
        pytest.skip(NO_MOUNT)
    if done.returncode == 99 or "unshare:" in done.stderr:
        pytest.skip(NO_MOUNT)
    return done


def test_a_kernel_that_finds_no_room(tmp_path):
    """A kernel on the emulator takes some 180 KB; what all kernels share comes before it. First
    there is no room for that, then none for the kernel: what is shared, which takes seconds to
    build, is copied from the usual cache. What was built at last is used from a disk that cannot be
    written."""
    build = f"$PYTHON -c '{BUILD}'"
    done = on_a_small_disk(
        tmp_path, 4,
        f"{build} > $DISK.first 2>&1; echo first $?",
        "mount -o remount,size=300k $DISK",
        f"mkdir -p $DISK/emulator && cp {build_runtime('core')} $DISK/emulator",
        f"{build} > $DISK.second 2>&1; echo second $?",
        "mount -o remount,size=64m $DISK",
        f"{build}; echo third $?",
        "mount -o remount,ro $DISK",
        f"{build}; echo fourth $?",
    )  # fmt: skip
    wanted = ["first", "1", "second", "1", "200.0", "third", "0", "200.0", "fourth", "0"]
    assert done.stdout.split() == wanted, done.stdout + done.stderr
    for attempt in ("first", "second"):
        last = Path(f"{tmp_path}.{attempt}").read_text().strip().splitlines()[-1]
        assert "is full: make room or set YAIE_CACHE to a folder on another disk" in last
        assert str(tmp_path) in last


def test_the_commands_say_it_in_one_line(tmp_path):
    done = on_a_small_disk(
        tmp_path, 200,
        "$PYTHON -m yaie pull; echo pull $?",
        "$PYTHON -m yaie serve --port 0; echo serve $?",
    )  # fmt: skip
    assert "pull 1" in done.stdout and "serve 1" in done.stdout
    pull, serve = done.stderr.strip().splitlines()
    assert "has 0 MB free, 760 MB are needed: make room or set YAIE_CACHE" in pull
    assert "run `yaie pull SmolLM2-135M-Instruct`" in serve
