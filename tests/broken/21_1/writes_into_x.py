"""Uses x as scratch memory, and does not say so."""

import torch

from yaie.course.lessons.custom import launch_silu_and_mul

EXPECT = "only read"


def define_silu_and_mul(namespace):
    @torch.library.custom_op(f"{namespace}::silu_and_mul", mutates_args=())
    def silu_and_mul(x: torch.Tensor) -> torch.Tensor:
        out = x.new_empty(x.shape[0], x.shape[1] // 2)
        launch_silu_and_mul(x, out)
        x[:, : x.shape[1] // 2] = out
        return out

    @silu_and_mul.register_fake
    def _(x):
        return x.new_empty(x.shape[0], x.shape[1] // 2)
