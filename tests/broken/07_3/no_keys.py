"""Takes the maximum of no elements."""

from yaie.ops.reference.online_softmax import finite

EXPECT = "amax of no elements is an error"


def safe_softmax(scores):
    maximum = finite(scores.amax(dim=-1, keepdim=True))
    weights = (scores - maximum).exp()
    total = weights.sum(dim=-1, keepdim=True)
    return weights / total.clamp(min=1.0), (maximum + total.log()).squeeze(-1)
