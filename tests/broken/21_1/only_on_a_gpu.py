"""Registers the kernel for GPUs alone."""

import torch

from yaie.course.lessons.custom import launch_silu_and_mul

EXPECT = "name no device"


def define_silu_and_mul(namespace):
    def empty(x):
        return x.new_empty(x.shape[0], x.shape[1] // 2)

    @torch.library.custom_op(f"{namespace}::silu_and_mul", mutates_args=(), device_types="cuda")
    def silu_and_mul(x: torch.Tensor) -> torch.Tensor:
        out = empty(x)
        launch_silu_and_mul(x, out)
        return out

    silu_and_mul.register_fake(empty)
