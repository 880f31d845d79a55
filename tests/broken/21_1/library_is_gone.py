"""Lets go of the library, and with it of the operator."""

import torch

from yaie.course.lessons.custom import launch_silu_and_mul

EXPECT = "keep it somewhere"


def define_silu_and_mul(namespace):
    def empty(x):
        return x.new_empty(x.shape[0], x.shape[1] // 2)

    def run(x):
        out = empty(x)
        launch_silu_and_mul(x, out)
        return out

    library = torch.library.Library(namespace, "DEF")
    library.define("silu_and_mul(Tensor x) -> Tensor")
    library.impl("silu_and_mul", run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{namespace}::silu_and_mul", empty, lib=library)
