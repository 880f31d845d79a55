"""The course's words: cards, verdicts, hints, reports. Pure functions from facts to text."""

import textwrap
from collections.abc import Sequence

from yaie.course.core.manifest import Exercise
from yaie.course.core.verdict import Verdict

WIDTH = 90  # columns of what is printed

HEADLINES = {
    "passes": "passed",
    "fails": "does not pass yet",
    "broken": "cannot be checked",
    "not started": "not started",
}


def card(exercise: Exercise) -> str:
    dots = "●" * exercise.difficulty + "○" * (3 - exercise.difficulty)
    have = [("You have", ""), ("---", "---"), *exercise.have] if exercise.have else []
    table = "".join(f"| {names} | {what} |\n" for names, what in have)
    return (
        f"**Exercise {exercise.id} · {exercise.title}**\n\n"
        f"{exercise.task}\n\n{table}{chr(10) * bool(table)}"
        f"- Difficulty {dots}, about {exercise.minutes} minutes\n"
        f"- Edit [{exercise.shown}](../{exercise.shown}): "
        f"{'repair' if exercise.draft else 'write'} `{exercise.what}`\n"
        f"- Check it with the next cell, or `yaie check {exercise.id}` in a terminal\n"
        f'- Stuck? `hint("{exercise.id}")`, then `solution("{exercise.id}")`'
    )


def verdict(exercise: Exercise, verdict: Verdict, hint: str, again: str = "check again") -> str:
    """Headline and message; `hint` is the command that helps on, `again` what follows an edit."""
    head = f"{exercise.id} {exercise.title}: {HEADLINES[verdict.state]}."
    if verdict.state == "passes":
        return "\n".join([head, _filled(verdict.message)]) if verdict.message else head
    if verdict.state == "not started":
        return "\n".join([head, _filled(verdict.message), f"  Stuck? {hint}"])
    lines = [head, _filled(verdict.message)]
    if verdict.can_mend:
        lines.append(f"Edit {exercise.shown} and {again}. Stuck? {hint}")
    return "\n".join(lines)


def _filled(text: str) -> str:
    """Lines of at most `WIDTH` columns, indented; words, and lines that begin with a space, whole.

    A line that begins with a space is code, or part of a traceback."""
    wrapper = textwrap.TextWrapper(WIDTH - 2, break_long_words=False, break_on_hyphens=False)
    lines = (line if line[:1] == " " else wrapper.fill(line) for line in text.splitlines())
    return textwrap.indent("\n".join(lines), "  ")


def hint(exercise: Exercise, tier: int) -> str:
    """One hint; its paragraphs are filled, its indented lines (code) left as they are."""
    kind = ("the idea", "the invariant", "the shape of the lines")[tier - 1]
    text = _filled(exercise.hints[tier - 1].strip("\n"))
    return f"Hint {tier} of {len(exercise.hints)} for {exercise.id}, {kind}:\n{text}"


def next_hint(exercise: Exercise, tier: int | None, solution: str | None = None) -> str:
    """The hint taken, or, once there is none left, the commands that show more."""
    if tier is not None:
        return hint(exercise, tier)
    shows = solution or f"`yaie solution {exercise.id}`"
    return (
        f"That was the last hint: {shows} shows the reference, `yaie hint {exercise.id} --all` all "
        "hints."
    )


WHOSE = {  # of an exercise, whose code is used and why
    "runs": "yours, it passes its check.",
    "computes": "yours, it computes {0}.",
    "waits": "passes, but your {1} computes {0}.",
    "not started": "the reference, yours is not started.",
    "fails": "the reference, yours does not pass its check.",
    "broken": "the reference, yours cannot be loaded.",
    "hidden": "the reference, yours also defines {0}, as your {1} does; give one of them another "
    "name.",
    "disagrees": "the reference, your methods together do not pass the check of {0}.",
}


def whose(exercise: Exercise, what: str, *words: str) -> str:
    """A line that says whose code is used; `what` is a key of WHOSE."""
    return f"{exercise.id} {exercise.what}: {WHOSE[what].format(*words)}"


def elsewhere(ids: Sequence[str]) -> list[str]:
    """A line of an engine's report, about the learner's exercises that it has no place for."""
    return [f"Begun or solved, but no part of the engine: {', '.join(ids)}."] if ids else []


def rest(some_are_mine: bool) -> str:
    """The last line of an engine's report, about all the exercises that it did not name."""
    if some_are_mine:
        return "Everything else: the course's own code."
    return "The engine runs the course's own code, none of yours yet."
