"""Divides a row without weights by its sum of 0."""

from yaie.ops.reference.online_softmax import finite

EXPECT = "NaN. Its maximum is -inf"


def safe_softmax(scores):
    if scores.shape[-1] == 0:
        return scores, scores.new_full(scores.shape[:-1], float("-inf"))
    maximum = finite(scores.amax(dim=-1, keepdim=True))
    weights = (scores - maximum).exp()
    total = weights.sum(dim=-1, keepdim=True)
    return weights / total, (maximum + total.log()).squeeze(-1)
