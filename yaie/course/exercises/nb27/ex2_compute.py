"""27.2: which back end computes an operator, in which order they are tried, and what is warned."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from yaie.course.core.observe import Case, Observer
from yaie.ops import registry
from yaie.ops.registry import Declined, Unsupported

OPERATOR = "exercise"
CPU = ("reference",)
GPU = ("cuda", "triton", "reference")
SLOW, NARROW = ("cannot", "head_dim is 80"), ("cannot", "no bfloat16")
CRASH = ("crashes", "an illegal memory access was encountered")
ABSENT = ("is missing", "no kernel for this GPU")
DECLINES = ("declines", "computes on a CPU only")


def cases() -> Iterator[Case]:
    four = dict.fromkeys(("reference", "triton", "cuda", "mine"), "computes")
    yield case("reference", four, wanted="reference")
    yield case("auto", four, wanted="cuda")
    yield case("auto", four, wanted="reference", device="cpu")
    yield case("auto", four, wanted="mine", preferred="mine")
    yield case("auto", four, wanted="reference", preferred="reference")
    yield case("auto", {"reference": "computes"}, wanted="reference")
    yield case("auto", {**four, "cuda": SLOW, "triton": NARROW}, wanted="reference")
    yield case("auto", {**four, "cuda": SLOW}, wanted="triton", order=("cuda", "triton"))
    yield case("auto", {**four, "mine": DECLINES}, wanted="cuda", preferred="mine")
    yield case("auto", {"reference": SLOW}, raises="Unsupported", says=SLOW[1:])
    cannot = {"cuda": SLOW, "reference": "computes"}
    yield case("cuda", cannot, raises="ValueError", says=(OPERATOR, "cuda", SLOW[1]))
    yield case("cudaa", four, raises="ValueError", called=[])
    for backend in ("auto", "cuda"):
        crashes = {**four, "cuda": CRASH}
        yield case(backend, crashes, raises="RuntimeError", says=CRASH[1:], called=["cuda"])
        absent = {**four, "cuda": ABSENT}
        yield case(backend, absent, raises="NotImplementedError", says=ABSENT[1:], called=["cuda"])


def case(
    backend: str,
    functions: dict[str, Any],
    wanted: str = "",
    raises: str = "",
    says: tuple[str, ...] = (),
    order: tuple[str, ...] = GPU,
    device: str = "cuda",
    preferred: str | None = None,
    called: list[str] | None = None,
) -> Case:
    """A call of an operator with these back ends.

    Args:
        functions: what each back end does: "computes", or what it raises.
        wanted: the back end that has to compute it; "" if `raises` an error that `says` words.
        called: the back ends that are called; by default `wanted` and those before it that cannot.
    """
    names = [preferred, *(order if device == "cuda" else CPU)]
    tried = [name for name in names if name in functions] if backend == "auto" else [backend]
    passed = tried[: tried.index(wanted)] if wanted else []
    other = ", ".join(f"{n} {f[0]}" for n, f in functions.items() if f != "computes")
    name = f'a call with backend="{backend}" on {device}, where {other or "all back ends can"}'
    if preferred:
        name += f", after prefer({OPERATOR!r}, {preferred!r})"
    if called is None:
        called = [*passed, wanted] if wanted else tried
    reasons = [(name, functions[name][1]) for name in passed if functions[name] != DECLINES]
    return Case(
        name, backend=backend, functions=functions, wanted=wanted, raises=raises, says=says,
        order=order, device=device, preferred=preferred, called=called, passed=reasons,
    )  # fmt: skip


@contextmanager
def registered(case: Case, calls: list[str]) -> Iterator[None]:
    """An operator of its own, whose back ends note that they were called, and the orders."""
    kept, announced = dict(registry.ORDER), set(registry._announced)
    errors = {
        "cannot": Unsupported, "declines": Declined, "crashes": RuntimeError,
        "is missing": NotImplementedError,
    }  # fmt: skip

    def back_end(name: str, does: Any) -> Callable[..., Any]:
        def function(*arguments: Any) -> Any:
            calls.append(name)
            if does != "computes":
                raise errors[does[0]](does[1])
            return (name, *arguments)

        return function

    registry._FUNCTIONS[OPERATOR] = {n: back_end(n, does) for n, does in case.functions.items()}
    registry.ORDER.update(cuda=case.order, cpu=CPU)
    registry._announced.clear()
    registry.prefer(OPERATOR, case.preferred)
    try:
        yield
    finally:
        registry.ORDER.clear()
        registry.ORDER.update(kept)
        registry._announced.clear()
        registry._announced.update(announced)
        registry.prefer(OPERATOR, None)
        del registry._FUNCTIONS[OPERATOR]


def observe(compute: Callable[..., Any], case: Case, see: Observer) -> None:
    calls: list[str] = []
    errors: list[Exception] = []

    def call() -> Any:
        try:
            return compute(OPERATOR, case.backend, case.device, 3, 4)
        except Exception as error:
            errors.append(error)
            raise

    with registered(case, calls), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if case.raises:
            observe_error(call, errors, case, see)
        else:
            with see.call("the call"):
                result = call()
            tried = f"{case.wanted} is the first that can, or the one that is named."
            see.equal("the result", result, (case.wanted, 3, 4), tried)
        order = "Each is tried once, best first, until one can. A name is a demand."
        see.equal("the back ends that were called", calls, case.called, order)
        said = [str(warning.message) for warning in caught]
        see.equal("the number of warnings", len(said), len(case.passed), told(case, len(said)))
        missing = [
            name for name, why in case.passed if not any(name in s and why in s for s in said)
        ]
        problem = f"name no {missing[0]} with its reason" if missing else ""
        see.note("the warnings", missing, problem, "announce(operator, name, reason) does.")
        if case.passed:
            about = sorted({message.partition(":")[0] for message in said})
            see.equal("the list of operators that the warnings begin with", about, [OPERATOR],
                      "announce takes the operator, then the back end.")  # fmt: skip
            caught.clear()
            with see.call("a second call"):
                call()
            often = "A model calls an operator hundreds of times per second: once is enough."
            see.equal("the number of warnings of a second call", len(caught), 0, often)


def told(case: Case, warned: int) -> str:
    """Why there should be more warnings than `warned`, or fewer."""
    if warned <= len(case.passed):
        return "A silent fallback looks like a slow kernel."
    announced = "A warning says that `auto` goes on to another back end."
    if case.backend != "auto":
        return f"{announced} For a back end chosen by name there is no other."
    if case.wanted:
        return f"{announced} Unsupported is announced once per back end, Declined never."
    return (
        f"{announced} After the last of the order there is none: what it raises goes to the caller "
        "unannounced."
    )


def observe_error(
    call: Callable[[], Any], errors: list[Exception], case: Case, see: Observer
) -> None:
    kinds = {"Unsupported": Unsupported, "ValueError": ValueError, "RuntimeError": RuntimeError}
    because = "Only Unsupported means that another back end may be tried."
    if case.raises == "Unsupported":
        because = "No back end follows the last of the order, so its error goes to the caller."
    see.raises("the call", kinds.get(case.raises, NotImplementedError), call, because)
    told = str(errors[0]) if errors else ""
    missing = [word for word in case.says if word not in told]
    problem = f"is {told!r}, without {', '.join(map(repr, missing))}" if missing else ""
    see.note("the error's message", missing, problem, "The caller has to see what went wrong.")
