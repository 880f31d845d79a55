"""Takes the mean of the two outputs."""

import torch

EXPECT = "Both parts count alike"


def merge_states(a, b):
    (out_a, lse_a), (out_b, lse_b) = a, b
    return (out_a + out_b) / 2, torch.logaddexp(lse_a, lse_b)
