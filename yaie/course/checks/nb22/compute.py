"""The check of the dispatcher: who computes an operator, in which order, and what is said of it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from yaie.course.core.expect import CheckFailed, equal, fail, given, raises, true

OPERATOR = "exercise"


class Recorder:
    """Back ends that note who was called."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def of(self, name: str, answer: Any) -> Callable[..., Any]:
        """A back end that gives an answer, or raises it."""

        def function(*arguments: Any) -> Any:
            self.calls.append(name)
            if isinstance(answer, Exception):
                raise answer
            return answer(*arguments) if callable(answer) else answer

        return function


@contextmanager
def operator(orders: dict[str, Sequence[str]], functions: dict[str, Any]) -> Iterator[None]:
    """An operator of its own for as long as the check runs, and the orders of the devices."""
    from yaie.ops import registry

    kept, announced = dict(registry.ORDER), set(registry._announced)
    registry._FUNCTIONS[OPERATOR] = dict(functions)
    registry.ORDER.update({device: tuple(names) for device, names in orders.items()})
    registry._announced.clear()
    try:
        yield
    finally:
        registry.ORDER.clear()
        registry.ORDER.update(kept)
        registry._announced.clear()
        registry._announced.update(announced)
        registry.prefer(OPERATOR, None)
        del registry._FUNCTIONS[OPERATOR]


def check_compute(compute: Callable[..., Any]) -> None:
    the_named_one(compute)
    the_first_that_can(compute)
    who_cannot_is_passed_over(compute)
    a_demand_is_a_demand(compute)
    other_errors_are_the_callers(compute)


