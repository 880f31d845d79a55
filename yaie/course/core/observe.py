"""What is observed of a learner's code in one case: facts, in order, beside what an oracle says.

    def cases():
        yield Case("a tree that holds [1, 2, 3, 4]", held=[1, 2, 3, 4], prompt=[1, 2, 9])

    def observe(RadixTree, case, see):
        tree = grown(RadixTree, case.held)
        with see.call(f"match({case.prompt})"):
            found = tree.match(case.prompt)
        see.equal("its length", found.length, 2, because="The first two tokens agree.")

Observing never stops at a wrong fact. The judge compares all facts of a case with those of the
known mistakes, and tells the learner the first wrong one.
"""

from __future__ import annotations

import copy
import dis
import random
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import Any

from yaie.course.core.compare import difference, is_tensor, short, tensor_difference
from yaie.course.core.paths import ROOT

UNSOLVED = "Exercise "  # how the message of a stub's NotImplementedError begins
DEPTH = 1000  # Python's default limit of a recursion


class Case(SimpleNamespace):
    """One situation in which a learner's code is observed.

    Args:
        name: where we are, in words that a message can begin with: "a tree that holds [1, 2]".
            A function of the case where the words follow from its trace.
        trace: operations of which any subset is a valid case too. When a case with a trace fails,
            the judge looks for a shortest trace that still fails.
        data: whatever `observe` needs, under names of its own.
    """

    def __init__(
        self, name: str | Callable[[Case], str], *, trace: Sequence[Any] | None = None, **data: Any
    ) -> None:
        super().__init__(**data)
        self.name, self.trace = name, trace

    def __str__(self) -> str:
        return self.name(self) if callable(self.name) else self.name

    def with_trace(self, trace: Sequence[Any]) -> Case:
        """The same case with another trace."""
        data = {key: value for key, value in vars(self).items() if key not in ("name", "trace")}
        return Case(self.name, trace=trace, **data)


@dataclass(frozen=True)
class Raised:
    """What came instead of a result: an error, by its type and message.

    Attributes:
        is_foreign: no `raise` of the code under test made it, so the message is not its author's.
    """

    kind: str
    message: str
    is_foreign: bool = field(default=False, compare=False)

    def resembles(self, other: Raised) -> bool:
        """Whether both may have the same cause. The author of a `raise` chooses its words, so only
        the kinds count; a library has one message per fault, apart from names and numbers."""
        if self.kind != other.kind or not (self.is_foreign and other.is_foreign):
            return self.kind == other.kind
        mine, theirs = _words(self.message), _words(other.message)
        return 2 * len(mine & theirs) >= min(len(mine), len(theirs))


@dataclass(frozen=True)
class Found:
    """A finding of the emulator's checked mode, or an error that ended a launch.

    Attributes:
        kind: such as "race", "out_of_bounds", "time_limit".
        text: the source line it is at, without its white space; "" if there is none.
        where: which element and which threads; "" if that is not known.
        memory: where the element lies: "global", "shared" or another; "" if that is not known.
    """

    kind: str
    text: str = ""
    where: str = ""
    memory: str = ""


@dataclass(frozen=True)
class Fact:
    """One observation.

    Attributes:
        what: names it, such as "the length".
        got: a copy of what came.
        problem: says how that differs from what an oracle gives; "" if it does not.
        because: why the oracle's value is right.
        rtol, atol: how far two values of this fact may lie apart and still be the same.
        error: the exception, for a fact that is `Raised`.
        picture: draws the learner's state at this point.
    """

    what: str
    got: Any
    problem: str = ""
    because: str = ""
    rtol: float = 0.0
    atol: float = 0.0
    error: BaseException | None = None
    picture: Callable[[], Any] | None = None

    @property
    def is_wrong(self) -> bool:
        return bool(self.problem)

    def same(self, other: Fact, strict: bool = True) -> bool:
        """Whether another run gave the same; not strict: an error's message may differ."""
        if self.what != other.what or self.is_wrong != other.is_wrong:
            return False
        if not strict and isinstance(self.got, Raised) and isinstance(other.got, Raised):
            return self.got.resembles(other.got)
        if not strict and isinstance(self.got, Found) and isinstance(other.got, Found):
            mine, theirs = self.got, other.got
            alike = mine.text == theirs.text or mine.where == theirs.where
            return (mine.kind, mine.memory) == (theirs.kind, theirs.memory) and alike
        return not difference(self.got, other.got, self.rtol, self.atol)


