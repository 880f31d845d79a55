"""Takes the maximum off the caller's scores."""

from yaie.ops.reference.online_softmax import finite

EXPECT = "Leave the argument as it is"


def safe_softmax(scores):
    if scores.shape[-1] == 0:
        return scores, scores.new_full(scores.shape[:-1], float("-inf"))
    maximum = finite(scores.amax(dim=-1, keepdim=True))
    weights = scores.sub_(maximum).exp()
    total = weights.sum(dim=-1, keepdim=True)
    return weights / total.clamp(min=1.0), (maximum + total.log()).squeeze(-1)
