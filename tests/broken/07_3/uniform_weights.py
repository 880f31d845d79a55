"""Replaces -inf by a large negative number, so that a hidden row averages all values."""

EXPECT = "it would average values"


def safe_softmax(scores):
    scores = scores.clamp(min=-1e4)
    if scores.shape[-1] == 0:
        return scores, scores.new_full(scores.shape[:-1], float("-inf"))
    return scores.softmax(dim=-1), scores.logsumexp(dim=-1)
