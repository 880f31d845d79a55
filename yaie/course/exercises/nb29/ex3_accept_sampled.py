"""29.3: drafted tokens that are kept or replaced, so that the text is the model's own."""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

from yaie.course.core.observe import Case, Observer
from yaie.course.exercises.oracles import chi_square

DRAWS = 4_000
LENGTH = 3  # tokens of a text that is looked at

# Probabilities by the token before; row -1 begins the text.
Chain = Sequence[Sequence[float]]
EVEN: Chain = ((0.25,) * 4,) * 5
HALVES: Chain = ((0.5, 0.25, 0.25, 0.0), (0.0, 0.5, 0.25, 0.25), (0.25, 0.0, 0.5, 0.25),
                 (0.25, 0.25, 0.0, 0.5), (0.5, 0.5, 0.0, 0.0))  # fmt: skip
SKEWED: Chain = ((0.7, 0.1, 0.1, 0.1), (0.1, 0.6, 0.2, 0.1), (0.05, 0.15, 0.3, 0.5),
                 (0.4, 0.3, 0.2, 0.1), (0.1, 0.2, 0.3, 0.4))  # fmt: skip
APART: Chain = ((0.0, 0.0, 0.5, 0.5),) * 5
OTHERS: Chain = ((0.5, 0.5, 0.0, 0.0),) * 5
PAIRS = {
    "the drafter is even, the model is not": (EVEN, SKEWED),
    "the model is even, the drafter is not": (SKEWED, EVEN),
    "drafter and model have zeros": (HALVES, SKEWED),
    "the model has zeros": (EVEN, HALVES),
    "drafter and model are the same": (SKEWED, SKEWED),
    "they have no token in common": (OTHERS, APART),
}


def one_hot(*tokens: int, vocabulary: int = 4) -> list[list[float]]:
    return [[float(token == at) for token in range(vocabulary)] for at in tokens]


def cases() -> Iterator[Case]:
    for draft, chosen in (([], [3]), ([2], [1, 0]), ([1, 2], [1, 2, 0]), ([0, 1, 3], [0, 2, 3, 1])):
        yield Case(f"draft {draft}, and a model that is sure of {chosen}", draft=draft,
                   drafter=one_hot(*draft), model=one_hot(*chosen), kind="sure")  # fmt: skip
    for name in PAIRS:
        yield Case(name, kind="law", drafted=2)
    yield Case("the model has zeros", kind="law", drafted=1)
    yield Case("the generator", kind="generator")
    yield Case("a draw of 0, and a drafted token that the model never writes", kind="zero")


def observe(accept_sampled: Any, case: Case, see: Observer) -> None:
    if case.kind == "sure":
        observe_sure(accept_sampled, case, see)
    elif case.kind == "law":
        observe_law(accept_sampled, *PAIRS[case.name], case.drafted, see)
    elif case.kind == "zero":
        observe_zero(accept_sampled, see)
    else:
        observe_generator(accept_sampled, see)


def observe_sure(accept_sampled: Any, case: Case, see: Observer) -> None:
    draft = list(case.draft)
    with see.call("accept_sampled(draft, drafter, model, rng)"):
        got = accept_sampled(draft, case.drafter, case.model, random.Random(1))
    see.kind("accept_sampled", got, (list, tuple), "a list of token ids")
    chosen = [row.index(1.0) for row in case.model]
    agreeing = 0
    while agreeing < len(draft) and case.draft[agreeing] == chosen[agreeing]:
        agreeing += 1
    want = chosen[: agreeing + 1]
    because = f"{agreeing} drafted tokens have probability 1, and then the model wants {want[-1]}."
    see.equal("the result", list(got), want, because)
    see.equal("draft afterwards", draft, case.draft, "The caller still needs it.")


