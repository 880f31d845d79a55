"""Judge an exercise: run its check on the learner's code, within a time limit."""

import gc
import importlib
import json
import linecache
import os
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from yaie.build.cache import content_hash
from yaie.course.core import cuda, native, progress
from yaie.course.core import judge as judging
from yaie.course.core.exercise import (
    Broken,
    describe,
    is_untouched,
    lacks_triton,
    learner_path,
    load,
    read,
    where,
)
from yaie.course.core.limit import PATIENCE, TimeUp, can_limit, time_limit
from yaie.course.core.manifest import Exercise
from yaie.course.core.observe import is_unsolved
from yaie.course.core.paths import ROOT
from yaie.course.core.printed import first_lines

SECONDS = 20.0  # of computing: a check takes at most a few; this is for loops that never end

_UNFINISHED = "This line of the stub still runs; put your code in its place:"

State = Literal["not started", "broken", "fails", "passes"]


@dataclass(frozen=True)
class Verdict:
    """What is known about the learner's code for one exercise.

    Attributes:
        message: why it does not pass, or what was proved.
        crashed: the code stopped with an error or ran out of time, rather than being rejected.
        picture: draws the learner's state at the failure, if the check offers it.
        mistake: the name of the known mistake that the code makes, if it is one.
        can_mend: whether an edit of the file could make it pass; not if the machine cannot run it.
    """

    id: str
    state: State
    message: str
    crashed: bool = False
    picture: Callable[[], Any] | None = None
    mistake: str = ""
    can_mend: bool = True


def judge(
    exercise: Exercise, path: Path | None = None, seconds: float = SECONDS, trusted: bool = False
) -> Verdict:
    """Judge the learner's file, or the file at `path`. Never raises for what is in the file.

    Of a kernel that is `trusted` not to crash the process, this one is used, which is quicker.
    Triton's are judged in its interpreter, which sees where a program strays, and keeps it there.
    """
    path = learner_path(exercise) if path is None else path
    if lacks_triton(exercise):
        from yaie.ops.interpreter import how_triton_runs

        return Verdict(exercise.id, "broken", how_triton_runs(), can_mend=False)
    try:
        text = read(exercise, path)
    except Broken as broken:
        return Verdict(exercise.id, "broken", str(broken))
    if is_untouched(exercise, text):
        return Verdict(exercise.id, "not started", f"Edit {exercise.shown} and save it.")
    if exercise.is_cuda and not trusted:
        return _judge_kernel(exercise, path, seconds, text)
    _import(exercise)
    if exercise.is_triton and not _interprets():
        return _judge_kernel(exercise, path, seconds, text)
    if can_limit():
        return _judge_here(exercise, path, seconds)
    return _judge_elsewhere(exercise, path, seconds)


def _interprets() -> bool:
    from yaie.ops.interpreter import interpreted

    return interpreted()


def _judge_kernel(exercise: Exercise, path: Path, seconds: float, text: str) -> Verdict:
    """Judge in another process, which takes seconds: once for each text that passes."""
    fingerprint = _fingerprint(exercise, path, text)
    if progress.passed(exercise) == fingerprint:
        return Verdict(exercise.id, "passes", exercise.proves)
    verdict = _judge_elsewhere(exercise, path, seconds)
    if verdict.state == "passes":
        progress.remember_pass(exercise, fingerprint)
    return verdict


def _fingerprint(exercise: Exercise, path: Path, text: str) -> str:
    """A hash that changes with the learner's file, its headers, its reference and its check."""
    from yaie.emulator.rewrite import included

    folder = exercise.place.parent
    modules = [*folder.glob("*.py"), *folder.parent.glob("*.py")]  # its own, and those of all
    checks = sorted([*modules, *folder.glob("*.mistakes")])
    sources = [ROOT / exercise.source, *checks]
    texts = (source.read_text(encoding="utf-8") for source in sources)
    return content_hash(text, *included(text, path).values(), *texts)


