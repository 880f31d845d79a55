"""The online softmax as a state that takes in one tile of scores at a time, and partial results
that are merged. The engine's kernels contain both. Its references compute whole rows:
`yaie.ops.reference.online_softmax`."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from yaie.ops.reference.online_softmax import State


def finite(x: torch.Tensor) -> torch.Tensor:
    """A copy with 0 in place of -inf, to be subtracted: -inf - -inf is NaN, -inf - 0 is -inf."""
    return x.masked_fill(x == float("-inf"), 0.0)


@dataclass
class OnlineSoftmax:
    """Softmax-weighted sums of values, fed a tile of scores at a time.

    Keeps, for each row, the maximum score seen, the sum of exponentials relative to it, and the
    weighted sum of values relative to it. When a larger maximum comes, what was summed before is
    scaled down to it. Source: Milakov and Gimelshein, "Online normalizer calculation for
    softmax", 2018.

    Attributes:
        maximum: `[..., rows]`, the largest score so far; -inf before any.
        total: `[..., rows]`, the sum of exp(score - maximum) over the scores so far.
        accumulator: `[..., rows, head_dim]`, the sum of exp(score - maximum) · value.
    """

    maximum: torch.Tensor
    total: torch.Tensor
    accumulator: torch.Tensor

    @classmethod
    def empty(cls, rows: tuple[int, ...], head_dim: int, like: torch.Tensor) -> OnlineSoftmax:
        """The state before any score: maximum -inf, sums 0; dtype and device of `like`."""
        return cls(
            like.new_full(rows, float("-inf")),
            like.new_zeros(rows),
            like.new_zeros((*rows, head_dim)),
        )

    def update(self, scores: torch.Tensor, values: torch.Tensor) -> None:
        """Take in a tile of scores and the values that belong to them.

        Afterwards `maximum`, `total` and `accumulator` are what they would be if this tile and
        all before had come as one. Nothing is divided here: `finish` does that, once. The
        arguments are left as they are.

        Args:
            scores: `[..., rows, keys]`, at least one key; -inf where a key is hidden. A row may
                have no other score, in this tile or so far: its maximum stays as it is, and
                nothing becomes NaN.
            values: `[..., keys, head_dim]`.
        """
        maximum = torch.maximum(self.maximum, scores.amax(dim=-1))
        rescale = (self.maximum - finite(maximum)).exp()
        weights = (scores - finite(maximum).unsqueeze(-1)).exp()
        self.total = self.total * rescale + weights.sum(dim=-1)
        self.accumulator = self.accumulator * rescale.unsqueeze(-1) + weights @ values
        self.maximum = maximum

    def finish(self) -> State:
        """Divide by the sums, once: output `[..., rows, head_dim]`, log-sum-exp `[..., rows]`."""
        divisor = self.total.masked_fill(self.total == 0, 1.0).unsqueeze(-1)
        return self.accumulator / divisor, self.maximum + self.total.log()


def merge_states(a: State, b: State) -> State:
    """Merge attention over two disjoint sets of keys into attention over their union.

    The operation is associative and commutative, so partial results may be merged in any order.

    Args:
        a, b: outputs `[tokens, heads, head_dim]` and their log-sum-exps, float32
            `[tokens, heads]`. A row that saw no key has zeros and -inf.

    Returns:
        The output, in the dtype of a's, and its log-sum-exp, in the dtype of theirs. A row that
        saw no key in either has zeros and -inf. The arguments are left as they are.
    """
    (out_a, lse_a), (out_b, lse_b) = a, b
    lse = torch.logaddexp(lse_a, lse_b)
    weight_a = (lse_a - finite(lse)).exp().unsqueeze(-1)
    weight_b = (lse_b - finite(lse)).exp().unsqueeze(-1)
    return (out_a * weight_a + out_b * weight_b).to(out_a.dtype), lse