def observe_law(
    accept_sampled: Any, drafter: Chain, model: Chain, drafted: int, see: Observer
) -> None:
    ours, theirs = random.Random(3), random.Random(4)
    vocabulary, texts = len(model[0]), Counter()
    kept = 0
    for _ in range(DRAWS):
        draft: list[int] = []
        for _ in range(drafted):
            draft += ours.choices(range(vocabulary), drafter[draft[-1] if draft else -1])
        before = [-1, *draft]
        rows = [list(drafter[token]) for token in before[:-1]], [list(model[t]) for t in before]
        with see.call("accept_sampled(draft, drafter, model, rng)"):
            got = list(accept_sampled(list(draft), *rows, theirs))
        inside = all(type(token) is int and 0 <= token < vocabulary for token in got)
        right = inside and 1 <= len(got) <= drafted + 1
        see.require("the result", right, f"is {got}, expected 1 to {drafted + 1} token ids")
        followed = got[:-1] == draft[: len(got) - 1]
        see.require("the result", followed, f"is {got}, and the draft was {draft}",
                    "Kept tokens are the first of the draft, and one more follows.")  # fmt: skip
        kept += len(got) - 1
        while len(got) < LENGTH:  # the model goes on alone
            got += ours.choices(range(vocabulary), model[got[-1]])
        texts[tuple(got[:LENGTH])] += 1
    see_texts(see, texts, model)
    share, want = kept / DRAWS, expected_kept(drafter, model, drafted)
    because = "A token is kept with probability min(1, p / q), so a share Σ min(p, q) of them is."
    see.close("the mean number of drafted tokens that are kept", share, want, because, rtol=0.0,
              atol=0.06)  # fmt: skip


def see_texts(see: Observer, texts: Counter, model: Chain) -> None:
    """Each place of the text by itself, then whole texts, beside what the model alone writes."""
    vocabulary = len(model[0])
    every = list(product(range(vocabulary), repeat=LENGTH))
    law = {text: 1.0 for text in every}
    for text in every:
        for before, token in zip((-1, *text), text, strict=False):
            law[text] *= model[before][token]
    for place, word in enumerate(("first", "second", "third")):
        counts = [sum(n for t, n in texts.items() if t[place] == x) for x in range(vocabulary)]
        weights = [sum(p for t, p in law.items() if t[place] == x) for x in range(vocabulary)]
        shares = [round(count / DRAWS, 2) for count in counts]
        likely = chi_square(counts, weights) > 1e-7
        want = [round(weight, 2) for weight in weights]
        see.note(
            f"the shares of the tokens in the {word} place", [count / DRAWS for count in counts],
            "" if likely else f"are {shares}, expected about {want}",
            "The model alone writes them that often.", atol=0.02,
        )  # fmt: skip
    likely = chi_square([texts[text] for text in every], [law[text] for text in every]) > 1e-7
    because = "A token depends on the one before: a draft after a rejected token is void."
    problem = "do not come as often as the model writes them"
    see.true("the texts of three tokens", likely, problem, because)


def expected_kept(drafter: Chain, model: Chain, drafted: int, before: int = -1) -> float:
    """The mean number of tokens kept of a draft that follows a token."""
    if not drafted:
        return 0.0
    both = [min(q, p) for q, p in zip(drafter[before], model[before], strict=True)]
    return sum(
        share * (1 + expected_kept(drafter, model, drafted - 1, token))
        for token, share in enumerate(both)
    )


def observe_generator(accept_sampled: Any, see: Observer) -> None:
    rows = [list(EVEN[0])], [list(SKEWED[0]), list(SKEWED[1])]

    def drawn(rng: random.Random) -> list[list[int]]:
        return [list(accept_sampled([1], *rows, rng)) for _ in range(40)]

    with see.call("accept_sampled(draft, drafter, model, random.Random(7))"):
        first = drawn(random.Random(7))
        random.seed(5)
        again = drawn(random.Random(7))
    because = "Draw with rng alone: a seed repeats a text."
    what = "40 calls with random.Random(7), made twice,"
    see.true(what, first == again, "returned different tokens", because)


class Zeros(random.Random):
    """Draws the least number of [0, 1) each time."""

    def random(self) -> float:
        return 0.0


def observe_zero(accept_sampled: Any, see: Observer) -> None:
    with see.call("accept_sampled(draft, drafter, model, rng)"):
        got = accept_sampled([0], [list(EVEN[0])], one_hot(2, 2), Zeros())
    because = "p is 0 for the drafted token 0, so it is never kept; only 2 is lacking."
    see.equal("the result", list(got), [2], because)


def draw(accept_sampled: Any) -> Any:
    """How often each first token came, by a drafter that is far off."""
    from yaie.course import viz

    rng, guessed, wanted = random.Random(0), EVEN[0], SKEWED[0]
    counts = {"drafted": [0] * 4, "after accept_sampled": [0] * 4}
    for _ in range(DRAWS):
        draft = rng.choices(range(4), guessed)
        got = accept_sampled(draft, [list(guessed)], [list(wanted), list(wanted)], rng)
        counts["drafted"][draft[0]] += 1
        counts["after accept_sampled"][got[0]] += 1
    expected = [DRAWS * p for p in wanted]
    tallies = [viz.Tally(name, found, expected) for name, found in counts.items()]
    return viz.draw_counts(tallies, [f"token {token}" for token in range(4)])