class Stop(Exception):
    """Ends the observation of a case in which nothing more can be observed."""


class Observer:
    """Notes facts. Each method takes what it is called, what came, and what an oracle says."""

    def __init__(self) -> None:
        self.facts: list[Fact] = []
        self._picture: Callable[[], Any] | None = None

    def equal(self, what: str, got: Any, want: Any, because: str = "") -> bool:
        """Note `got`, which should equal `want`: numbers, strings, containers, tensors."""
        return self.note(what, got, difference(got, want), because)

    def close(
        self,
        what: str,
        got: Any,
        want: Any,
        because: str = "",
        rtol: float = 1e-4,
        atol: float = 1e-5,
    ) -> bool:
        """Note a tensor or float that may differ by `atol + rtol * |want|`.

        Kind, shape, dtype and the places of NaN have to agree.
        """
        problem = tensor_difference(got, want, rtol, atol)
        return self.note(what, got, problem, because, rtol=rtol, atol=atol)

    def true(self, what: str, condition: Any, problem: str, because: str = "") -> bool:
        """Note whether a condition holds. `problem` continues `what` where it does not.

        `see.true("match(…)", found is not None, "returned None")`
        """
        return self.note(what, bool(condition), "" if condition else problem, because)

    def at_most(self, what: str, got: float, most: float, because: str = "") -> bool:
        """Note a cost, which should not exceed `most`."""
        problem = "" if got <= most else f"is {short(got)}, expected at most {short(most)}"
        return self.note(what, got, problem, because)

    def note(
        self,
        what: str,
        got: Any,
        problem: str = "",
        because: str = "",
        rtol: float = 0.0,
        atol: float = 0.0,
    ) -> bool:
        """Note a value of which the caller has decided whether, and how, it is wrong.

        Two tensors within `rtol` and `atol`, such as two samples, are the same symptom.

        Returns whether the value is right.
        """
        fact = Fact(what, snapshot(got), problem, because, rtol, atol, picture=self._picture)
        self.facts.append(fact)
        return not problem

    def raises(
        self, what: str, kind: type[Exception], call: Callable[[], Any], because: str = ""
    ) -> bool:
        """Note what `call()` does, which should raise `kind`. `what` names the call."""
        try:
            got = call()
        except Exception as error:
            if is_unsolved(error):
                raise
            came = Raised(type(error).__name__, str(error))
            right = isinstance(error, kind)
            told = f"{came.kind}: {error}".rstrip(": ")
            problem = "" if right else f"should raise {kind.__name__}, got {told}"
            return self.note(what, Raised(kind.__name__, "") if right else came, problem, because)
        problem = f"should raise {kind.__name__}, returned {short(got)}"
        return self.note(what, got, problem, because)

    @contextmanager
    def call(self, what: str) -> Iterator[None]:
        """Name the call that the lines inside make, for the message if it raises."""
        try:
            yield
        except (Stop, TimeoutError):
            raise
        except Exception as error:
            if not hasattr(error, "given"):
                error.given = what
            raise

    def require(self, what: str, condition: Any, problem: str, because: str = "") -> None:
        """Note whether a condition holds that all further facts need; the case ends if not."""
        if not self.true(what, condition, problem, because):
            self.stop()

    def kind(self, what: str, got: Any, kind: type | tuple[type, ...], words: str = "") -> None:
        """Note the type of what a call returned; the case ends if it is not of this kind."""
        expected = words or f"a {kind.__name__}"
        right = isinstance(got, kind)
        problem = "" if right else f"returned {short(got)}, expected {expected}"
        if not self.note(what, type(got).__name__, problem):
            self.stop()

    def parts(self, what: str, got: Any, *names: str) -> tuple[Any, ...]:
        """What a call returned, if it is a tuple with a part for each name; else the case ends."""
        is_known = isinstance(got, (list, tuple))
        came = f"a {type(got).__name__} of {len(got)}" if is_known else short(got)
        right = isinstance(got, tuple) and len(got) == len(names)
        problem = "" if right else f"returned {came}, expected a tuple ({', '.join(names)})"
        if not self.note(what, came, problem):
            self.stop()
        return got

    def tuples(self, what: str, got: Any, length: int, words: str) -> list[tuple[Any, ...]]:
        """`got` as a list of tuples of this length; if it is none, note that and end the case."""
        parts = list(got) if isinstance(got, Iterable) else [got]
        if not all(isinstance(part, tuple | list) and len(part) == length for part in parts):
            self.require(what, False, f"returned {short(got)}, expected {words}")
        return [tuple(part) for part in parts]

    def unchanged(self, names: Iterable[str], after: Iterable[Any], before: Iterable[Any]) -> None:
        """Note whether a call left its arguments, named in order, as they were."""
        for name, x, kept in zip(names, after, before, strict=True):
            self.equal(f"{name} after the call", x, kept, "Leave the arguments as they are.")

    def picture(self, draw: Callable[[], Any] | None) -> None:
        """From here on, a wrong fact comes with the figure that `draw()` makes."""
        self._picture = draw

    def stop(self) -> None:
        """End the case here: what follows would have no meaning."""
        raise Stop

    def stop_if_wrong(self) -> None:
        """End the case after a wrong fact: what follows would have no meaning."""
        if first_wrong(self.facts):
            self.stop()

    def crashed(self, error: Exception) -> None:
        """Note an error that ended the case."""
        what = getattr(error, "given", "") or "your code"
        kind = type(error).__name__
        self.facts.append(
            Fact(
                what,
                Raised(kind, str(error), _is_foreign(error)),
                f"raised {kind}: {error}".rstrip(": "),
                error=error,
                picture=self._picture,
            )
        )

    def found(self, found: Found, problem: str, because: str, quoted: str = "") -> None:
        """Note a fault that the emulator or Triton's interpreter found, with its line or with the
        lines that are `quoted`, and end the case."""
        quoted = quoted or (f"    {found.text}" if found.text else "")
        problem = f"{problem}\n{quoted}" if quoted else problem
        self.facts.append(Fact("", found, problem, because, picture=self._picture))
        self.stop()


