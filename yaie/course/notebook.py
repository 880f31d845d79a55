"""What the notebooks call: `card`, `check`, `use`, `hint`, `solution`.

Nothing here raises for an exercise that is not solved, and what is printed for one depends on
nothing but the exercise, so that committed outputs can be compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from yaie.course import plug, progress, render, tell
from yaie.course.exercise import load_learner, load_reference
from yaie.course.manifest import Exercise, find
from yaie.course.verdict import Verdict, judge


@dataclass(frozen=True)
class Markdown:
    """Text that a notebook renders and a terminal prints."""

    text: str

    def _repr_markdown_(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text


def card(exercise_id: str) -> Markdown:
    """The exercise's card: what to build, how hard, how long, which file, which commands."""
    return Markdown(tell.card(find(exercise_id)))


def check(exercise_id: str) -> None:
    """Check the learner's code, say the verdict, and draw the exercise's picture."""
    exercise = find(exercise_id)
    verdict = judge(exercise)
    print(tell.verdict(exercise, verdict, hint=f'hint("{exercise.id}")'))
    _draw(exercise, verdict)


def use(*exercise_ids: str) -> Any:
    """The learner's class or function if it passes its check, else the reference.

    Several ids of one class give one class with the learner's methods that pass.
    """
    found, report = plug.compose([find(exercise_id) for exercise_id in exercise_ids])
    print("\n".join(report))
    return found


def hint(exercise_id: str) -> None:
    """Show the next hint: first the idea, then the invariant, then the shape of the lines."""
    print(next_hint(find(exercise_id)))


def solution(exercise_id: str) -> Markdown:
    """Show the reference solution."""
    exercise = find(exercise_id)
    language = "cpp" if exercise.is_cuda else "python"
    return Markdown(f"```{language}\n{render.solution(exercise)}```")


def next_hint(exercise: Exercise) -> str:
    """Take one more hint and tell it; when all are taken, tell the last again."""
    tier = min(progress.hints_taken(exercise) + 1, len(exercise.hints))
    progress.remember_hints(exercise, tier)
    return tell.hint(exercise, tier)


def _draw(exercise: Exercise, verdict: Verdict) -> None:
    """Draw from the learner's code if it passes or its failure has a picture."""
    if verdict.picture is not None:
        print("The picture shows where your code stopped.")
        _show(verdict.picture())
    elif exercise.picture is not None:
        if verdict.state == "passes":
            print("The picture is drawn by your code.")
            _show(exercise.picture(load_learner(exercise.id)))
        else:
            print("The picture is drawn by the reference, until your code passes.")
            _show(exercise.picture(load_reference(exercise)))


def _show(figure: Any) -> None:
    import matplotlib.pyplot as plt
    from IPython.display import display

    display(figure)
    plt.close(figure)
