"""What the checks of notebook 05 share: rows of logits, sets of kept tokens, and a fair count."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from yaie.course.core.expect import fail, given, is_tensor, raises, short, true

NO_RETURN = "Did the function reach its end without `return`?"
Filter = Callable[[Any, Any], Any]  # (logits, parameter) -> logits


def logits_of(*rows: Sequence[float]) -> Any:
    """Logits whose softmax is the given probabilities, a row each."""
    import torch

    return torch.tensor([[math.log(p) if p else -math.inf for p in row] for row in rows])


def seeded(*seeds: int) -> list[Any]:
    import torch

    return [torch.Generator().manual_seed(seed) for seed in seeds]


def kept(row: Any) -> list[int]:
    return row.isfinite().nonzero().flatten().tolist()


def filtered(call: str, keep: Filter, logits: Any, value: Any, errors: Any = None) -> Any:
    """Call a learner's filter: it must return logits, and leave its input as it was."""
    import torch

    before = logits.clone()
    with given(call, errors=errors):
        after = keep(logits, value)
    if after is None:
        fail(f"{call} is None, expected logits. {NO_RETURN}")
    true(is_tensor(after), f"{call} is {short(after)}, expected a tensor of logits.")
    same = torch.equal(logits, before)
    true(same, f"{call} changed the logits that it was given: `masked_fill` without an underscore "
         "makes a new tensor.")  # fmt: skip
    true(
        after.shape == logits.shape and after.dtype == logits.dtype,
        f"{call} has shape {list(after.shape)} and dtype {after.dtype}, expected "
        f"{list(logits.shape)} and {logits.dtype}: dropped tokens stay in their place as -inf.",
    )
    stays = after.isfinite()
    if not torch.equal(after[stays], logits[stays]) or bool(after.isnan().any()):
        row, token = (stays & (after != logits) | after.isnan()).nonzero()[0].tolist()
        got, want = after[row, token].item(), logits[row, token].item()
        fail(
            f"{call} has {got:.6g} at row {row}, token {token}, expected {want:.6g} or -inf. A "
            "filter returns logits: those that it keeps as they were, each in its own place, and "
            "the others -inf."
        )
    return after


def keeps(
    call: str,
    row: Any,
    want: list[int],
    because: str,
    mistakes: Iterable[tuple[Any, str]] = (),
) -> None:
    """Require that a row of filtered logits keeps exactly the tokens `want`."""
    got = kept(row)
    if got == want:
        return
    explanation = next((text for wrong, text in mistakes if sorted(wrong) == got), because)
    fail(f"{call} keeps {_tokens(got)}, expected {_tokens(want)}. {explanation}")


def _tokens(tokens: list[int]) -> str:
    if len(tokens) > 12:
        return f"{len(tokens):,} tokens"
    return f"tokens {tokens}" if tokens else "no token"


def refuses(keep: Filter, name: str, bad: Iterable[tuple[str, Any]]) -> None:
    """Require a ValueError for a parameter that is out of range."""
    logits = logits_of([0.5, 0.3, 0.2], [0.2, 0.3, 0.5])
    for text, value in bad:
        raises(
            ValueError,
            lambda value=value: keep(logits, value),
            f"{name}(logits, {text}) on two rows",
            because="A wrong parameter must not become a wrong text. `_column` looks at it.",
        )


# ---------------------------------------------------------------------------------- counts


def surprise(counts: Sequence[int], probabilities: Sequence[float]) -> float:
    """How often a right sampler's counts are at least this far off: Pearson's chi-square test."""
    import torch

    total = sum(counts)
    if any(c > 0 and p == 0 for c, p in zip(counts, probabilities, strict=True)):
        return 0.0
    pairs = [(c, total * p) for c, p in zip(counts, probabilities, strict=True) if p > 0]
    statistic = sum((c - expected) ** 2 / expected for c, expected in pairs)
    if len(pairs) == 1:
        return 1.0
    freedom = torch.tensor((len(pairs) - 1) / 2, dtype=torch.float64)
    return torch.special.gammaincc(freedom, torch.tensor(statistic / 2).double()).item()


def shares(weights: Sequence[float]) -> list[float]:
    return [w / sum(weights) for w in weights]


def distributed(
    tokens: Sequence[int],
    want: Sequence[float],
    call: str,
    because: str,
    mistakes: Iterable[tuple[Sequence[float], str]] = (),
) -> None:
    """Require that tokens come as often as `want` says; else find the wrong distribution that fits.

    A right sampler fails once in a million times, and the seeds of the check are fixed.
    """
    counts = [list(tokens).count(token) for token in range(len(want))]
    outside = sorted(set(tokens) - set(range(len(want))))
    if outside:
        fail(
            f"{call} drew token {outside[0]}, outside the vocabulary of {len(want)}. The random "
            "number was above the running sum: the filtered probabilities were not renormalized, "
            "so they end below 1. Take the softmax after the filters."
        )
    if surprise(counts, want) > 1e-6:
        return
    expected = [round(len(tokens) * p) for p in want]
    explanation = next((t for wrong, t in mistakes if surprise(counts, wrong) > 1e-4), because)
    fail(
        f"{call}, drawn {len(tokens):,} times, gave each token {counts} times, expected about "
        f"{expected}. {explanation}"
    )