def observed(observe: Callable[[Any, Case, Observer], None], target: Any, case: Case) -> list[Fact]:
    """The facts of one case, which a repetition finds again: random numbers restart, and recursion
    ends at Python's own depth, which `torch.compile` raises for the whole process.

    Raises:
        NotImplementedError: an unsolved stub was called.
    """
    random.seed(0)
    if torch := sys.modules.get("torch"):
        on_gpu = torch.cuda.is_initialized()
        seed = torch.manual_seed if on_gpu else torch.default_generator.manual_seed  # 1 ms, 1 µs
        seed(0)
    see, before = Observer(), sys.getrecursionlimit()
    try:
        sys.setrecursionlimit(DEPTH)
        observe(target, case, see)
    except Stop:
        pass
    except Exception as error:
        if is_unsolved(error):
            raise
        see.crashed(error)
    finally:
        sys.setrecursionlimit(before)
    return see.facts


def _words(message: str) -> set[str]:
    """The words of an error's message, without the names between quotes."""
    return set(re.findall(r"[a-z]{3,}", re.sub(r"'[^']*'", "", message.lower())))


def _is_foreign(error: BaseException) -> bool:
    """Whether an error comes from another line than a `raise` of the code under test."""
    if not (calls := calls_of(error)):
        return False
    code = calls[-1].tb_frame.f_code
    path = Path(code.co_filename)
    of_a_library = "site-packages" in path.parts or ROOT / "yaie" in path.parents
    return of_a_library or dis.opname[code.co_code[calls[-1].tb_lasti]] != "RAISE_VARARGS"


def calls_of(error: BaseException) -> list[TracebackType]:
    """The calls that an error has left, from where it was caught to where it was raised."""
    calls, call = [], error.__traceback__
    while call is not None:
        calls.append(call)
        call = call.tb_next
    return calls


def first_wrong(facts: Sequence[Fact]) -> Fact | None:
    return next((fact for fact in facts if fact.is_wrong), None)


def is_unsolved(error: BaseException) -> bool:
    """Whether this is the error that a stub raises in place of its solution."""
    return isinstance(error, NotImplementedError) and str(error).startswith(UNSOLVED)


def snapshot(value: Any) -> Any:
    """A copy that later steps do not change; the text of what cannot be copied or compared."""
    if is_tensor(value):
        return value.detach().clone()
    if value is None or isinstance(value, (bool, int, float, str, bytes, Path, Raised, Found)):
        return value
    if type(value) in (list, tuple, set, frozenset):
        return type(value)(map(snapshot, value))
    if type(value) is dict:
        return {key: snapshot(item) for key, item in value.items()}
    if type(value).__eq__ is object.__eq__:  # another run's would never be equal
        return re.sub(r" at 0x[0-9a-f]+", "", repr(value))
    try:
        return copy.deepcopy(value)
    except Exception:
        return repr(value)
