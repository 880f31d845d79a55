"""The Triton back end: one module per subject, each kernel above the function that launches it.

`runtime` holds what all of them need: the interpreter's limits, and the choice of a configuration.
"""

import importlib.util

from yaie.ops.interpreter import how_triton_runs
from yaie.ops.registry import Unsupported

if importlib.util.find_spec("triton") is None:
    raise Unsupported(how_triton_runs())
