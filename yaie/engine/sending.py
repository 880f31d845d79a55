"""What processes send each other: pickles that hold functions, too, a notebook's among them."""

from __future__ import annotations

import inspect
import io
import pickle
import sys
import textwrap
from collections.abc import Callable
from importlib.machinery import PathFinder
from pathlib import Path
from types import FunctionType
from typing import Any


def pack(message: Any) -> bytes:
    """Any objects and functions, to be read by `pickle.loads` in another process.

    Raises ValueError if a function cannot be sent: a lambda, or one that needs variables around it.
    """
    stream = io.BytesIO()
    _Pickler(stream, pickle.HIGHEST_PROTOCOL).dump(message)
    return stream.getvalue()


def search_path() -> list[str]:
    """Where a process that this one starts looks for modules: where this one does, and beside this
    package."""
    return [str(Path(__file__).resolve().parents[2]), *filter(None, sys.path)]


class _Pickler(pickle.Pickler):
    """Sends functions that no module has, such as a notebook's, by their source."""

    def reducer_override(self, value: Any) -> Any:
        if not isinstance(value, FunctionType) or _has_a_module(value):
            return NotImplemented
        if value.__closure__ or value.__name__ == "<lambda>":
            raise ValueError(
                f"function {value.__qualname__} cannot be sent to other processes: it must be made "
                "by def, and use no variable of a function around it"
            )
        path = Path(value.__code__.co_filename)
        in_a_module = value.__module__ != "__main__" and "<locals>" not in value.__qualname__
        if in_a_module and path.is_file():  # an exercise: the whole file, which has its imports
            return _rebuild, (path.read_text(encoding="utf-8"), value.__name__)
        return _rebuild, (textwrap.dedent(inspect.getsource(value)), value.__name__)


def _has_a_module(function: FunctionType) -> bool:
    """Whether another process finds the function by importing its module."""
    module = sys.modules.get(function.__module__)
    is_there = getattr(module, function.__qualname__, None) is function
    package = function.__module__.partition(".")[0]
    if not is_there or package == "__main__":
        return False
    return PathFinder.find_spec(package, search_path()) is not None


def _rebuild(source: str, name: str) -> Callable:
    scope: dict[str, Any] = {"__name__": "sent"}
    exec(compile(source, f"<{name}>", "exec"), scope)
    return scope[name]
