"""Subtracts a maximum of -inf."""

EXPECT = "NaN. Its maximum is -inf"


def safe_softmax(scores):
    if scores.shape[-1] == 0:
        return scores, scores.new_full(scores.shape[:-1], float("-inf"))
    maximum = scores.amax(dim=-1, keepdim=True)
    weights = (scores - maximum).exp()
    total = weights.sum(dim=-1, keepdim=True)
    return weights / total.clamp(min=1.0), (maximum + total.log()).squeeze(-1)
