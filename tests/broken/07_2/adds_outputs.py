"""Adds the outputs as they are."""

import torch

EXPECT = "The outputs were added as they are"


def merge_states(a, b):
    (out_a, lse_a), (out_b, lse_b) = a, b
    return out_a + out_b, torch.logaddexp(lse_a, lse_b)
