"""A token for each row of logits, from a seed."""

import torch

from yaie.ops.library import operator
from yaie.ops.registry import AUTO
from yaie.ops.sampling import check_logits, check_row, one_per_row


@operator(one_per_row)
def gumbel_sample(
    logits: torch.Tensor,
    temperature: torch.Tensor,
    seed: torch.Tensor,
    step: torch.Tensor,
    *,
    backend: str = AUTO,
) -> torch.Tensor:
    """A token for each row of `[rows, size]`, from its seed.

    See `reference.sampling.gumbel_sample`.
    """
    check_logits(logits)
    check_row("temperature", temperature, torch.float32, logits, 0.0)
    check_row("seed", seed, torch.int64, logits)
    check_row("step", step, torch.int64, logits)