def _import(exercise: Exercise) -> None:
    """Import the reference and the check, outside of the learner's time limit.

    The garbage collector is off meanwhile: it would search torch's modules while they load, and
    again when the process ends, which is half of the time of a short check. Frozen objects are
    never collected, so nothing is frozen where torch is loaded already, as in a notebook that
    holds an engine.
    """
    names = {exercise.module_name} | (set() if exercise.is_cuda else {exercise.module})
    if names <= set(sys.modules):
        return
    was_enabled, is_new = gc.isenabled(), "torch" not in sys.modules
    if is_new:
        gc.collect()
    gc.disable()
    try:
        for name in names:
            importlib.import_module(name)
    finally:
        if was_enabled:
            gc.enable()
    if is_new:
        gc.freeze()


def _judge_here(
    exercise: Exercise,
    path: Path,
    seconds: float,
    loaded: Callable[[], Any] | None = None,
    earlier: Sequence[warnings.WarningMessage] | None = None,
) -> Verdict:
    """`loaded` returns what is judged, and `earlier` has the compiler's warnings of before."""
    loaded = loaded or partial(load, exercise, path)
    _import(exercise)
    if exercise.is_cuda and not exercise.is_native:
        cuda.warm_up()
    with warnings.catch_warnings(record=exercise.is_cuda) as said:

        def own() -> list[warnings.WarningMessage]:
            return [w for w in (*(earlier or ()), *(said or ())) if w.filename == str(path)]

        def may_be_known(target: Any, failure: judging.Failure) -> bool:
            nonlocal is_cause
            is_cause = bool(own()) and _is_unset(exercise, target, failure)
            return not is_cause

        is_cause = True  # what the compiler warns of
        ask = may_be_known if exercise.is_native else None
        verdict = _tried(exercise, path, seconds, lambda: judging.check(exercise, loaded(), ask))
    if verdict.state != "fails" or not is_cause:
        return verdict
    linecache.checkcache(str(path))
    told = [
        f"{exercise.shown}, line {w.lineno}: the compiler warns: {w.message}\n"
        f"    {linecache.getline(w.filename, w.lineno).strip()}"
        for w in own()
    ]
    return replace(verdict, message="\n".join([*dict.fromkeys(told), verdict.message]))


def _is_unset(exercise: Exercise, target: Any, failure: judging.Failure) -> bool:
    """Whether C++ fails otherwise, or not at all, if variables that it never sets begin as 0: then
    they are the cause, even if a known mistake fits the results."""
    if not native.tells_unset():
        return True
    with native.zeroed():
        other = judging.first_failure(exercise, target)
    return (
        other is None
        or other.number != failure.number
        or not other.fact.same(failure.fact, strict=True)
    )


def judge_loaded(exercise: Exercise, target: Any) -> Verdict:
    """Judge an object that was put together from files that pass."""
    path = learner_path(exercise)
    return _tried(exercise, path, SECONDS, lambda: judging.check(exercise, target))


def _rejected(exercise: Exercise, path: Path, failure: judging.Failure) -> Verdict:
    """A crash that no known mistake explains is told with its line."""
    fact, name = failure.fact, failure.mistake.name if failure.mistake else ""
    if fact.error is not None:
        if name:
            told = [failure.message, *where(fact.error, exercise, path)]
        else:
            call = getattr(fact.error, "given", "")
            fact.error.given = ": ".join(filter(None, [str(failure.case), call]))
            told = ["Your code stopped with an error.", describe(fact.error, exercise, path)]
        message, crashed = "\n".join(told), not name
    else:
        message, crashed = failure.message, False
    return Verdict(exercise.id, "fails", message, crashed, fact.picture, name)


