"""In which precision the references compute."""

from __future__ import annotations

import torch


def wide_dtype(x: torch.Tensor) -> torch.dtype:
    """float64 for float64, float32 for everything narrower."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32
