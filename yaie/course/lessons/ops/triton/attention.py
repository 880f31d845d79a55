"""Attention of one sequence by the kernel for several."""

import torch
from torch import Tensor

from yaie.ops.triton.flash import ragged_attention


def attention(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float | None
) -> tuple[Tensor, Tensor]:
    """See `yaie.ops.reference.attention.attention`."""
    ends = torch.arange(2, dtype=torch.int32, device=q.device)  # made there: no copy to wait for
    return ragged_attention(q, k, v, ends * q.shape[0], ends * k.shape[0], causal, scale)
