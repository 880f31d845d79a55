"""The judge: a learner's code over the cases of its exercise, and which known mistake it makes.

The learner and an oracle meet in `observe`, case by case. At the first case with a wrong fact the
known mistakes are run on that case too, and the one that gives the same facts says what to repair.
Where none does, the case, what came, what was wanted and why are told.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from yaie.course.core import render
from yaie.course.core.compare import is_tensor, sentence, short
from yaie.course.core.limit import TimeUp, time_limit
from yaie.course.core.manifest import Exercise
from yaie.course.core.mistakes import BadMistake, Mistake, read_mistakes, version
from yaie.course.core.observe import Case, Fact, Found, Raised, first_wrong, observed
from yaie.course.core.texts import kept_file

SHRINKING = 2.0  # seconds to look for a shorter trace
DIAGNOSING = 4.0  # seconds after which no further mistake is begun
ONE_MISTAKE = 2.0  # seconds that a mistake may take for one case
MOST_COMPILED = 5  # mistakes that are compiled because they have the learner's symptom


@dataclass
class Failure:
    """The first case that a learner's code gets wrong.

    Attributes:
        number: of the case.
        facts: all that was observed in it.
        mistake: the known mistake that it looks like, if any.
    """

    case: Case
    number: int
    facts: list[Fact]
    mistake: Mistake | None = None

    @property
    def fact(self) -> Fact:
        return first_wrong(self.facts)

    @property
    def message(self) -> str:
        """What was computed, what was expected, and how to fix it."""
        fact = self.fact
        told = self.mistake.sentence if self.mistake else fact.because
        lines = sentence(fact.what, fact.problem).splitlines()
        place = str(self.case)
        head = f"{place}: {lines[0]}" if place else lines[0]
        word = r"(?![a-z] (?:is|of|and) )[a-z]+\b(?!\s*[=<>(.\[])" if place else "the "
        if re.match(word, head):  # a word, not a name
            head = head[:1].upper() + head[1:]
        if len(lines) > 1:  # a finding, with its source line below
            return "\n".join(filter(None, [head, *lines[1:], told]))
        return f"{head.rstrip('.')}. {told}".strip() if told else head


class CheckFailed(AssertionError):
    """The learner's code does something else than the exercise asks for."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def check(
    exercise: Exercise, target: Any, may_be_known: Callable[[Any, Failure], bool] | None = None
) -> None:
    """Observe `target` in every case. `may_be_known`: whether a known mistake may be the cause of
    its failure; without it, one always may.

    Raises:
        CheckFailed: with the first wrong case and, if it is a known one, the mistake.
    """
    failure = first_failure(exercise, target)
    if failure is None:
        return
    with suppress(TimeUp):  # what went wrong is known, though its name may come too late
        failure = shortest(exercise, target, failure)
        if may_be_known is None or may_be_known(target, failure):
            failure.mistake = diagnose(exercise, target, failure)
    raise CheckFailed(failure)


def first_failure(
    exercise: Exercise, target: Any, cases: Iterable[Case] | None = None
) -> Failure | None:
    """The first case that `target` gets wrong; None if it gets all of them right."""
    for number, case in enumerate(exercise.cases() if cases is None else cases):
        facts = observed(exercise.observe, target, case)
        if first_wrong(facts):
            return Failure(case, number, facts)
    return None


def shortest(exercise: Exercise, target: Any, failure: Failure) -> Failure:
    """The same failure with as short a trace as is found in a while."""
    if not failure.case.trace:
        return failure

    def fails(trace: Sequence[Any]) -> Failure | None:
        case = failure.case.with_trace(trace)
        facts = observed(exercise.observe, target, case)
        return Failure(case, failure.number, facts) if first_wrong(facts) else None

    best, size = failure, len(failure.case.trace)
    try:
        with time_limit(SHRINKING):
            while size := size // 2 if size > 1 else 0:
                end = len(best.case.trace)
                while end > 0:  # from the end: what follows the failure goes first
                    start = max(0, end - size)
                    trace = list(best.case.trace)
                    del trace[start:end]
                    best = fails(trace) or best
                    end = start
    except TimeUp:
        pass
    return best


# ------------------------------------------------------------------------------------- diagnosis


