"""`yaie watch`: check an exercise whenever its file is saved."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from yaie.course.core import progress, tell
from yaie.course.core.exercise import learner_path
from yaie.course.core.manifest import Exercise, exercises
from yaie.course.core.verdict import judge

SECONDS = 0.3  # between two looks at the file

ReadKey = Callable[[float], str]  # waits that long for a key; "" if none came


class Watch:
    """The loop behind `yaie watch`.

    Args:
        say: prints a piece of text.
        read_key: waits some seconds for a key, and returns it or an empty string.
    """

    def __init__(self, say: Callable[[str], None], read_key: ReadKey) -> None:
        self.say = say
        self.read_key = read_key

    def run(self, exercise: Exercise | None = None) -> None:
        """Watch from `exercise` on, until everything passes or `q` is pressed."""
        if exercise is not None and judge(exercise).state == "passes":
            following = next_unsolved(after=exercise)
            if following is not None:
                self.say(tell.watches_another(exercise, following))
                exercise = following
        exercise = exercise or next_unsolved()
        while exercise is not None and self._until_passed(exercise):
            exercise = next_unsolved(after=exercise)
            if exercise is None:
                self.say("Every exercise is solved.")

    def _until_passed(self, exercise: Exercise) -> bool:
        """Check after every save; True once it passes, False if the learner quits."""
        self.say(f"\nWatching {exercise.shown}. Keys: h for a hint, q to quit.")
        seen = "never"
        while True:
            stamp = _stamp(exercise)
            if stamp != seen:
                seen = stamp
                verdict = judge(exercise)
                self.say(tell.verdict(exercise, verdict, hint="press h"))
                if verdict.state == "passes":
                    return True
            key = self.read_key(SECONDS)
            if key == "q":
                return False
            if key == "h":
                self.say(tell.next_hint(exercise, progress.take_hint(exercise)))


def next_unsolved(after: Exercise | None = None) -> Exercise | None:
    """The first exercise that does not pass: those after `after` first, then from the start."""
    order = list(exercises())
    if after is not None:
        start = order.index(after) + 1
        order = order[start:] + order[: start - 1]
    return next((e for e in order if judge(e).state != "passes"), None)


def _stamp(exercise: Exercise) -> tuple[int, int] | None:
    try:
        found = learner_path(exercise).stat()
    except FileNotFoundError:
        return None
    return found.st_mtime_ns, found.st_size


@contextmanager
def keys() -> Iterator[ReadKey]:
    """Single key presses from the terminal; without one, only waiting."""
    if os.name != "posix" or not sys.stdin.isatty():
        import time

        def wait(seconds: float) -> str:
            time.sleep(seconds)
            return ""

        yield wait
        return
    import termios
    import tty

    def read_key(seconds: float) -> str:
        ready, _, _ = select.select([sys.stdin], [], [], seconds)
        return os.read(sys.stdin.fileno(), 1).decode(errors="ignore") if ready else ""

    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield read_key
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
