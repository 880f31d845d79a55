"""`yaie watch`: check whichever exercise is saved."""

import os
import select
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from yaie.course.core import progress, tell
from yaie.course.core.exercise import learner_path
from yaie.course.core.manifest import Exercise, exercises
from yaie.course.core.verdict import judge

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
        watched, stamps, first = None, _stamps(), exercise or next_unsolved()
        due = [first] if first else []  # to be checked now
        while due or watched:
            if due:
                if due[0] is not watched:
                    self.say(f"\nWatching {due[0].shown}. Keys: h for a hint, q to quit.")
                watched = due.pop(0)
                verdict = judge(watched)
                self.say(tell.verdict(watched, verdict, hint="press h"))
                if verdict.state == "passes":
                    following, watched = next_unsolved(after=watched), None
                    if following and not due:
                        due.append(following)
                    continue
            key = self.read_key(SECONDS)
            if key == "q":
                return
            if key == "h":
                self.say(tell.next_hint(watched, progress.take_hint(watched)))
            before, stamps = stamps, _stamps()
            changes = zip(exercises(), stamps, before, strict=True)
            saved = [e for e, now, then in changes if now != then and e not in due]
            due += sorted(saved, key=lambda exercise: exercise is not watched)
        self.say("Every exercise is solved.")


def next_unsolved(after: Exercise | None = None) -> Exercise | None:
    """The first exercise that does not pass: those after `after` first, then from the start."""
    order = list(exercises())
    if after is not None:
        start = order.index(after) + 1
        order = order[start:] + order[: start - 1]
    return next((e for e in order if judge(e).state != "passes"), None)


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
