"""Takes the maximum of all rows off each."""

EXPECT = "must be its own"


def safe_softmax(scores):
    if scores.shape[-1] == 0:
        return scores, scores.new_full(scores.shape[:-1], float("-inf"))
    maximum = scores.max()
    weights = (scores - maximum).exp()
    total = weights.sum(dim=-1, keepdim=True)
    return weights / total.clamp(min=1.0), (maximum + total.log()).squeeze(-1)
