"""Errors in ulps, against numpy's spacing."""

import numpy as np
import torch

from yaie.course.author.gpu.fast_math import ulps


def test_an_error_is_counted_in_the_spacing_of_its_result() -> None:
    wanted = torch.tensor([1.0, 3.0, 1e-40, 2.0**-149, -5e37], dtype=torch.float64)
    exact = wanted.float().numpy()
    away = torch.from_numpy(exact + 3 * np.spacing(exact))
    assert 2.5 <= ulps(away, wanted)["worst"] <= 3.5
    assert ulps(wanted.bfloat16(), wanted, 7)["worst"] <= 0.5
    found = ulps(torch.tensor([1.0, 3.0, 0.0, 0.0, -torch.inf]), wanted)
    assert (found["flushed"], found["infinite"]) == (0.4, 0.2)
    nothing = ulps(torch.tensor([torch.inf]), wanted[:1])
    assert nothing == {"worst": None, "mean": None, "flushed": 0.0, "infinite": 1.0}
