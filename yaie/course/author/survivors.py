"""`python -m yaie.course.author mutate 02.2`: which systematic mistakes an exercise lets pass."""

import multiprocessing
import os
import tempfile
import time
import traceback
from collections.abc import Iterable, Sequence
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path

from yaie.course.author.mutate import Mutant, equal_texts, mutants, normal
from yaie.course.core import cuda, render
from yaie.course.core.exercise import Broken, load
from yaie.course.core.judge import first_failure
from yaie.course.core.limit import TimeUp, time_limit
from yaie.course.core.manifest import Exercise, find, select
from yaie.course.core.texts import kept_file

PATIENCE = 5  # times as long as the solution a mutant may take; an endless one counts as killed


def killed(exercise: Exercise, mutant: Mutant) -> bool:
    """Whether a mutant cannot be loaded, does not end, or has a wrong fact in some case."""
    try:
        if exercise.is_cuda:  # compiling takes its time, and the emulator ends an endless kernel
            return _fails(exercise, mutant.text)
        with time_limit(1.0 + PATIENCE * _seconds_of_solution(exercise.id)):
            return _fails(exercise, mutant.text)
    except (Broken, TimeUp, NotImplementedError, SystemExit):
        return True


@cache
def _seconds_of_solution(exercise_id: str) -> float:
    exercise = find(exercise_id)
    text = render.solution(exercise)
    _fails(exercise, text)  # imports
    began = time.process_time()
    _fails(exercise, text)
    return time.process_time() - began


def _fails(exercise: Exercise, text: str) -> bool:
    if exercise.is_cuda:
        # A kernel that does not compile is a wrong fact of the first case that runs it.
        return first_failure(exercise, kept_file(exercise, text)) is not None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, exercise.file.name)
        path.write_text(text, encoding="utf-8")
        return first_failure(exercise, load(exercise, path)) is not None


def survivors(exercise: Exercise, processes: int = 1) -> list[Mutant]:
    """The mutants that pass all cases and are not listed as equal."""
    known = equal_texts(exercise)
    tried = [mutant for mutant in mutants(exercise) if normal(mutant.text) not in known]
    jobs = [(exercise.id, mutant) for mutant in tried]
    if processes == 1:
        verdicts: Iterable[bool] = map(_job, jobs)
    else:
        context = multiprocessing.get_context("spawn")
        with context.Pool(processes, maxtasksperchild=200) as pool:
            verdicts = pool.map(_job, jobs, chunksize=4)
    return [mutant for mutant, dead in zip(tried, verdicts, strict=True) if not dead]


def outdated(exercise: Exercise) -> list[str]:
    """The `[equal]` entries that no rule makes."""
    made = {normal(mutant.text) for mutant in mutants(exercise)}
    return [name for text, name in equal_texts(exercise).items() if text not in made]


def _job(job: tuple[str, Mutant]) -> bool:
    exercise = find(job[0])
    if exercise.is_cuda:
        return _killed_alone(exercise, job[1])
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):  # what mutants print
        return killed(exercise, job[1])


def _killed_alone(exercise: Exercise, mutant: Mutant) -> bool:
    """The same in a process of its own, since a kernel may end it: that counts as killed."""
    cuda.warm_up()  # once for all
    child = os.fork()
    if not child:
        status = 2  # the tool itself has raised
        try:
            with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
                status = int(killed(exercise, mutant))
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(status)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code == 2:
        raise RuntimeError(f"{exercise.id}: {mutant.rule} in line {mutant.line}")
    return code != 0


def main(which: Sequence[str]) -> int:
    """Print the survivors of exercises as entries that lack their reason.

    Returns the exit status: 1 if any survived or an entry is outdated.
    """
    found = 0
    for exercise in [e for name in which or ["all"] for e in select(name)]:
        alive = survivors(exercise, processes=os.cpu_count() or 1)
        old = outdated(exercise)
        total = len(mutants(exercise))
        print(f"# {exercise.id}: {total} mutants, {len(alive)} survive", flush=True)
        for name in old:
            print(f"# {name} is no longer made by any rule")
        solution = render.solution(exercise)
        for number, mutant in enumerate(alive, start=1):
            name = f"{mutant.rule.replace(' ', '_')}_{mutant.line}_{number}"
            print(f"{name} [equal]: \n" + "\n".join(mutant.edit(solution)) + "\n", flush=True)
        found += len(alive) + len(old)
    return 1 if found else 0
