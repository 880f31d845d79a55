"""Takes the exponentials of the scores themselves."""

import torch

EXPECT = "Take the maximum of the row off"


def safe_softmax(scores):
    if scores.shape[-1] == 0:
        return scores, scores.new_full(scores.shape[:-1], float("-inf"))
    maximum = torch.zeros_like(scores[..., :1])
    weights = (scores - maximum).exp()
    total = weights.sum(dim=-1, keepdim=True)
    return weights / total.clamp(min=1.0), (maximum + total.log()).squeeze(-1)
