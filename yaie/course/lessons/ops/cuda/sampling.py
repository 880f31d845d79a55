"""A token for each row of logits from a seed, by a CUDA C++ kernel."""

import torch

from yaie.ops.cuda.launching import launch

MOST_BLOCKS, THREADS = 2**16, 512


def gumbel_sample(
    logits: torch.Tensor, temperature: torch.Tensor, seed: torch.Tensor, step: torch.Tensor
) -> torch.Tensor:
    """The largest of logit + temperature × Gumbel noise, in one pass."""
    tokens = logits.new_empty(logits.shape[0], dtype=torch.int64)
    launch(
        *("sampling/gumbel.cu", "gumbel_sample", logits.dtype, logits),
        *(temperature, seed, step, tokens, *logits.shape),
        *(min(logits.shape[0], MOST_BLOCKS), THREADS),
    )
    return tokens
