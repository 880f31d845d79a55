"""The course: exercises, their checks, hints, and putting a learner's code into the engine.

from yaie.course import card, check, hint, solution, use

In a notebook, a cell that begins with `%%gpu` is skipped without a GPU.
"""

import sys

from yaie.course.core import gpu_cells, short_tracebacks
from yaie.course.core.notebook import card, check, hint, solution, use

__all__ = ["card", "check", "hint", "solution", "use"]

if "IPython" in sys.modules and (shell := sys.modules["IPython"].get_ipython()) is not None:
    gpu_cells.register(shell)
    short_tracebacks.register(shell)
