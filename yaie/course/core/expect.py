"""What checks are written with: compare, and say what is wrong in words that a learner can use.

def check_match(RadixTree):
    tree = RadixTree(block_size=2)
    ...
    with given("match([1, 2, 3, 9]) on a tree that holds [1, 2, 3, 4]"):
        found = tree.match([1, 2, 3, 9])
    equal(found.length, 2, "the length", mistakes=[(3, "3 tokens are not whole blocks of 2")])
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

UNSOLVED = "Exercise "  # how the message of a stub's NotImplementedError begins


class CheckFailed(AssertionError):
    """The learner's code does something else than the exercise asks for.

    Args:
        message: what came, what was wanted, and which mistake it looks like.
        picture: a function of no arguments that draws the learner's state as a figure.
    """

    def __init__(self, message: str, picture: Callable[[], Any] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.picture = picture

    def __str__(self) -> str:
        return self.message


def fail(message: str, picture: Callable[[], Any] | None = None) -> None:
    """Reject the learner's code."""
    raise CheckFailed(message, picture)


def true(condition: bool, message: str, picture: Callable[[], Any] | None = None) -> None:
    """Reject the learner's code unless `condition` holds."""
    if not condition:
        raise CheckFailed(message, picture)


@contextmanager
def given(what: str, errors: Mapping[type[Exception], str] | None = None) -> Iterator[None]:
    """Name the call that the lines inside make, for the message if one of them fails.

    An error in the learner's code is reported as a crash, with `what` as the input that caused
    it. Unless its type is in `errors`: then the check knows the mistake, and rejects the code
    with the explanation found there.
    """
    try:
        yield
    except CheckFailed as failed:
        if what not in failed.message:
            failed.message = f"{what}: {failed.message}"
        raise
    except Exception as error:
        explained = next((text for t, text in (errors or {}).items() if isinstance(error, t)), "")
        if explained and not is_unsolved(error):
            came = f"{what} raised {type(error).__name__}: {error}"
            raise CheckFailed(_sentences(came, explained)) from error
        if not hasattr(error, "given"):
            error.given = what
        raise


def is_unsolved(error: BaseException) -> bool:
    """Whether this is the error that a stub raises in place of its solution."""
    return isinstance(error, NotImplementedError) and str(error).startswith(UNSOLVED)


def raises(error: type[Exception], call: Callable[[], Any], what: str, because: str = "") -> None:
    """Require that `call()` raises `error`. `what` names the call, `because` says why it must."""
    try:
        got = call()
    except error:
        return
    except Exception as other:
        if is_unsolved(other):
            raise
        came = f"{type(other).__name__}: {other}"
    else:
        came = f"a return of {short(got)}"
    raise CheckFailed(_sentences(f"{what} should raise {error.__name__}, got {came}", because))


def equal(
    got: Any, want: Any, what: str, because: str = "", mistakes: Iterable[tuple[Any, str]] = ()
) -> None:
    """Require `got == want`: numbers, strings, containers of them, or tensors.

    Args:
        what: names `got` in the message, such as "match([1, 2]).length".
        because: why it is `want`.
        mistakes: what known wrong answers would give here, each with its explanation, which then
            takes the place of `because`.
    """
    difference = _difference(got, want)
    if difference:
        raise CheckFailed(_sentences(f"{what} {difference}", _mistake(got, mistakes, because)))


def close(
    got: Any,
    want: Any,
    what: str,
    because: str = "",
    mistakes: Iterable[tuple[Any, str]] = (),
    *,
    rtol: float = 1e-4,
    atol: float = 1e-5,
) -> None:
    """Require that tensors or floats agree: kind, shape, dtype, NaN, then every element.

    The arguments are those of `equal`; a difference up to `atol + rtol * |want|` is none.
    """
    difference = _tensor_difference(got, want, rtol, atol)
    if difference:
        explained = _mistake(got, mistakes, because, rtol, atol)
        raise CheckFailed(_sentences(f"{what} {difference}", explained))


