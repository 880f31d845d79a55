"""Softmax and tokens from logits by CUDA C++ kernels."""

from __future__ import annotations

import torch
from torch import Tensor

from yaie.ops.cuda.launching import constants, launch
from yaie.ops.plans import made
from yaie.ops.registry import Unsupported

LARGEST_VOCABULARY = 2 ** constants("sampling/sample.cu")["INDEX_BITS"]


def sample(
    logits: Tensor, temperature: Tensor, top_k: Tensor, top_p: Tensor,
    min_p: Tensor, uniform: Tensor,
) -> Tensor:  # fmt: skip
    """Temperature, top-k, top-p, min-p and the draw in one launch, without a sort."""
    if logits.shape[1] > LARGEST_VOCABULARY:
        raise Unsupported(f"sample takes up to {LARGEST_VOCABULARY} columns, got {logits.shape[1]}")
    tokens = made(logits.new_empty(logits.shape[0], dtype=torch.int64))
    operands = (logits, temperature, top_k, top_p, min_p, uniform, tokens, *logits.shape)
    launch("sampling/sample.cu", "sample", logits.dtype, *operands)
    return tokens
