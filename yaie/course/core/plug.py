"""Put the learner's code where the reference runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from itertools import groupby
from typing import TYPE_CHECKING, Any

from yaie.course.core import tell
from yaie.course.core.exercise import is_untouched, learner_path, load, load_reference
from yaie.course.core.manifest import Exercise, exercises, find, in_notebook
from yaie.course.core.verdict import judge, judge_loaded

if TYPE_CHECKING:
    from yaie.engine.parts import Parts


def learner_parts(ids: Sequence[str] | None = None) -> Parts:
    """The engine's parts and operators, with the learner's exercises where they pass their checks.

    Where several exercises compute one operator, the last of them does: a kernel of notebook 19
    rather than the Python of notebook 01. `report` names the exercises whose code is the
    learner's, and those that were started but cannot be used, and why. The reference runs for all
    that it does not name.

    Args:
        ids: the exercises that may be used; None for all.

    Raises ValueError for an exercise that no engine can be built with.
    """
    from yaie.engine.parts import Parts

    wanted = _wanted(ids)
    unknown = {e.part for e in wanted if e.part} - {f.name for f in fields(Parts)}
    if unknown:
        raise ValueError(f"Parts has no field {', '.join(sorted(unknown))}")
    operators, taken, lines = _operators([e for e in wanted if e.operator])
    parts, report = _parts([e for e in wanted if e.part], taken.get("sample"))
    # Of all exercises, those that were begun are reported; of exercises that were named, each.
    untouched = tell.WHOSE["not started"]
    told = [x for x in report + lines if ids is not None or not x.endswith(untouched)]
    others = [e for e in exercises() if not (e.part or e.operator)] if ids is None else []
    elsewhere = tell.elsewhere([e.id for e in others if _is_begun(e)])
    report = (*sorted(told), *elsewhere, tell.rest(bool(parts or operators)))
    return Parts(**parts, operators=operators, report=report)


def _is_begun(exercise: Exercise) -> bool:
    """Whether the file was edited. Checks of exercises that no engine needs would take seconds."""
    path = learner_path(exercise)
    return path.exists() and not is_untouched(
        exercise, path.read_text(encoding="utf-8", errors="replace")
    )


def check_ids(ids: list[str] | None) -> list[str] | None:
    """Return the ids. Raises the ValueError of `learner_parts`, before anything is loaded."""
    if ids:
        _wanted(ids)
    return ids


def _wanted(ids: Sequence[str] | None) -> list[Exercise]:
    """The exercises, or those of them, that an engine can be built with."""
    fitting = [e for e in exercises() if e.part or e.operator]
    if ids is None:
        return fitting
    for name in ids:
        if own := in_notebook(name):
            able = ", ".join(e.id for e in own if e in fitting) or "none"
            raise ValueError(f"{name!r} is a notebook; of its exercises, the engine can run {able}")
    chosen = [find(exercise_id) for exercise_id in ids]
    if others := [f"{e.id} ({e.what})" for e in chosen if e not in fitting]:
        able = ", ".join(e.id for e in fitting)
        raise ValueError(
            f"the engine cannot answer with {' or '.join(others)}: an exercise can stand for a "
            "part that an engine is built from, or for a back end of an operator of the model. "
            f"It runs exercises {able}"
        )
    return [e for e in fitting if e in chosen]


def _parts(wanted: Sequence[Exercise], sample: str | None) -> tuple[dict[str, Any], list[str]]:
    """What the learner has of the parts, by name, and a line for each exercise. If an exercise
    computes the operator `sample`, that chooses the tokens, and the sampler waits."""
    parts, report = {}, []
    for part, group in groupby(sorted(wanted, key=lambda e: (e.part, e.id)), lambda e: e.part):
        group = list(group)
        found, lines = compose(group)
        if part == "sampler" and sample is not None:
            waits = {tell.whose(e, "runs"): tell.whose(e, "waits", "sample", sample) for e in group}
            found, lines = load_reference(group[0]), [waits.get(line, line) for line in lines]
        report += lines
        if found is not load_reference(group[0]):
            parts[part] = group[0].fit(found)
    return parts, report


def _operators(
    wanted: Sequence[Exercise],
) -> tuple[dict[str, Any], dict[str, str], list[str]]:
    """What the learner has of the operators, by name, the exercises that compute them, and a line
    for each exercise."""
    operators: dict[str, Any] = {}
    taken: dict[str, str] = {}
    report = []
    for exercise in reversed(wanted):
        name = exercise.operator
        verdict = judge(exercise)
        if verdict.state != "passes":
            report.append(tell.whose(exercise, verdict.state))
        elif name in taken:
            report.append(tell.whose(exercise, "waits", name, taken[name]))
        else:
            found = load(exercise, learner_path(exercise))
            operators[name] = exercise.fit(found)
            taken[name] = exercise.id
            report.append(tell.whose(exercise, "computes", name))
    return operators, taken, report


def compose(chosen: Sequence[Exercise]) -> tuple[Any, list[str]]:
    """One object for exercises of one class or function, the learner's where they pass.

    Every exercise of a class is a subclass of the reference that defines its own method. A class
    that derives from all that pass has the learner's methods, and the reference's for the rest.
    Where two of them define the same name, one would hide the other's: the later one is left out.
    What is joined has to pass every check again, since methods that pass alone need not agree.

    Returns:
        The class or function, and a line for each exercise that says whose code it runs.
    """
    if len({(e.module, e.class_name or e.target) for e in chosen}) > 1:
        names = ", ".join(f"{e.id} {e.what}" for e in chosen)
        raise ValueError(f"only exercises of one class can be joined, got {names}")
    mine: dict[str, Any] = {}
    report = []
    for exercise in chosen:
        verdict = judge(exercise)
        if verdict.state != "passes":
            report.append(tell.whose(exercise, verdict.state))
            continue
        loaded = load(exercise, learner_path(exercise))
        clash = next((c for c in mine if _own(mine[c]) & _own(loaded)), None)
        if clash:
            names = ", ".join(sorted(_own(mine[clash]) & _own(loaded)))
            report.append(tell.whose(exercise, "hidden", names, clash))
            continue
        mine[exercise.id] = loaded
        report.append(tell.whose(exercise, "runs"))
    joined = _joined(chosen[0], list(mine.values()))
    used = [e for e in chosen if e.id in mine]
    failing = [e for e in used if len(used) > 1 and judge_loaded(e, joined).state != "passes"]
    if failing:
        told = {e.id: tell.whose(e, "disagrees", failing[0].id) for e in used}
        report = [told.get(e.id, line) for e, line in zip(chosen, report, strict=True)]
        joined = load_reference(chosen[0])
    return joined, report


def _joined(exercise: Exercise, mine: list[Any]) -> Any:
    if not mine:
        return load_reference(exercise)
    if len(mine) == 1:
        return mine[0]
    return type(exercise.class_name, tuple(mine), {"__module__": mine[0].__module__})


def _own(loaded: Any) -> set[str]:
    """The names that a learner's class defines itself, without Python's bookkeeping. A name that
    the reference sets in each derived class does not count if its value is the inherited one."""
    if not isinstance(loaded, type):
        return set()
    own = {n: v for n, v in vars(loaded).items() if not n.startswith("__") or n == "__init__"}
    return {n for n, v in own.items() if getattr(super(loaded, loaded), n, None) is not v}