def diagnose(
    exercise: Exercise, target: Any, failure: Failure, versions: Versions | None = None
) -> Mistake | None:
    """The known mistake that a learner's code makes, if it is one.

    One that begins as wrong in this case: those that get every earlier case right, as the learner
    does, before the others; of each, one whose facts are all the learner's if there is one.
    """
    if isinstance(failure.fact.got, Found) and failure.fact.got.kind == "time_limit":
        never = [m for m in mistakes(exercise) if "endless" in m.flags]
        return replace(never[0], sentence=endless(exercise)) if never else None
    versions = versions or Versions(exercise, DIAGNOSING)
    near = []
    for mistake in _candidates(exercise, failure):
        facts = versions.facts(mistake, failure.case, failure.number)
        wrong = first_wrong(facts or [])
        if wrong and wrong.same(failure.fact, strict=False):
            near.append((mistake, facts))
        if versions.seconds > versions.patience:
            break
    late = [(m, facts) for m, facts in near if versions.passes_before(m, failure)]
    if not late and isinstance(failure.fact.got, Raised) and failure.fact.got.is_foreign:
        return None  # one error has many causes; its line says more
    if same := _alike_ones(late or near, failure):
        return _told_apart(exercise, target, failure, same, versions)
    return None


def _alike_ones(tried: Sequence[tuple[Mistake, list[Fact]]], failure: Failure) -> list[Mistake]:
    if same := [m for m, facts in tried if _same(facts, failure.facts, strict=True)]:
        return same
    if isinstance(failure.fact.got, Found) and failure.fact.got.kind == "deadlock":
        return []  # many mistakes end in the same wait: which of them it was is a guess
    same = [m for m, facts in tried if _same(facts, failure.facts, strict=False)]
    return same or [m for m, _ in tried]


def endless(exercise: Exercise) -> str:
    """What to tell of code that does not end."""
    told = [m.sentence for m in mistakes(exercise) if "endless" in m.flags]
    return " Or: ".join(told)


def mistakes(exercise: Exercise) -> list[Mistake]:
    """The entries of an exercise that are mistakes."""
    return [m for m in entries(exercise) if not m.flags & {"right", "equal"}]


def entries(exercise: Exercise) -> tuple[Mistake, ...]:
    return read_mistakes(exercise.place.with_suffix(".mistakes"))


def _candidates(exercise: Exercise, failure: Failure) -> list[Mistake]:
    """The mistakes to run: all, or, where each must be compiled, those with this symptom."""
    found = [m for m in mistakes(exercise) if "endless" not in m.flags]
    known = symptoms(exercise)
    if known is None:
        return found
    seen = symptom(failure)
    same = [m for m in found if alike(known.get(m.name), failure)]
    near = [m for m in found if m not in same and (known.get(m.name) or [None])[:2] == seen[:2]]
    near.sort(key=lambda m: _kind(known[m.name]) != _kind(seen))
    return (same + near)[:MOST_COMPILED]


def _kind(seen: list[Any]) -> str:
    """The kind of a finding, by its symptom."""
    return seen[2].partition(":")[0] if isinstance(seen[2], str) else ""


def _told_apart(
    exercise: Exercise, target: Any, failure: Failure, same: list[Mistake], versions: Versions
) -> Mistake:
    """Of mistakes that agree with the learner on one case, those that do on later ones too."""
    for number in range(failure.number + 1, len(versions.cases)):
        if len(same) == 1 or versions.seconds > versions.patience:
            break
        case = versions.cases[number]
        theirs = _limited(exercise, target, case)
        same = [m for m in same if _agrees(versions.facts(m, case, number), theirs)] or same
    return same[0]


def _limited(exercise: Exercise, target: Any, case: Case) -> list[Fact] | None:
    try:
        with time_limit(ONE_MISTAKE):
            return observed(exercise.observe, target, case)
    except (TimeUp, NotImplementedError):
        return None


def _agrees(facts: list[Fact] | None, theirs: list[Fact] | None) -> bool:
    return facts is not None and theirs is not None and _same(facts, theirs, strict=False)


def _same(facts: Sequence[Fact], others: Sequence[Fact], strict: bool) -> bool:
    pairs = zip(facts, others, strict=False)
    return len(facts) == len(others) and all(a.same(b, strict) for a, b in pairs)


