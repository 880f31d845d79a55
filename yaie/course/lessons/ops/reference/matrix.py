"""Operators on whole matrices, in plain PyTorch."""

import torch


def transpose(x: torch.Tensor) -> torch.Tensor:
    """`[rows, columns]` -> `[columns, rows]`, written out in its new order."""
    return x.t().clone(memory_format=torch.contiguous_format)


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """`[m, k]` × `[k, n]` -> `[m, n]`, in the dtype of a."""
    return a @ b
