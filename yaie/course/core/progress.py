"""What the course remembers between runs: hints taken, kernels that passed, and copies of files
that were replaced."""

import json
import shutil
from pathlib import Path

from yaie.build.cache import locked, write_whole
from yaie.course.core.manifest import Exercise
from yaie.course.core.paths import state_dir


def hints_taken(exercise: Exercise) -> int:
    """How many of the exercise's hints were shown so far."""
    return _read().get("hints", {}).get(exercise.id, 0)


def remember_hints(exercise: Exercise, count: int) -> None:
    _remember("hints", exercise, count)


def passed(exercise: Exercise) -> str | None:
    """The fingerprint with which an exercise passed last, if it was remembered."""
    return _read().get("passed", {}).get(exercise.id)


def remember_pass(exercise: Exercise, fingerprint: str) -> None:
    _remember("passed", exercise, fingerprint)


def _remember(what: str, exercise: Exercise, value: int | str) -> None:
    state_dir().mkdir(parents=True, exist_ok=True)
    with locked(_path()):  # a notebook and `yaie watch` may write together
        progress = _read()
        progress.setdefault(what, {})[exercise.id] = value
        write_whole(_path(), json.dumps(progress, indent=2, sort_keys=True) + "\n")


def take_hint(exercise: Exercise) -> int | None:
    """Count one more hint as taken, and return which one; None once all are."""
    tier = hints_taken(exercise) + 1
    if tier > len(exercise.hints):
        return None
    remember_hints(exercise, tier)
    return tier


def backup(path: Path) -> Path:
    """Copy a file of the learner's into the state folder, under the next free number."""
    folder = state_dir() / "backup" / path.parent.name
    folder.mkdir(parents=True, exist_ok=True)
    number = 1
    while (copy := folder / f"{path.stem}.{number}{path.suffix}").exists():
        number += 1
    shutil.copy2(path, copy)
    return copy


def _path() -> Path:
    return state_dir() / "progress.json"


def _read() -> dict:
    try:
        text = _path().read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{_path()} is not JSON ({error}); delete it to start over") from None
