"""`yaie watch`: check whichever exercise is saved."""

import os
import select
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from yaie.course.core import progress, tell
from yaie.course.core.exercise import learner_path
from yaie.course.core.manifest import Exercise, exercises
from yaie.course.core.verdict import Verdict, judge

SECONDS = 0.3  # between two looks at the files

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
        """Check `exercise`, by default the first that does not pass, and then whichever are saved.
        After a pass, check the next that does not pass, until all pass or `q` is pressed."""
        watched, stamps = None, _stamps()
        # The exercises to report now, with the verdicts that are known.
        due = next_unsolved() if exercise is None else {exercise: None}
        while due or watched:
            if due:
                before, watched = watched, next(iter(due))
                if watched is not before:
                    self.say(f"\nWatching {watched.shown}. Keys: h for a hint, q to quit.")
                verdict = due.pop(watched) or judge(watched)
                self.say(tell.verdict(watched, verdict, hint="press h", again="save it"))
                if verdict.state == "passes":
                    due, watched = due or next_unsolved(after=watched), None
                    continue
            key = self.read_key(SECONDS)
            if key == "q":
                return
            if key == "h":
                self.say(tell.next_hint(watched, progress.take_hint(watched)))
            before, stamps = stamps, _stamps()
            changes = zip(exercises(), stamps, before, strict=True)
            saved = [e for e, now, then in changes if now != then]
            due |= dict.fromkeys(sorted(saved, key=lambda exercise: exercise is not watched))
        self.say("Every exercise is solved.")


def next_unsolved(after: Exercise | None = None) -> dict[Exercise, Verdict | None]:
    """The first exercise that does not pass, with its verdict: those after `after` first, then from
    the start. Empty if all pass."""
    order = list(exercises())
    if after is not None:
        start = order.index(after) + 1
        order = order[start:] + order[: start - 1]
    for exercise in order:
        if (verdict := judge(exercise)).state != "passes":
            return {exercise: verdict}
    return {}


def _stamps() -> list[tuple[int, int] | None]:
    """When each exercise's file was saved, in ns, and its size in bytes; None without a file."""
    return [_stamp(exercise) for exercise in exercises()]


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
