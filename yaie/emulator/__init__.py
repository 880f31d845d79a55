"""CUDA C++ on the CPU: execution, checks, and counts of what the memory system would do.

A `.cu` file is compiled by the C++ compiler with headers that stand in for CUDA's own, and its
thread blocks run on the cores of the CPU; runtime/core.h draws how. What is not modeled: time,
caches, occupancy, registers, rounding inside tensor cores. Asynchronous copies and products land
when the order of the schedule says so: as late as allowed, immediately, or in between.
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
