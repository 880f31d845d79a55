"""Yet Another Inference Engine: the engine of an LLM server, built one notebook at a time.

`import yaie` loads nothing else: the names below are imported when they are first used.
"""

import pkgutil
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from yaie.bench.info import kernel_info
    from yaie.build import jit
    from yaie.engine.llm import LLM
    from yaie.engine.params import SamplingParams

__version__ = "0.1.0"
__all__ = ["LLM", "SamplingParams", "__version__", "jit", "kernel_info"]

_HOME = {
    "LLM": "yaie.engine.llm:LLM",
    "SamplingParams": "yaie.engine.params:SamplingParams",
    "jit": "yaie.build.jit",
    "kernel_info": "yaie.bench.info:kernel_info",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'yaie' has no attribute {name!r}")
    value = globals()[name] = pkgutil.resolve_name(_HOME[name])
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
