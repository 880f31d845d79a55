"""What the notebooks call: `card`, `check`, `use`, `hint`, `solution`.

Nothing here raises for an exercise that is not solved, and what is printed for one depends on
nothing but the exercise, so that committed outputs can be compared.
"""

import sys
from dataclasses import dataclass
from typing import Any

from yaie.course.core import plug, progress, render, tell
from yaie.course.core.manifest import find, select
from yaie.course.core.picture import draw
from yaie.course.core.verdict import judge


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


def check(which: str) -> None:
    """Check the learner's code for an exercise ("02.2"), say the verdict, and draw its picture.

    Of a notebook ("02") every exercise is checked, and no picture drawn.
    """
    chosen = select(which)
    for exercise in chosen:
        verdict = judge(exercise)
        print(tell.verdict(exercise, verdict, hint=f'hint("{exercise.id}")'))
    if len(chosen) == 1 and (drawn := draw(exercise, verdict)):
        caption, figure = drawn
        print(caption)
        _show(figure)


def use(*exercise_ids: str) -> Any:
    """The learner's class or function if it passes its check, else the reference.

    Several ids of one class give one class with the learner's methods that pass.
    """
    found, report = plug.compose([find(exercise_id) for exercise_id in exercise_ids])
    print("\n".join(report))
    return found


def hint(exercise_id: str) -> None:
    """Show the next hint: first the idea, then the invariant, then the shape of the lines."""
    exercise = find(exercise_id)
    taken = progress.take_hint(exercise)
    print(tell.next_hint(exercise, taken, f'solution("{exercise.id}")'))


def solution(exercise_id: str) -> Markdown:
    """Show the reference solution."""
    exercise = find(exercise_id)
    language = "cpp" if exercise.is_cuda else "python"
    return Markdown(f"```{language}\n{render.shown_solution(exercise)}```")


def _show(figure: Any) -> None:
    from IPython.display import display

    display(figure)
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        pyplot.close(figure)  # else pyplot would show its own figures once more