class Versions:
    """The wrong and the right versions of an exercise, loaded as a learner's file is.

    Args:
        patience: seconds of computing after which no further version should be begun; with the
            default, nothing here depends on how fast the machine is.
    """

    def __init__(self, exercise: Exercise, patience: float = float("inf")) -> None:
        self.exercise, self.patience = exercise, patience
        self.cases = list(exercise.cases())
        self.seconds = 0.0  # spent on running them
        self._loaded: dict[str, Any] = {}
        self._facts: dict[tuple[str, int], list[Fact] | None] = {}

    def text(self, entry: Mistake) -> str:
        exercise = self.exercise
        text = version(render.solution(exercise), entry, entries(exercise), exercise.is_cuda)
        return text if exercise.is_cuda else render.with_imports(exercise, text)

    def path(self, entry: Mistake) -> Path:
        """The version as a file."""
        return kept_file(self.exercise, self.text(entry))

    def load(self, entry: Mistake) -> Any:
        """As a learner's file is; a kernel is compiled when it is observed."""
        from yaie.course.core.exercise import Broken, load

        if entry.name not in self._loaded:
            path = self.path(entry)
            try:
                is_cuda = self.exercise.is_cuda
                self._loaded[entry.name] = path if is_cuda else load(self.exercise, path)
            except Broken as broken:
                raise BadMistake(f"{self.exercise.id} {entry.name}: {broken}") from None
        return self._loaded[entry.name]

    def passes_before(self, entry: Mistake, failure: Failure) -> bool:
        """Whether a version gets all cases right that come before a failure's; or no time left."""
        for number in range(failure.number):
            if self.seconds > 2 * self.patience:
                break
            facts = self.facts(entry, self.cases[number], number)
            if facts is None or first_wrong(facts):
                return False
        return True

    def facts(self, entry: Mistake, case: Case, number: int) -> list[Fact] | None:
        """What is observed of a version in a case; None if it takes too long.

        It is kept under the case's number, unless the case's trace was shortened.
        """
        key = entry.name, number
        is_whole = case.trace is None or len(case.trace) == len(self.cases[number].trace)
        if is_whole and key in self._facts:
            return self._facts[key]
        target = self.load(entry)  # now, since the alarm must not interrupt its imports
        began = time.process_time()
        limit = ONE_MISTAKE + (3.0 if self.exercise.is_cuda else 0.0)
        try:
            with time_limit(limit) if math.isfinite(self.patience) else nullcontext():
                facts = observed(self.exercise.observe, target, case)
        except TimeUp:
            facts = None
        for got in (fact.got for fact in facts or ()):
            if isinstance(got, Raised) and got.kind in ("CompileError", "SyntaxError"):
                raise BadMistake(f"{self.exercise.id} {entry.name}: {got.message}")
            if isinstance(got, Found) and got.kind == "compiler":
                raise BadMistake(f"{self.exercise.id} {entry.name} does not compile")
        self.seconds += time.process_time() - began
        if is_whole:
            self._facts[key] = facts
        return facts


# -------------------------------------------------------------------------------------- symptoms


def symptom(failure: Failure) -> list[Any]:
    """A failure in a few words that a file can keep: the case, the fact, a sketch of its value."""
    return [str(failure.case), failure.fact.what, _sketch(failure.fact)]


def symptoms(exercise: Exercise) -> dict[str, list[Any]] | None:
    """The symptom of every mistake, for an exercise whose mistakes take long to run."""
    path = symptoms_file(exercise)
    return _read(path, path.stat().st_mtime_ns) if path.exists() else None


def symptoms_file(exercise: Exercise) -> Path:
    """Where the author's tool writes them."""
    return exercise.place.with_suffix(".symptoms.json")


def all_symptoms(exercise: Exercise) -> Iterator[tuple[str, list[Any]]]:
    """Run every mistake over the cases: its name and symptom."""
    versions = Versions(exercise)
    for mistake in mistakes(exercise):
        if "endless" not in mistake.flags:
            failure = first_failure(exercise, versions.load(mistake))
            if failure is None:
                raise ValueError(f"{exercise.id}: the check accepts {mistake.name}")
            yield mistake.name, symptom(failure)


@lru_cache(maxsize=32)
def _read(path: Path, _mtime: int) -> dict[str, list[Any]]:
    return json.loads(path.read_text(encoding="utf-8"))


def _sketch(fact: Fact) -> Any:
    got = fact.got
    if isinstance(got, Found):
        return f"{got.kind}: {got.text}"
    if isinstance(got, Raised):
        return got.kind
    if is_tensor(got) and got.numel():
        flat = got.flatten()[: 1 << 16].double()
        return [_rounded(x) for x in flat[:: max(1, len(flat) // 8)][:8].tolist()]
    return _rounded(got) if isinstance(got, float) else short(got)


def _rounded(x: float) -> float | str:
    """Four digits; a word for NaN and the infinities, for which JSON has none."""
    return float(f"{x:.4g}") if math.isfinite(x) else str(x)


def alike(known: list[Any] | None, failure: Failure) -> bool:
    """Whether a failure has a known symptom; numbers may differ by one in a hundred."""
    seen = symptom(failure)
    if known is None or known[:2] != seen[:2]:
        return False
    mine, theirs = known[2], seen[2]
    if isinstance(mine, list) and isinstance(theirs, list) and len(mine) == len(theirs):
        return all(_close(a, b) for a, b in zip(mine, theirs, strict=True))
    return _close(mine, theirs)


def _close(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return abs(a - b) <= 1e-2 * max(abs(a), abs(b)) + 1e-3
    return a == b
