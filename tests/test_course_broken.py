"""Every exercise tells right from wrong: its wrong versions, its stub and its solution."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from yaie.course.core import render
from yaie.course.core.manifest import Exercise, exercises, find
from yaie.course.core.verdict import judge

BROKEN = Path(__file__).parent / "broken"
ENDLESS = "did not finish"

WRONG = [
    pytest.param(exercise, path, id=f"{exercise.id}-{path.stem}")
    for exercise in exercises()
    for path in sorted((BROKEN / exercise.id.replace(".", "_")).glob("*.*"))
]
EVERY = [pytest.param(exercise, id=exercise.id) for exercise in exercises()]


def expected(path: Path) -> str:
    """The words that a wrong version says its rejection has: `EXPECT`, read without running it."""
    text = path.read_text()
    if path.suffix == ".cu":
        return text.partition('// EXPECT = "')[2].partition('"')[0]
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and node.targets[0].id == "EXPECT":
            return ast.literal_eval(node.value)
    return pytest.fail(f"{path} assigns no EXPECT")


@pytest.mark.parametrize(("exercise", "path"), WRONG)
def test_wrong_version_is_rejected_with_its_own_message(exercise: Exercise, path: Path) -> None:
    words = expected(path)
    verdict = judge(exercise, path, seconds=0.5 if words == ENDLESS else 120, trusted=True)
    assert verdict.state == "fails", verdict.message
    assert words in " ".join(verdict.message.split())
    if words != ENDLESS:
        assert not verdict.crashed, f"a crash explains no mistake: {verdict}"
    elif path.suffix == ".py":  # time passed in the wrong version, not in what asks it
        assert f"{exercise.shown}, line " in verdict.message


@pytest.mark.parametrize("exercise", EVERY)
def test_exercise_has_three_wrong_versions(exercise: Exercise) -> None:
    paths = list((BROKEN / exercise.id.replace(".", "_")).glob("*.*"))
    assert len(paths) >= 3
    for path in paths:
        if path.suffix == ".py":
            assert ast.get_docstring(ast.parse(path.read_text())), f"{path} names no mistake"


def test_every_wrong_version_belongs_to_an_exercise() -> None:
    for folder in BROKEN.iterdir():
        find(folder.name.replace("_", "."))


@pytest.mark.parametrize("exercise", EVERY)
def test_stub_is_not_started(exercise: Exercise, tmp_path: Path) -> None:
    path = tmp_path / exercise.file.name
    path.write_text(render.stub(exercise))
    assert judge(exercise, path).state == "not started"
    if path.suffix == ".py":  # the same when it runs, as it does once a comment was edited
        path.write_text(render.stub(exercise) + "\n# edited\n")
        assert judge(exercise, path).state == "not started"


@pytest.mark.parametrize("exercise", EVERY)
def test_solution_passes(exercise: Exercise, tmp_path: Path) -> None:
    path = tmp_path / exercise.file.name
    path.write_text(render.solution(exercise))
    verdict = judge(exercise, path, trusted=True)
    assert verdict.state == "passes", verdict.message
