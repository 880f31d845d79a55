"""Returns a log-sum-exp of 0 for a row that is hidden."""

from yaie.ops.reference.online_softmax import finite

EXPECT = "expected -inf"


def safe_softmax(scores):
    if scores.shape[-1] == 0:
        return scores, scores.new_full(scores.shape[:-1], float("-inf"))
    maximum = finite(scores.amax(dim=-1, keepdim=True))
    weights = (scores - maximum).exp()
    total = weights.sum(dim=-1, keepdim=True)
    return weights / total.clamp(min=1.0), (maximum + total.clamp(min=1.0).log()).squeeze(-1)
