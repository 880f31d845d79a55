"""Exercise 11.4: Test a kernel.

Write the test for a kernel that computes RMSNorm. The docstring states what the kernel promises:
shapes, strides, dtypes, what it writes and what it leaves alone. Your test raises AssertionError
if a promise is broken. It must accept four right kernels, which round differently, and refuse 19
wrong ones. The kernels here are Python functions, so the test takes milliseconds.

You have
- `kernel(x, weight, out, eps)`: writes RMSNorm of x, `[rows, columns]`, times the weight,
  `[columns]`, into out; returns nothing
- `TOLERANCE[dtype]`: the largest error of a right result: 1e-4 in float32, 2e-3 in float16, 1e-2
  in bfloat16
- `row_error(got, wanted)`: the largest relative error of any row, a float; `inf` if `got` has a
  NaN; `wanted` is in float64; 0 for no rows
- `tensor[1:-1, 4:-4]`: a view into a larger tensor, whose rows are not adjacent

In a terminal: yaie check 11.4, yaie hint 11.4, yaie reset 11.4.
"""

from __future__ import annotations

import torch

from yaie.bench.protocol import TOLERANCE, row_error
from yaie.course.lessons.kernel_test import Kernel


def test_kernel(kernel: Kernel) -> None:
    """Raise AssertionError if a kernel breaks one of its promises.

    `kernel(x, weight, out, eps)` computes out = x / sqrt(mean(x²) + eps) × weight, with the mean
    over the columns of a row, and promises this:

    - x and out are `[rows, columns]`, of any number of rows, none included, and at least 1 column;
    - the rows of x, and those of out, may lie apart: their columns are next to each other in
      memory, but `stride(0)` may be larger than `columns`;
    - the dtype is float32, float16 or bfloat16, of all three tensors. Sums are formed in float32:
      the result is within `TOLERANCE[dtype]` by `row_error`, for x as large as 1,000;
    - all of out is written, whatever was there before, and nothing outside it;
    - x and weight stay as they are, and each call gives the same result.

    A test raises nothing if the kernel keeps them, even if it rounds differently than another.
    """
    raise NotImplementedError("Exercise 11.4: Test a kernel")
