"""Checks of arguments: an error names the argument, what was wanted and what came."""

import math
from collections.abc import Iterable, Sequence
from numbers import Integral, Real
from typing import Any


def check_switch(name: str, value: bool) -> None:
    """Raise TypeError unless `value` is True or False."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, got {value!r}")


def check_number(name: str, value: float) -> None:
    """Raise TypeError unless `value` is a number."""
    if not isinstance(value, (float, Real)) or isinstance(value, bool):  # `Real` alone is slow
        raise TypeError(f"{name} must be a number, got {value!r}")


def check_int(name: str, value: int) -> None:
    """Raise TypeError unless `value` is an int."""
    if not isinstance(value, (int, Integral)) or isinstance(value, bool):
        raise TypeError(f"{name} must be an int, got {value!r}")


def check_count(name: str, value: int, minimum: int = 1) -> None:
    """Raise an error unless `value` is an int of at least `minimum`."""
    check_int(name, value)
    if value < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {value}")


def check_range(name: str, value: float, fits: bool, wanted: str) -> None:
    """Raise ValueError unless `value` is finite and `fits` is true."""
    if not fits or not math.isfinite(value):
        raise ValueError(f"{name} must be {wanted}, got {value}")


def check_sequence(name: str, value: Sequence, wanted: str, but: type | tuple = bytes) -> None:
    """Raise an error unless `value` is a sequence, of no type in `but`, with at least one item."""
    if isinstance(value, but) or not isinstance(value, Sequence):
        raise TypeError(f"{name} must be {wanted}, got {type(value).__name__}")
    if not value:
        raise ValueError(f"{name} must not be empty: {wanted}")


def as_items(name: str, value: Iterable | None, wanted: str = "a list") -> tuple[Any, ...]:
    """The items of a list or another iterable, none for None. Raises TypeError for a text."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable | None):
        raise TypeError(f"{name} must be {wanted}, got {value!r}")
    return () if value is None else tuple(value)


def as_strings(name: str, value: str | Iterable[str] | None) -> tuple[str, ...]:
    """The strings of a list, or the only one. Raises an error for an empty one among them."""
    wanted = "a str or a list of them"
    strings = (value,) if isinstance(value, str) else as_items(name, value, wanted)
    for string in strings:
        if not isinstance(string, str):
            raise TypeError(f"{name} must be {wanted}, got {string!r} in it")
        if not string:
            raise ValueError(f"{name} must not contain the empty string: every text ends with it")
    return strings
