"""Operators of one's own: a kernel that torch.compile can trace, and one that autograd can use.

The engine's operators are registered in `yaie.ops`, all by one function, for inference. These two
are the same thing on its own, as a program needs it that has a single kernel.
"""

from __future__ import annotations

from typing import Any

import torch

from yaie.build.jit import load
from yaie.ops.cuda.launching import SUFFIXES


def launch_silu_and_mul(x: torch.Tensor, out: torch.Tensor) -> None:
    """Write silu(gate) × up of x, `[rows, 2 × size]`, into out, `[rows, size]`.

    This is a launch of csrc/activation/silu_and_mul.cu: a call of compiled code with two addresses.
    Both are contiguous, of one dtype (float32, float16, bfloat16), and on one device.

    Raises TypeError for another dtype.
    """
    if x.dtype not in SUFFIXES:
        raise TypeError(f"x must be float32, float16 or bfloat16, got {x.dtype}")
    kernels = load("activation/silu_and_mul.cu")
    getattr(kernels, f"silu_and_mul_{SUFFIXES[x.dtype]}")(x, out, *out.shape)


def define_silu_and_mul(namespace: str) -> None:
    """Register the operator `silu_and_mul(Tensor x) -> Tensor` in a namespace of torch.ops.

    Afterwards `torch.ops.<namespace>.silu_and_mul(x)` takes x, contiguous `[rows, 2 × size]`, and
    returns silu(gate) × up in a new tensor `[rows, size]` of the same dtype on the same device. It
    leaves x as it is. `launch_silu_and_mul` computes, on every device.

    The operator has a fake, too: for an x that has no numbers, and whose sizes may be symbols, it
    returns an empty tensor with the shape, dtype and device of the result, and launches nothing.
    So torch.compile traces a program that uses the operator into one graph, and one graph serves
    all sizes.
    """

    def empty(x: torch.Tensor) -> torch.Tensor:
        return x.new_empty(x.shape[0], x.shape[1] // 2)

    @torch.library.custom_op(f"{namespace}::silu_and_mul", mutates_args=())
    def silu_and_mul(x: torch.Tensor) -> torch.Tensor:
        out = empty(x)
        launch_silu_and_mul(x, out)
        return out

    silu_and_mul.register_fake(empty)


class RMSNorm(torch.autograd.Function):
    """x / sqrt(mean(x²) + eps) × weight over the last axis, with its gradients.

    `RMSNorm.apply(x, weight, eps)` takes x `[..., size]` and weight `[size]` of one dtype. As in
    `yaie.ops.reference.norm.rms_norm` everything is computed in float32, or float64 if x is, and
    rounded once.
    """

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        """The normalized rows. Keeps x, weight and the scale of each row, float32 `[..., 1]`."""
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        scale = torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + eps)
        ctx.save_for_backward(x, weight, scale)
        return (wide * scale * weight).to(x.dtype)

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
