"""The finale: the model computes with what learners wrote, one exercise at a time."""

import shutil

import pytest

from yaie import SamplingParams
from yaie.backends.interpreter import interpreted
from yaie.course.exercise import lacks_triton
from yaie.course.manifest import exercises
from yaie.course.paths import ROOT
from yaie.engine.llm import LLM

OF_OPERATORS = [e.id for e in exercises() if e.operator]
PROMPTS = [[5, 6, 7, 8, 9, 10, 11], [5, 6, 7, 8, 1], [40]]
GREEDY = SamplingParams(temperature=0.0, max_tokens=5, ignore_eos=True)


@pytest.fixture(autouse=True)
def solved(tmp_path, monkeypatch):
    """Every exercise solved, in a folder of its own."""
    monkeypatch.setenv("YAIE_EXERCISES_DIR", str(tmp_path / "exercises"))
    monkeypatch.setenv("YAIE_STATE", str(tmp_path / "state"))
    shutil.copytree(ROOT / "solutions", tmp_path / "exercises")


def answers(tiny_model, **options):
    llm = LLM(tiny_model, num_blocks=64, block_size=4, **options)
    return [output.token_ids for output in llm.generate(PROMPTS, GREEDY)]


@pytest.mark.parametrize("exercise_id", OF_OPERATORS)
def test_the_model_answers_the_same(tiny_model, exercise_id, capsys):
    exercise = next(e for e in exercises() if e.id == exercise_id)
    if exercise.is_triton and (lacks_triton(exercise) or not interpreted()):
        pytest.skip("needs Triton's interpreter")
    wanted = answers(tiny_model, exercises=False)
    assert answers(tiny_model, exercises=[exercise_id]) == wanted
    said = capsys.readouterr().out.splitlines()
    assert said == [
        f"{exercise_id} {exercise.what}: yours, it computes {exercise.operator}.",
        "Everything else: the reference.",
    ]


@pytest.mark.skipif(not interpreted(), reason="needs Triton's interpreter")
def test_all_of_them_together(tiny_model, capsys):
    wanted = answers(tiny_model, exercises=False)
    assert answers(tiny_model, exercises=True) == wanted
    said = capsys.readouterr().out
    for operator in {e.operator for e in exercises() if e.operator}:
        assert f"yours, it computes {operator}." in said


def test_every_operator_of_an_exercise_is_the_models():
    from yaie.model.llama import OPERATORS

    assert {e.operator for e in exercises() if e.operator} <= set(OPERATORS)
    assert all((ROOT / e.source).is_file() for e in exercises())
