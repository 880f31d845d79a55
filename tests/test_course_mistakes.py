"""Every exercise tells right from wrong: its mistakes, its stub, its solution, and mutants."""

import ast
import random
import re
from itertools import chain
from pathlib import Path

import pytest

from yaie.course.author import mutate, survivors
from yaie.course.core import cuda, native, render
from yaie.course.core import judge as judging
from yaie.course.core.exercise import load
from yaie.course.core.judge import (
    Failure,
    Versions,
    diagnose,
    entries,
    first_failure,
    shortest,
)
from yaie.course.core.limit import TimeUp, time_limit
from yaie.course.core.manifest import Exercise, exercises
from yaie.course.core.mistakes import Mistake
from yaie.course.core.observe import Found, first_wrong, observed
from yaie.course.core.texts import kept_file
from yaie.course.core.verdict import judge
from yaie.emulator.launch import Library

EVERY = [pytest.param(exercise, id=exercise.id) for exercise in exercises()]
DRAWN = 2  # mutants per exercise; the author's tool tries all of them
ENDLESS = (
    1.0  # seconds that a core computes before a mutant's launch does not end; others take 0.01
)


def failure_of(exercise: Exercise, versions: Versions, mistake: Mistake) -> Failure | None:
    """As `first_failure`. What is observed of the mistake is kept for the diagnosis, which runs the
    known mistakes; only in the case that it gets wrong it is run again, as a learner's code is."""
    for number, case in enumerate(versions.cases):
        kept = versions.facts(mistake, case, number)
        if kept is None or first_wrong(kept):
            facts = observed(exercise.observe, versions.load(mistake), case)
            if first_wrong(facts):
                return Failure(case, number, facts)
    return None


def libraries(exercise: Exercise, path: Path) -> dict[str, Library]:
    """Those of a kernel whose page says what its check launches."""
    return dict(cuda.compiled(path, checked=True)._libraries) if exercise.launches else {}


def quoted(text: str) -> set[str]:
    """The identifiers between backticks."""
    return set(re.findall(r"[A-Za-z_]\w*", " ".join(re.findall(r"`([^`]+)`", text))))


def test_sentences_name_no_variable_that_only_the_solution_has() -> None:
    """A learner's has another name. Known is what the stub and the table "You have" name."""
    wrong = []
    for exercise in (e for e in exercises() if not e.is_cuda):
        texts = render.stub(exercise), render.solution(exercise)
        stub, solution = (list(ast.walk(ast.parse(text))) for text in texts)
        own = {n.id for n in solution if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        own -= {n.arg for n in stub if isinstance(n, ast.arg)}
        own -= quoted(" ".join([exercise.task, texts[0], *chain(*exercise.have)]))
        for mistake in entries(exercise):
            if not mistake.flags & {"right", "equal"} and (named := quoted(mistake.sentence) & own):
                wrong.append((exercise.id, mistake.name, named))
    assert not wrong


@pytest.mark.parametrize("exercise", EVERY)
def test_the_solution_passes_and_every_mistake_is_diagnosed_as_itself(exercise: Exercise) -> None:
    """The solution first: what its cases import does not count into a mistake's seconds then. It
    lies beside the mistakes, so that what was compiled of it is found in the cache, too."""
    path = kept_file(exercise, render.solution(exercise))
    versions, target = Versions(exercise), load(exercise, path)
    compiled = libraries(exercise, path)
    failure = first_failure(exercise, target, versions.cases)
    assert failure is None, failure.message
    assert libraries(exercise, path) == compiled, "the page's `launches` are not the check's"
    known = judging.symptoms(exercise)
    wrong = []
    for mistake in judging.mistakes(exercise):
        if "endless" in mistake.flags:
            continue
        target = versions.load(mistake)
        failure = failure_of(exercise, versions, mistake)
        if failure is None:
            wrong.append(f"{mistake.name} passes")
            continue
        if known is not None and not judging.alike(known.get(mistake.name), failure):
            wrong.append(f"{mistake.name} has another symptom: {judging.symptom(failure)}")
        failure = shortest(exercise, target, failure)
        named = diagnose(exercise, target, failure, versions)
        if named is not mistake:
            wrong.append(f"{mistake.name} is taken for {named and named.name}")
    assert not wrong, "\n".join(wrong)
    if known is not None:
        names = {m.name for m in judging.mistakes(exercise) if "endless" not in m.flags}
        assert set(known) == names


@pytest.mark.parametrize("exercise", EVERY)
def test_endless_mistakes_are_endless_and_right_versions_pass(
    exercise: Exercise, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(judging.mistakes(exercise)) >= 3
    versions = Versions(exercise)
    for entry in entries(exercise):
        if "right" in entry.flags:
            failure = first_failure(exercise, versions.load(entry))
            assert failure is None, f"{entry.name}: {failure.message}"
        if "endless" in entry.flags:
            monkeypatch.setattr(cuda, "SECONDS", 0.3)
            monkeypatch.setattr(native, "SECONDS", 0.3)
            target = versions.load(entry)
            try:
                with time_limit(0.5):
                    failure = first_failure(exercise, target)
            except TimeUp:
                continue
            assert failure is not None
            assert isinstance(failure.fact.got, Found) and failure.fact.got.kind == "time_limit"


@pytest.mark.parametrize("exercise", EVERY)
def test_drawn_mutants_are_rejected(exercise: Exercise, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "SECONDS", ENDLESS)
    assert not survivors.outdated(exercise), "`[equal]` entries that no rule makes any more"
    known = mutate.equal_texts(exercise)
    every = [m for m in mutate.mutants(exercise) if mutate.normal(m.text) not in known]
    for mutant in random.Random(exercise.id).sample(every, min(DRAWN, len(every))):
        told = "\n".join(mutant.edit(render.solution(exercise)))
        assert survivors.killed(exercise, mutant), f"line {mutant.line}, {mutant.rule}:\n{told}"


@pytest.mark.parametrize("exercise", EVERY)
def test_sentences_are_for_a_learner(exercise: Exercise) -> None:
    for entry in entries(exercise):
        assert entry.sentence[-1] in ".?`", f"{exercise.id} {entry.name}"
        words = set(entry.sentence.lower().replace(",", " ").replace(".", " ").split())
        assert not words & {"nobody", "somebody", "whoever", "anybody"}, entry.sentence


@pytest.mark.parametrize("exercise", EVERY)
def test_stub_is_not_started(exercise: Exercise, tmp_path: Path) -> None:
    path = tmp_path / exercise.file.name
    path.write_text(render.stub(exercise))
    assert judge(exercise, path).state == "not started"
    if path.suffix == ".py":  # the same when it runs, as it does once a comment was edited
        path.write_text(render.stub(exercise) + "\n# edited\n")
        assert judge(exercise, path).state == "not started"
