"""Exercises of notebook 07: softmax a tile at a time, merged from parts, and of nothing."""

from __future__ import annotations

from yaie.course.checks.nb07.merge import check_merge, draw_merges
from yaie.course.checks.nb07.safe import check_safe, draw_weights
from yaie.course.checks.nb07.update import check_update, draw_row
from yaie.course.core.manifest import Exercise

NOTEBOOK = "07_online_softmax"

EXERCISES = [
    Exercise(
        id="07.1",
        notebook=NOTEBOOK,
        slug="update",
        title="The update step of the online softmax",
        target="yaie.ops.reference.online_softmax:OnlineSoftmax.update",
        task=(
            "A tile of scores arrives with the values behind them. Bring `self.maximum`, "
            "`self.total` and `self.accumulator` to where they would be if this tile and all "
            "tiles before had come at once. What was summed before is relative to the old "
            "maximum. Rows may be many, and some may have nothing but -inf so far; `finite`, "
            "which the file imports, helps there."
        ),
        difficulty=2,
        minutes=20,
        hints=(
            "exp(s - old maximum) times exp(old maximum - new maximum) is exp(s - new maximum). "
            "The first factor is what the sums are made of; so one multiplication moves a whole "
            "sum to the new maximum, however many scores are in it.",
            "After the call `total` is the sum of exp(score - maximum) over all scores so far, "
            "and `accumulator` the same sum with each term times its value, for the same maximum. "
            "The factor exp(old - new) is at most 1, and belongs to both. A row whose maximum is "
            "still -inf keeps sums of 0: subtract 0 there instead of -inf.",
            "Five lines, the assignment of the new maximum last:\n"
            "    maximum = torch.maximum(..., scores.amax(dim=-1))\n"
            "    rescale = (old - finite(new)).exp()                      # [..., rows]\n"
            "    weights = (scores - finite(new).unsqueeze(-1)).exp()     # [..., rows, keys]\n"
            "    self.total = self.total * ... + weights.sum(dim=-1)\n"
            "    self.accumulator = self.accumulator * ... + weights @ values\n"
            "The accumulator has one more axis than the factor.",
        ),
        proves=(
            "However a row is cut into tiles, the state is that of the whole row in float64: with "
            "rising and falling scores, large ones, and rows hidden in part or altogether."
        ),
        check=check_update,
        picture=draw_row,
    ),
    Exercise(
        id="07.2",
        notebook=NOTEBOOK,
        slug="merge_states",
        title="Merge two partial results",
        target="yaie.ops.reference.online_softmax:merge_states",
        task=(
            "Two attentions of the same queries over different keys arrive, each with its output, "
            "divided already, and its log-sum-exp. Return the output and the log-sum-exp over all "
            "the keys, as if they had been in one place. A part may have seen no key at all. "
            "`finite`, which the file imports, puts 0 in the place of -inf."
        ),
        difficulty=2,
        minutes=15,
        hints=(
            "exp(lse) is the sum that a part divided by. Multiply it back, add up, and divide by "
            "the sum of both sums. What each part is multiplied with is then its share of the "
            "whole.",
            "The two shares are not negative and add up to 1, whatever the sizes of the "
            "log-sum-exps; so no exponential may be taken of a log-sum-exp itself, which may be "
            "1,000. Where both are -inf there is nothing to share: zeros, and -inf.",
            "Four lines:\n"
            "    lse = torch.logaddexp(...)                        # log(exp a + exp b), safely\n"
            "    weight_a = (lse_a - finite(lse)).exp()            # weight_b likewise\n"
            "    out = out_a * weight_a... + out_b * weight_b...   # an axis for head_dim\n"
            "    return out in the dtype of out_a, lse",
        ),
        proves=(
            "Any split of the keys into parts, merged in any order and grouping, gives the "
            "attention over all of them; parts without keys, large scores and half precision "
            "included."
        ),
        check=check_merge,
        picture=draw_merges,
    ),
    Exercise(
        id="07.3",
        notebook=NOTEBOOK,
        slug="safe_softmax",
        title="Softmax of rows with nothing to see",
        target="yaie.ops.reference.online_softmax:safe_softmax",
        task=(
            "The softmax of whole rows, and its log-sum-exp, which must survive anything that a "
            "mask or a model puts into a row: scores too large for an exponential, some keys "
            "hidden, all keys hidden, no keys. It is what `attention` of notebook 01 runs on."
        ),
        difficulty=1,
        minutes=10,
        hints=(
            "Take each row's own maximum off it. Then look at the two lines where -inf or 0 can "
            "meet itself: -inf minus -inf, and 0 divided by 0.",
            "In a row with any key the largest exponential is 1, so its sum is at least 1. Only a "
            "row without keys has a sum of 0: weights 0, and a log-sum-exp of log 0 = -inf. "
            "amax of no elements is an error.",
            "In this order:\n"
            "    if scores.shape[-1] == 0: ...\n"
            "    maximum = finite(scores.amax(dim=-1, keepdim=True))\n"
            "    weights = (scores - maximum).exp()\n"
            "    total = weights.sum(dim=-1, keepdim=True)\n"
            "    weights / total.clamp(min=...), (maximum + total.log()) without its last axis\n"
            "The smallest sum that a row with a key can have makes a good `min`.",
        ),
        proves=(
            "Rows in three precisions, with any keys hidden, match a softmax in float64, and no "
            "row gives NaN."
        ),
        check=check_safe,
        picture=draw_weights,
    ),
]