def is_tensor(value: Any) -> bool:
    """Whether `value` is a torch tensor, without importing torch to find out."""
    return type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "dtype")


_repr = reprlib.Repr()
_repr.maxlist = _repr.maxtuple = _repr.maxset = _repr.maxfrozenset = _repr.maxdeque = 12
_repr.maxdict = 8
_repr.maxstring = _repr.maxother = 80


def short(value: Any) -> str:
    """One line for a message: a tensor by its shape and dtype, everything else cut short."""
    if is_tensor(value):
        size = "×".join(map(str, value.shape)) or "scalar"
        values = f" {value.tolist()}" if 0 < value.numel() <= 8 else ""
        return f"a tensor {size} {str(value.dtype).removeprefix('torch.')}{values}"
    return " ".join(_repr.repr(value).split())


def _difference(got: Any, want: Any) -> str:
    """Say how `got` differs from `want`, or return an empty string."""
    if is_tensor(want):
        return _tensor_difference(got, want, rtol=0.0, atol=0.0)
    if is_tensor(got):
        return f"is {short(got)}, expected {short(want)}"
    if isinstance(want, (list, tuple)) and isinstance(got, (list, tuple)):
        if type(got) is not type(want):
            return f"is a {type(got).__name__} {short(got)}, expected a {type(want).__name__}"
        for index, (a, b) in enumerate(zip(got, want, strict=False)):
            if inner := _difference(a, b):
                return f"is {short(got)}, expected {short(want)}: index {index} {inner}"
        if len(got) != len(want):
            lengths = f"{len(got)} entries, expected {len(want)}"
            return f"is {short(got)}, expected {short(want)}: {lengths}"
        return ""
    if isinstance(want, bool) != isinstance(got, bool) or got != want:
        return f"is {short(got)}, expected {short(want)}"
    return ""


def _tensor_difference(got: Any, want: Any, rtol: float, atol: float) -> str:
    import torch

    if not is_tensor(want):  # a Python number: how the other one is stored does not matter
        want = torch.tensor(want, dtype=torch.float64)
        if isinstance(got, (int, float)) or (is_tensor(got) and got.numel() == 1):
            got = torch.tensor(float(got), dtype=torch.float64)
    if not is_tensor(got):
        return f"is {short(got)}, expected {short(want)}"
    if got.shape != want.shape:
        return f"has shape {list(got.shape)}, expected {list(want.shape)}"
    if got.dtype != want.dtype:
        return f"has dtype {got.dtype}, expected {want.dtype}"
    wrong = ~torch.isclose(got.double(), want.double(), rtol=rtol, atol=atol, equal_nan=True)
    if not bool(wrong.any()):
        return ""
    nan = got.isnan() & wrong
    if bool(nan.any()):
        return f"is NaN{_index(nan)}, expected {_item(want, nan)} ({int(nan.sum())} NaN in all)"
    count = "" if wrong.numel() == 1 else f" ({int(wrong.sum())} of {wrong.numel()} differ)"
    return f"is {_item(got, wrong)}{_index(wrong)}, expected {_item(want, wrong)}{count}"


def _index(mask: Any) -> str:
    return f" at index {mask.nonzero()[0].tolist()}" if mask.ndim else ""


def _item(tensor: Any, mask: Any) -> str:
    value = tensor[mask][0].item()
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _mistake(
    got: Any,
    mistakes: Iterable[tuple[Any, str]],
    because: str,
    rtol: float = 0.0,
    atol: float = 0.0,
) -> str:
    for wrong, explanation in mistakes:
        if is_tensor(wrong) or isinstance(wrong, float):
            same = not _tensor_difference(got, wrong, rtol, atol)
        else:
            same = not _difference(got, wrong)
        if same:
            return explanation
    return because


def _sentences(first: str, second: str) -> str:
    return f"{first}. {second}" if second else first
