"""A matrix product laid out for the processor that runs it."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class Linear(nn.Module):
    """`x @ weight.T + bias` for `x` of shape `[tokens, in]`, weight `[out, in]`.

    With a few tokens in a batch, a product costs the reading of the weights. `pack` stores float32
    weights on a CPU in the blocked order in which oneDNN reads them: with AVX-512 that halves the
    time of a decode step at batch 16. It also makes a row of the result independent of the rows
    beside it, bit for bit, so that a request's logits do not depend on its neighbors.
    """

    def __init__(self, weight: nn.Parameter, bias: nn.Parameter | None = None):
        super().__init__()
        self.weight, self.bias = weight, bias
        self.packed: torch.Tensor | None = None

    def pack(self) -> None:
        """Switch to the blocked layout where there is one; `weight` is then gone from here."""
        weight = self.weight
        if weight.device.type == "cpu" and weight.dtype == torch.float32 and _has_onednn():
            self.packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), 16)
            self.weight = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[tokens, in]` -> `[tokens, out]`."""
        if self.packed is None:
            return functional.linear(x, self.weight, self.bias)
        rows = rows_computed(len(x))
        if rows == len(x):
            return self._multiply(x)
        return self._multiply(functional.pad(x, (0, 0, 0, rows - len(x))))[: len(x)]

    def warm(self, most: int) -> None:
        """Have oneDNN build its code for every number of rows up to `most`."""
        if self.packed is not None:
            for rows in sorted({rows_computed(number) for number in range(1, most + 1)}):
                self._multiply(torch.zeros(rows, self.packed.shape[1]))

    def _multiply(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")


def rows_computed(rows: int) -> int:
    """How many rows are multiplied in place of `rows`: as many, up to 32, or a few more.

    oneDNN builds code for each number of rows, some 600 KB, and keeps that of up to 1,024 products:
    a server's memory would grow for hours. With 16 numbers between each power of two and the next,
    `Linear.warm` can build all of it beforehand. A single row takes a different routine, with a
    different order of summation, so there are always at least two rows.
    """
    step = 1 << max(0, rows.bit_length() - 5)
    return max(2, -(-rows // step) * step)


def _has_onednn() -> bool:
    """Whether this build of torch has the operators that its own compiler uses for this."""
    names = ("_reorder_linear_weight", "_linear_pointwise")
    return torch.backends.mkldnn.is_available() and all(
        hasattr(torch.ops.mkldnn, name) for name in names
    )
