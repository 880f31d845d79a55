"""Yet Another Inference Engine: the engine of an LLM server, built one notebook at a time.

`import yaie` loads nothing else: the names below are imported when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from yaie.build import jit
    from yaie.engine.llm import LLM
    from yaie.engine.sampling import SamplingParams
    from yaie.ops.info import kernel_info

__version__ = "0.1.0"
__all__ = ["LLM", "SamplingParams", "__version__", "jit", "kernel_info"]

_HOME = {
    "LLM": "yaie.engine.llm",
    "SamplingParams": "yaie.engine.sampling",
    "kernel_info": "yaie.ops.info",
}
_MODULES = {"jit": "yaie.build.jit"}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        value = importlib.import_module(_MODULES[name])
        globals()[name] = value
        return value
    if name not in _HOME:
        raise AttributeError(f"module 'yaie' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
