"""Sums of two tensors, in plain PyTorch."""

import torch


def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """x + y, both of one shape."""
    return x + y


def add_relu(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """max(x + y, 0): two tensors are read and one written, where two operators move five."""
    return torch.relu(x + y)
