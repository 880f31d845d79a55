"""Solution of exercise 22.4: The gradients of RMSNorm.

The forward pass is given; it keeps x, weight and the scale of each row. Write the backward pass,
which receives the gradient of the result. The formulas are in the docstring; the last exercise of
notebook 08 was of the same kind.

Generated from RMSNorm.backward in yaie/course/lessons/custom.py.
Edit it there, and run `python -m yaie.course build`.
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
        x, weight, scale = ctx.saved_tensors
        wide = x.to(scale.dtype)
        weighted = gradient * weight.to(scale.dtype)
        mean = (weighted * wide).mean(dim=-1, keepdim=True)
        of_x = scale * (weighted - wide * scale.square() * mean)
        of_weight = (gradient * wide * scale).flatten(0, -2).sum(dim=0)
        return of_x.to(x.dtype), of_weight.to(weight.dtype), None
