"""Draw an exercise's picture: by the learner's code where that is possible, and say whose it is."""

from collections.abc import Callable
from typing import Any

from yaie.course.core.exercise import learner_path, load, load_reference
from yaie.course.core.limit import TimeUp, time_limit
from yaie.course.core.manifest import Exercise
from yaie.course.core.printed import first_lines
from yaie.course.core.verdict import Verdict


def draw(exercise: Exercise, verdict: Verdict) -> tuple[str, Any] | None:
    """A caption and a figure; None if there is none, or it shows what only an interpreter sees."""
    if verdict.picture is not None and (figure := _of_failure(verdict.picture)):
        return "The picture shows what your code made.", figure
    if exercise.picture is None or (exercise.is_triton and not _can_watch()):
        return None
    if verdict.state == "passes":
        with first_lines():
            mine = load(exercise, learner_path(exercise))
            return "The picture is drawn by your code.", exercise.picture(mine)
    caption = "The picture is drawn by the reference, until your code passes."
    return caption, exercise.picture(load_reference(exercise))


def _can_watch() -> bool:
    from yaie.course.core.triton import can_watch

    return can_watch()


def _of_failure(picture: Callable[[], Any]) -> Any:
    """The figure of a state that is known to be wrong; None if it is too wrong to be drawn."""
    try:
        with time_limit(5.0):
            return picture()
    except (Exception, TimeUp):
        return None
