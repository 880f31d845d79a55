"""Solution of exercise 11.4: Test a kernel.

Write the test for a kernel that computes RMSNorm. The docstring states what the kernel promises:
shapes, strides, dtypes, what it writes and what it leaves alone. Your test raises AssertionError
if a promise is broken. It must accept four right kernels, which round differently, and refuse 19
wrong ones. The kernels here are Python functions, so the test takes milliseconds.

Generated from test_kernel in yaie/course/lessons/kernel_test.py.
Edit it there, and run `python -m yaie.course build`.
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
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        for rows, columns in ((5, 7), (2, 1030), (0, 8)):
            for scale, eps in ((1.0, 0.5), (300.0, 1e-6)):
                torch.manual_seed(0)
                x = (scale * torch.randn(rows, columns + 8)).to(dtype)[:, :columns]
                weight = torch.randn(columns).to(dtype)
                before = x.clone(), weight.clone()
                wide = x.double()
                mean = wide.square().mean(dim=1, keepdim=True)
                wanted = wide / (mean + eps).sqrt() * weight.double()
                room = torch.full((rows + 2, columns + 8), 7.0, dtype=dtype)
                out = room[1:-1, 4:-4]
                for _ in range(2):
                    out.fill_(torch.nan)
                    kernel(x, weight, out, eps)
                    error = row_error(out, wanted)
                    assert error <= TOLERANCE[dtype], f"{dtype} {rows} × {columns}: {error:.1e}"
                out.fill_(7.0)
                assert bool((room == 7.0).all()), f"{dtype} {rows} × {columns}: wrote outside out"
                assert torch.equal(x, before[0]), "changed x"
                assert torch.equal(weight, before[1]), "changed weight"
