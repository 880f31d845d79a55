"""Write `exercises/` and `solutions/` from the reference, or check that they agree with it."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from yaie.course.core import render
from yaie.course.core.manifest import exercises
from yaie.course.core.paths import ROOT
from yaie.course.core.progress import backup
from yaie.engine.threads import share_processors


def generated() -> Iterator[tuple[str, str]]:
    """Every generated file: its path from the project's root, and its text."""
    for exercise in exercises():
        yield f"exercises/{exercise.file.as_posix()}", render.stub(exercise)
        yield f"solutions/{exercise.file.as_posix()}", render.solution(exercise)
        yield from render.parts(exercise)


def write(root: Path = ROOT) -> list[str]:
    """Write what is missing or differs; what a learner edited is copied away first.

    Returns:
        One line for each file that changed.
    """
    report = []
    for name, text in generated():
        path = root / name
        if path.exists():
            old = path.read_text(encoding="utf-8")
            if old == text:
                continue
            if name.startswith("exercises/") and old != committed(root, name):
                report.append(f"{name} was edited; your copy is {backup(path)}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        report.append(f"wrote {name}")
    return report


def write_stubs(folder: Path) -> None:
    """Write unsolved exercises into `folder`, which `YAIE_EXERCISES_DIR` can then name."""
    for exercise in exercises():
        path = folder / exercise.file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(render.stub(exercise), encoding="utf-8")


@contextmanager
def unsolved() -> Iterator[dict[str, str]]:
    """An environment for processes as `make lab` starts them, in which no exercise is solved and no
    hint taken."""
    with tempfile.TemporaryDirectory(prefix="yaie-") as folder:
        exercises, state = Path(folder, "exercises"), Path(folder, "state")
        write_stubs(exercises)
        env = {**os.environ, "YAIE_EXERCISES_DIR": str(exercises), "YAIE_STATE": str(state)}
        share_processors(env)
        yield env


def differences(root: Path = ROOT) -> list[str]:
    """Where the generated files are not what the reference gives, one line each.

    Learners edit `exercises/` in place. So a file there is right if either it or what git has
    staged for it is what would be generated: an edited exercise is no difference, a reference
    that changed without a new build is one.
    """
    problems = []
    names = set()
    for name, text in generated():
        names.add(name)
        path = root / name
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        if name.startswith("exercises/") and committed(root, name) == text:
            continue
        problem = "differs from the reference" if path.exists() else "is missing"
        problems.append(f"{name} {problem}")
    problems += [f"{name} belongs to no exercise" for name in sorted(_tracked(root) - names)]
    return problems


def committed(root: Path, name: str) -> str | None:
    """What git has staged for a file (the commit's text unless changed); None outside git."""
    done = _git(root, "show", f":{name}")
    return done.stdout if done and done.returncode == 0 else None


def _tracked(root: Path) -> set[str]:
    done = _git(root, "ls-files", "exercises", "solutions")
    return set(done.stdout.splitlines()) if done and done.returncode == 0 else set()


def _git(root: Path, *arguments: str) -> subprocess.CompletedProcess[str] | None:
    if not (root / ".git").exists():
        return None
    try:
        return subprocess.run(
            ["git", *arguments], cwd=root, capture_output=True, text=True, timeout=60
        )
    except FileNotFoundError:
        return None
