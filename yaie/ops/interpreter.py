"""Where Triton's kernels run: compiled for the GPU, or, without one, in Triton's interpreter.

The interpreter computes a kernel with NumPy, one program after another: slow, but the same source.
Triton reads TRITON_INTERPRET when it is imported, so the choice is made before.
"""

import importlib.util
import os

import torch

VARIABLE = "TRITON_INTERPRET"


def choose_interpreter() -> None:
    """Set TRITON_INTERPRET=1 where there is no GPU, unless the user has set it."""
    if not torch.cuda.is_available():
        os.environ.setdefault(VARIABLE, "1")


def interpreted() -> bool:
    """Whether Triton's kernels run in its interpreter."""
    return os.environ.get(VARIABLE, "0") not in ("", "0")


def how_triton_runs() -> str:
    """One sentence on where the Triton kernels run on this machine, for a reader."""
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed (it exists for Linux only): the reference is used instead."
    if not interpreted():
        return f"Triton compiles its kernels for the {torch.cuda.get_device_name()}."
    return "No GPU is used: Triton's kernels run in its interpreter, on the CPU, slowly."
