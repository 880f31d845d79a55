"""CUDA C++ on the CPU: execution, checks, and counts of what the memory system would do.

A `.cu` file is compiled by the C++ compiler with headers that stand in for CUDA's own, and its
thread blocks run on the cores of the CPU. What is not modeled: time, caches, occupancy,
registers, tensor cores, TMA. Asynchronous copies (`cp.async`) land as late as allowed.
"""

from __future__ import annotations

from yaie.emulator.build import CompileError, compile
from yaie.emulator.checks import Report
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
