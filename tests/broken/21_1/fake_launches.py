"""Registers the same function as fake: it launches the kernel."""

import torch

from yaie.course.lessons.custom import launch_silu_and_mul

EXPECT = "launch nothing"


def define_silu_and_mul(namespace):
    def compute(x: torch.Tensor) -> torch.Tensor:
        out = x.new_empty(x.shape[0], x.shape[1] // 2)
        launch_silu_and_mul(x, out)
        return out

    operator = torch.library.custom_op(f"{namespace}::silu_and_mul", compute, mutates_args=())
    operator.register_fake(compute)
