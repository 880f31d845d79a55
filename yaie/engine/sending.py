"""What processes send each other: pickles that hold functions, too, a notebook's among them."""

from __future__ import annotations

import io
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from types import FunctionType
from typing import Any

import cloudpickle


def pack(message: Any) -> bytes:
    """Any objects and functions, to be read by `pickle.loads` in another process."""
    stream = io.BytesIO()
    _Pickler(stream).dump(message)
    return stream.getvalue()


def search_path() -> list[str]:
    """Where a process that this one starts looks for modules: where this one does, and in the
    folder of this package."""
    return [str(Path(__file__).resolve().parents[2]), *filter(None, sys.path)]


class _Pickler(cloudpickle.Pickler):
    """Sends functions by value if the other process cannot import their modules: cloudpickle does
    so for a notebook's cells, but not for an exercise's file."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, FunctionType):
            module = sys.modules.get(value.__module__)
            package = value.__module__.partition(".")[0]
            if module and PathFinder.find_spec(package, search_path()) is None:
                cloudpickle.register_pickle_by_value(module)
        return super().reducer_override(value)
