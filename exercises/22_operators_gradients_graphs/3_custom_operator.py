"""Exercise 22.3: A kernel becomes an operator.

Register the kernel as an operator of torch, in the namespace that you are given: the function
that computes, and a fake, which says what the result will look like. `torch.library.custom_op`
does both; a `torch.library.Library` is the long way.

You have
- `namespace`: a str; the operator is called `torch.ops.<namespace>.silu_and_mul`
- `launch_silu_and_mul(x, out)`: writes silu(gate) × up of x, contiguous `[rows, 2 × size]`, into
  out, `[rows, size]`; returns nothing
- `torch.library.custom_op(name, mutates_args=())`: decorates a function, whose annotations are
  the schema; name is `"namespace::operator"`
- `operator.register_fake`: decorates the function that makes an empty result from arguments
  without numbers
- `x.new_empty(rows, columns)`: an empty tensor of the same dtype and device; the sizes may be
  symbols

In a terminal: yaie check 22.3, yaie hint 22.3, yaie reset 22.3.
"""

from __future__ import annotations

import torch

from yaie.course.lessons.custom import launch_silu_and_mul


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
    raise NotImplementedError("Exercise 22.3: A kernel becomes an operator")
