"""CUDA C++ on the CPU: execution, checks, and counts of what the memory system would do.

A `.cu` file is compiled by the C++ compiler with headers that stand in for CUDA's own, and its
thread blocks run on the cores of the CPU; runtime/core.h draws how. What is not modeled: time,
caches, occupancy, registers, rounding inside tensor cores. Asynchronous copies and products land
when the order of the schedule says so: as late as allowed, immediately, or in between.

The names below are imported when they are first used: the engine needs only the compiler.
"""

import pkgutil
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from yaie.emulator.build import compile
    from yaie.emulator.checks import Report
    from yaie.emulator.compiler import CompileError
    from yaie.emulator.empty import unwritten, watch_empty
    from yaie.emulator.launch import Checker, KernelError, Module
    from yaie.emulator.runtime import settings

__all__ = [
    "Checker",
    "CompileError",
    "KernelError",
    "Module",
    "Report",
    "compile",
    "settings",
    "unwritten",
    "watch_empty",
]

_HOME = {
    **{"compile": "yaie.emulator.build:compile", "Report": "yaie.emulator.checks:Report"},
    **{"CompileError": "yaie.emulator.compiler:CompileError"},
    **{name: f"yaie.emulator.empty:{name}" for name in ("unwritten", "watch_empty")},
    **{name: f"yaie.emulator.launch:{name}" for name in ("Checker", "KernelError", "Module")},
    **{"settings": "yaie.emulator.runtime:settings"},
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'yaie.emulator' has no attribute {name!r}")
    value = globals()[name] = pkgutil.resolve_name(_HOME[name])
    return value