def call(compute: Callable[..., Any], backend: str, device: str = "cuda") -> tuple[Any, list[str]]:
    """What came, and the texts of the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = compute(OPERATOR, backend, device, 3, 4)
    return result, [str(warning.message) for warning in caught]


def the_named_one(compute: Callable[..., Any]) -> None:
    seen = Recorder()
    functions = {
        name: seen.of(name, lambda a, b, name=name: (name, a, b)) for name in ("reference", "cuda")
    }
    what = 'compute("exercise", "reference", "cuda", 3, 4), where cuda could as well'
    with operator({"cuda": ("cuda", "reference")}, functions), given(what):
        result, _ = call(compute, "reference")
        equal(
            result,
            ("reference", 3, 4),
            "the result",
            because="The back end that is named computes it, with the arguments as they came.",
            mistakes=[
                (None, "Nothing was returned: what the back end returns is the result."),
                (
                    ("cuda", 3, 4),
                    'The first of the order computed it. A name other than "auto" is a demand.',
                ),
            ],
        )
        equal(seen.calls, ["reference"], "the back ends that were called")


def the_first_that_can(compute: Callable[..., Any]) -> None:
    seen = Recorder()
    functions = {name: seen.of(name, name) for name in ("reference", "triton", "cuda", "mine")}
    orders = {"cuda": ("cuda", "triton", "reference"), "cpu": ("reference",)}
    with operator(orders, functions):
        for device, wanted in (("cuda", "cuda"), ("cpu", "reference")):
            with given(f'"auto" on {device}, where the order is {", ".join(orders[device])}'):
                result, said = call(compute, "auto", device)
                equal(result, wanted, "the result", mistakes=[
                    ("reference", "The reference computed it, though another stands before it in "
                     "the order of this device."),
                    ("cuda", "cuda stands in no list of this device: order(operator, device) says "
                     "who is tried where.")])  # fmt: skip
                equal(said, [], "the warnings", because="Nobody was passed over.")
        with given('prefer("exercise", "mine"), then "auto"'):
            from yaie.ops.registry import prefer

            prefer(OPERATOR, "mine")
            equal(call(compute, "auto")[0], "mine", "the result", because="order() puts the "
                  "preferred one first; ORDER alone does not know of it.")  # fmt: skip
    functions = {"reference": seen.of("reference", "only")}
    with operator(orders, functions), given("an operator that has nothing but a reference"):
        equal(call(compute, "auto")[0], "only", "the result")


def who_cannot_is_passed_over(compute: Callable[..., Any]) -> None:
    from yaie.ops.registry import Unsupported

    seen = Recorder()
    functions = {
        "cuda": seen.of("cuda", Unsupported("head_dim is 80")),
        "triton": seen.of("triton", Unsupported("no bfloat16")),
        "reference": seen.of("reference", "right"),
    }
    orders = {"cuda": ("cuda", "triton", "reference")}
    with operator(orders, functions), given('"auto", where cuda and triton raise Unsupported'):
        try:
            result, said = call(compute, "auto")
        except Unsupported as error:
            raise CheckFailed(
                f'Unsupported("{error}") went on to the caller. With "auto" it means: ask the next.'
            ) from None
        equal(result, "right", "the result")
        equal(seen.calls, ["cuda", "triton", "reference"], "the back ends that were called",
              because="Each is asked once, in order, until one can.")  # fmt: skip
        true(len(said) == 2, "Two were passed over, and "
             f"{len(said) or 'nothing'} was said. A silent fallback looks like a slow kernel: call "
             "announce(operator, name, reason) for each.")  # fmt: skip
        for name, why in (("cuda", "head_dim is 80"), ("triton", "no bfloat16")):
            true(any(name in text and why in text for text in said),
                 f"No warning names {name} and its reason, {why!r}; there are {said}.")  # fmt: skip
        _, said = call(compute, "auto")
        equal(said, [], "the warnings of a second call", because="A model calls an operator "
              "hundreds of times a second; once is enough, and announce sees to it.")  # fmt: skip
    functions = {"reference": seen.of("reference", Unsupported("too big"))}
    with operator(orders, functions), given('"auto", where the last one raises Unsupported'):
        raises(
            Unsupported,
            lambda: compute(OPERATOR, "auto", "cuda", 3, 4),
            "the call",
            because="Nobody is left to ask, and a result of None would be a lie.",
        )


def a_demand_is_a_demand(compute: Callable[..., Any]) -> None:
    from yaie.ops.registry import Unsupported

    seen = Recorder()
    functions = {
        "cuda": seen.of("cuda", Unsupported("head_dim is 80")),
        "reference": seen.of("reference", "right"),
    }
    with operator({"cuda": ("cuda", "reference")}, functions):
        with given('backend="cuda", which raises Unsupported("head_dim is 80")'):
            try:
                result = compute(OPERATOR, "cuda", "cuda", 3, 4)
            except ValueError as error:
                told = str(error)
                true("cuda" in told and "head_dim is 80" in told and OPERATOR in told,
                     "The ValueError has to name the operator, the back end and its reason; it "
                     f"says {told!r}.")  # fmt: skip
                if isinstance(error, Unsupported):
                    fail("Unsupported is for the dispatcher; the caller gets a ValueError.")
            except Unsupported:
                fail(
                    "Unsupported went on to the caller as it was. Turn it into a ValueError that "
                    "names operator, back end and reason."
                )
            else:
                if seen.calls != ["cuda"]:
                    fail(
                        "cuda was demanded, cannot, and the reference computed it silently. Who "
                        "measures a kernel wants to know that it never ran: raise a ValueError."
                    )
                fail(f"a ValueError was wanted, {result!r} was returned.")
        with given('backend="cudaa", which there is not'):
            raises(ValueError, lambda: compute(OPERATOR, "cudaa", "cuda", 3, 4), "the call",
                   because="resolve() raises it; leave it alone.")  # fmt: skip


def other_errors_are_the_callers(compute: Callable[..., Any]) -> None:
    seen = Recorder()
    functions = {
        "cuda": seen.of("cuda", RuntimeError("an illegal memory access was encountered")),
        "reference": seen.of("reference", "right"),
    }
    what = '"auto", where cuda raises RuntimeError("an illegal memory access …")'
    with operator({"cuda": ("cuda", "reference")}, functions), given(what):
        try:
            result, _ = call(compute, "auto")
        except RuntimeError as error:
            true("illegal memory access" in str(error), f"the error became {error!r}")
        else:
            fail(
                f"{result!r} was returned. Only Unsupported means that another back end may do it; "
                "a kernel that crashed is an error, and must be seen."
            )
