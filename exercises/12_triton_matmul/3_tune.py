"""Exercise 12.3: Autotuning a kernel that adds to its output.

`column_sum_kernel` sums up columns: each program adds its tile's sums to the output with
`tl.atomic_add`. Let `triton.autotune` choose the tile. `tune` gives it four configurations, the
key, the output that must be reset before each trial, and the clock `do_bench`, and returns the
tuned kernel. `column_sum` allocates the output and launches with a grid that fits each
configuration.

You have
- `kernel`: has the parameters `x_ptr, out_ptr, rows, columns, BLOCK_M, BLOCK_N`; program (i, j)
  adds the sums of the tile with rows from i × BLOCK_M on and columns from j × BLOCK_N on to
  `out_ptr`, float32 `[columns]`
- `triton.autotune(configs=, key=, reset_to_zero=, restore_value=, do_bench=)`: returns a
  decorator of kernels
- `triton.Config(constants, num_warps=)`: a configuration; `constants` is a dictionary such as
  `{"BLOCK_M": 16, …}`
- `kernel[grid]`: what to call with the arguments, which launches; a grid may be a function of the
  constants, which returns the tuple
- `triton.cdiv(a, b)`: a / b, rounded up

In a terminal: yaie check 12.3, yaie hint 12.3, yaie reset 12.3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton


def tune(kernel: Any, do_bench: Callable[..., list[float]] | None = None) -> Any:
    """`column_sum_kernel`, its configuration chosen by `triton.autotune`.

    The candidates are the tiles of 16 or 64 rows by 32 or 128 columns, with 4 warps each. They are
    timed again when the number of columns changes, and not when only the number of rows does. Each
    trial adds to the output, so the output is set to zero before each.

    Args:
        kernel: to be tuned; its parameters are those of `column_sum_kernel`.
        do_bench: (call, quantiles=) -> times of a call at these quantiles; None for Triton's clock,
            which needs a GPU.
    """
    pass  # Exercise 12.3: Autotuning a kernel that adds to its output


def column_sum(x: torch.Tensor, kernel: Any) -> torch.Tensor:
    """The sums of the columns of `[rows, columns]`, float32, by a tuned kernel.

    The grid depends on the configuration, so it is a function of the constants: `meta["BLOCK_M"]`.
    """
    pass  # Exercise 12.3: Autotuning a kernel that adds to its output
