"""The questions at the end of the course, and the objectives read from the notebooks."""

import pytest

from yaie.course.lessons.self_check import NOTEBOOKS, QUESTIONS, objectives, self_check

NAMES = sorted(path.stem for path in NOTEBOOKS.glob("[0-9][0-9]_*.ipynb"))


@pytest.mark.parametrize("name", NAMES)
def test_every_notebook_has_objectives_and_questions(name):
    found = objectives(name)
    assert 3 <= len(found) <= 8
    assert all(len(objective.split()) > 3 and "\n" not in objective for objective in found)
    assert len(QUESTIONS[name]) == 2


def test_questions_are_those_of_the_course():
    assert list(QUESTIONS) == NAMES
    for pairs in QUESTIONS.values():
        for question, answer in pairs:
            assert question.endswith("?") or question.endswith(".")
            assert answer.endswith((".", ")")) and len(answer.split()) < 60


def test_answers_are_folded():
    text = self_check().text
    count = len(QUESTIONS) + 2 * len(QUESTIONS)
    assert text.count("<details>") == text.count("</details>") == text.count("<summary>") == count
    assert "<script" not in text
    assert all(objective in text for name in NAMES for objective in objectives(name))
