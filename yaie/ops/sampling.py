"""Operators from logits to tokens, without waiting for the GPU."""

import math

import torch
from torch import Tensor

from yaie.ops.checks import FLOATS, check_tensor, known
from yaie.ops.library import operator
from yaie.ops.registry import AUTO


def one_per_row(logits: Tensor, *_: Tensor) -> Tensor:
    """An empty result with one token per row."""
    return logits.new_empty(logits.shape[0], dtype=torch.int64)


@operator(one_per_row)
def sample(
    logits: Tensor,
    temperature: Tensor,
    top_k: Tensor,
    top_p: Tensor,
    min_p: Tensor,
    uniform: Tensor,
    *,
    backend: str = AUTO,
) -> Tensor:
    """A token for each row of `[rows, size]`; see `reference.sampling.sample`.

    Every parameter is a tensor with one number per row, on the device. Values are checked on a CPU
    only, where the check does not wait. The kernel counts in units of 2**-31 of the largest
    probability: it never draws a token less likely by more than 2**32, and a top-p that is met
    within rounding may keep one token more or fewer.
    """
    check_logits(logits)
    check_row("temperature", temperature, torch.float32, logits, 0.0)
    check_row("top_k", top_k, torch.int32, logits, -1)
    check_row("top_p", top_p, torch.float32, logits, 0.0, 1.0)
    check_row("min_p", min_p, torch.float32, logits, 0.0, 1.0)
    check_row("uniform", uniform, torch.float64, logits, 0.0, below=1.0)


def check_logits(logits: Tensor) -> None:
    """Check `[rows, size]` with at least one column."""
    check_tensor("logits", logits, ("rows", "size"), FLOATS, contiguous=True)
    if logits.shape[1] == 0:
        raise ValueError("logits must have at least one column, got 0")


def check_row(
    name: str, values: Tensor, dtype: torch.dtype, logits: Tensor,
    least: float = -math.inf, most: float = math.inf, below: float = math.inf,
) -> None:  # fmt: skip
    """Check a parameter with a number per row, from `least` to `most` and below `below`."""
    check_tensor(name, values, (logits.shape[0],), (dtype,), like=logits, contiguous=True)
    if not known(values):
        return
    fits = (values >= least) & (values <= most if most < below else values < below)
    if not fits.all():  # nor does a NaN fit
        wanted = f"from {least} to {most}" if most < below else f"{least} or more, below {below}"
        raise ValueError(f"{name} must be {wanted}, got {values[~fits][0].item()}")
