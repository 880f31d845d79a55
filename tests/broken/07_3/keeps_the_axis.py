"""Returns the log-sum-exp with an axis of 1."""

from yaie.ops.reference.online_softmax import finite

EXPECT = "Drop the last axis"


def safe_softmax(scores):
    if scores.shape[-1] == 0:
        return scores, scores.new_full(scores.shape[:-1], float("-inf"))
    maximum = finite(scores.amax(dim=-1, keepdim=True))
    weights = (scores - maximum).exp()
    total = weights.sum(dim=-1, keepdim=True)
    return weights / total.clamp(min=1.0), maximum + total.log()
