"""Operators of one's own; what they compute is tested by the checks of notebook 21."""

from __future__ import annotations

import pytest
import torch

from yaie.course.lessons.custom import launch_silu_and_mul


def test_a_dtype_that_has_no_kernel_is_named():
    x = torch.zeros(2, 8, dtype=torch.float64)
    with pytest.raises(TypeError, match=r"float32, float16 or bfloat16, got .*float64"):
        launch_silu_and_mul(x, x[:, :4])
