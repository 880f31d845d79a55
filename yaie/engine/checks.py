"""Checks of the engine's own arguments."""

from __future__ import annotations

from numbers import Real


def check_switch(name: str, value: bool) -> None:
    """Raise an error that names the argument unless `value` is True or False."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, got {value!r}")


def check_number(name: str, value: float) -> None:
    """Raise an error that names the argument unless `value` is a number."""
    if not isinstance(value, Real) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number, got {value!r}")


def check_count(name: str, value: int, minimum: int = 1) -> None:
    """Raise an error that names the argument unless `value` is an int of at least `minimum`."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be an int, got {value!r}")
    if value < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {value}")
