"""What the learner's filters keep, and what their sampler draws, of one small distribution."""

from __future__ import annotations

from typing import Any

from yaie.course.checks.nb05.common import logits_of, seeded

WORDS = (" the", " a", " blue", " green", " red", " my", " not", " very", " so", " one")
PROBABILITIES = (0.09, 0.07, 0.28, 0.16, 0.2, 0.06, 0.05, 0.04, 0.03, 0.02)


def _draw(stages: list[tuple[str, Any, dict]]) -> Any:
    from yaie.course.viz import Filter, draw_sampling, snapshot_sampling

    filters = [Filter(name, logits[0], **marks) for name, logits, marks in stages]
    return draw_sampling(snapshot_sampling(filters, lambda ids: WORDS[ids[0]]))


def draw_top_k(SamplingKernel: type) -> Any:
    logits, keep = logits_of(PROBABILITIES), SamplingKernel().top_k
    return _draw([("model", logits, {})] + [(f"top-k {k}", keep(logits, k), {}) for k in (5, 2)])


def draw_top_p(SamplingKernel: type) -> Any:
    logits, keep = logits_of(PROBABILITIES), SamplingKernel().top_p
    first = keep(logits, 0.8)
    return _draw(
        [
            ("model", logits, {}),
            ("top-p 0.8", first, {"top_p": 0.8}),
            ("then top-p 0.5", keep(first, 0.5), {"top_p": 0.5}),
        ]
    )


def draw_sample(SamplingKernel: type) -> Any:
    """1,000 draws with each of three settings, beside what they should give."""
    import torch

    from yaie.course.viz import Tally, draw_counts

    draws, sampler, reference = 1000, SamplingKernel(), torch.tensor(PROBABILITIES)
    logits = logits_of(PROBABILITIES)
    order = reference.argsort(descending=True).tolist()
    kept = {"temperature 0.5": order, "top-k 4": order[:4], "top-p 0.6": order[:3]}
    options = {
        "temperature 0.5": {"temperature": 0.5},
        "top-k 4": {"top_k": 4},
        "top-p 0.6": {"top_p": 0.6},
    }
    tallies = []
    for name, chosen in options.items():
        weights = reference ** (1 / chosen.get("temperature", 1.0))
        mask = torch.zeros_like(weights)
        mask[kept[name]] = 1.0
        expected = draws * weights * mask / (weights * mask).sum()
        tokens = sampler.sample(
            logits.expand(draws, -1), **chosen, generators=seeded(*range(draws))
        )
        counts = torch.bincount(tokens, minlength=len(order)).tolist()
        tallies.append(Tally(name, [counts[t] for t in order], [expected[t].item() for t in order]))
    return draw_counts(tallies, [WORDS[t] for t in order])
