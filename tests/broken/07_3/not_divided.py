"""Returns exponentials."""

from yaie.ops.reference.online_softmax import finite

EXPECT = "were not divided"


def safe_softmax(scores):
    if scores.shape[-1] == 0:
        return scores, scores.new_full(scores.shape[:-1], float("-inf"))
    maximum = finite(scores.amax(dim=-1, keepdim=True))
    weights = (scores - maximum).exp()
    total = weights.sum(dim=-1, keepdim=True)
    return weights, (maximum + total.log()).squeeze(-1)