def _tried(exercise: Exercise, path: Path, seconds: float, attempt: Callable[[], None]) -> Verdict:
    try:
        with first_lines(), time_limit(seconds):
            attempt()
    except Broken as broken:
        return Verdict(exercise.id, "broken", str(broken))
    except judging.CheckFailed as failed:
        return _rejected(exercise, path, failed.failure)
    except TimeUp as up:
        told = judging.endless(exercise)
        message = "\n".join([_endless(str(up)), *where(up, exercise, path), told]).strip()
        return Verdict(exercise.id, "fails", message, crashed=True)
    except (Exception, SystemExit) as error:
        if is_unsolved(error):
            message = "\n".join([_UNFINISHED, *where(error, exercise, path)])
            return Verdict(exercise.id, "fails", message)
        message = f"Your code stopped with an error.\n{describe(error, exercise, path)}"
        return Verdict(exercise.id, "fails", message, crashed=True)
    return Verdict(exercise.id, "passes", exercise.proves)


def _endless(time: str) -> str:
    cause = "is there a loop whose condition never changes"
    if "computing" not in time:
        cause = "does it wait for something that never comes, or is the processor busy"
    return f"Your code was still running after {time}; {cause}?"


def _judge_elsewhere(exercise: Exercise, path: Path, seconds: float) -> Verdict:
    """Judge in another process: outside the main thread Python has no alarm, and a kernel that
    loops inside a compiled call hears none."""
    command = [sys.executable, "-m", "yaie.course", "judge", exercise.id, str(path), str(seconds)]
    search = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": search}
    if exercise.is_triton:
        environment["TRITON_INTERPRET"] = "1"
    startup = 60.0  # a cold import of torch on a slow disk
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder, "verdict.json")  # standard output is the learner's to print on
        try:
            done = subprocess.run(
                [*command, str(answer)],
                capture_output=True,
                timeout=PATIENCE * seconds + startup,
                env=environment,
            )
        except subprocess.TimeoutExpired:
            message = _endless(f"{PATIENCE * seconds:g} s")
            return Verdict(exercise.id, "fails", message, crashed=True)
        if done.returncode == -signal.SIGPROF:
            message = _endless(f"{2 * seconds:g} s of computing")
            return Verdict(exercise.id, "fails", message, crashed=True)
        with first_lines():
            print(done.stdout.decode(errors="replace"), end="")
        try:
            verdict = Verdict(**json.loads(answer.read_text(encoding="utf-8")))
            return replace(verdict, picture=_kept_picture(answer.with_suffix(".png")))
        except (FileNotFoundError, json.JSONDecodeError):
            said = done.stderr.decode(errors="replace").strip().splitlines()
    last = said[-1] if said else f"exit status {done.returncode}"
    message = f"Your code ended the process that checked it: {last}"
    return Verdict(exercise.id, "fails", message, crashed=True)


def judge_for_parent(exercise: Exercise, path: Path, seconds: float, answer: Path) -> None:
    """Write the verdict as JSON, for `_judge_elsewhere`, and beside it the picture as PNG.

    A loop inside a compiled call hears no alarm: the system ends the process, after twice the time
    because it counts all threads.
    """
    loaded = None
    with warnings.catch_warnings(record=exercise.is_cuda) as said:
        if exercise.is_cuda:  # which compiles the file: meanwhile torch is imported
            loaded = ThreadPoolExecutor(1).submit(load, exercise, path).result
        _import(exercise)
        signal.setitimer(signal.ITIMER_PROF, 2 * seconds)
        verdict = _judge_here(exercise, path, seconds, loaded, said)
    signal.setitimer(signal.ITIMER_PROF, 0.0)
    if verdict.picture is not None:
        _keep_picture(verdict.picture, answer.with_suffix(".png"))
    answer.write_text(json.dumps(asdict(replace(verdict, picture=None))), encoding="utf-8")


def _keep_picture(draw: Callable[[], Any], path: Path) -> None:
    """A state that is too wrong to be drawn has no picture."""
    from yaie.course.viz.page import png

    try:
        with time_limit(5.0):
            path.write_bytes(png(draw()))
    except (Exception, TimeUp):
        return


def _kept_picture(path: Path) -> Callable[[], Any] | None:
    if not path.exists():
        return None
    content = path.read_bytes()

    def draw() -> Any:
        from yaie.course.viz.page import from_png

        return from_png(content)

    return draw
