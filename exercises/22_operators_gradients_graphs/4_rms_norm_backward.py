"""Exercise 22.4: The gradients of RMSNorm.

The forward pass is given; it keeps x, weight and the scale of each row. Write the backward pass,
which receives the gradient of the result. The formulas are in the docstring; the last exercise of
notebook 08 was of the same kind.

You have
- `ctx.saved_tensors`: x `[..., size]`, weight `[size]` and scale `[..., 1]`, which is float32, or
  float64 if x is
- `gradient`: g, `[..., size]`, of the result; only to be read
- `(of_x, of_weight, None)`: what you return: the gradients in the dtypes of x and of weight, and
  None for eps
- `x.to(dtype)`, `x.mean(dim=-1, keepdim=True)`: another dtype; the mean of each row, `[..., 1]`
- `x.flatten(0, -2)`: all axes but the last as one

In a terminal: yaie check 22.4, yaie hint 22.4, yaie reset 22.4.
What this file does not define is inherited from yaie/course/lessons/custom.py.
"""

from __future__ import annotations

from typing import Any

import torch

from yaie.course.lessons import custom as reference


class RMSNorm(reference.RMSNorm):
    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        """The gradients of x and weight, and None for eps.

        `ctx.saved_tensors` are x `[..., size]`, weight `[size]` and scale `[..., 1]`, which is
        1 / sqrt(mean(x²) + eps) of each row. With g for `gradient` `[..., size]`, one for each
        element of the result, and w for weight:

            gradient of x        scale × (g w − x × scale² × mean of g w x over the row)
            gradient of weight   the sum of g × x × scale over all rows

        Computed in the dtype of scale; the results have those of x and weight. `gradient` is only
        read: others may hold it, too.
        """
        raise NotImplementedError("Exercise 22.4: The gradients of RMSNorm")
