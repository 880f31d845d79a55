"""26.3: the tokens that a verified draft yields."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from yaie.course import viz
from yaie.course.core.observe import Case, Observer
from yaie.course.lessons.speculative import prompt_lookup


def cases() -> Iterator[Case]:
    for draft, chosen in (
        ([], [7]),
        ([4], [5, 6]),
        ([6, 9], [5, 6, 9]),
        ([5, 6], [5, 6, 7]),
        ([5, 6, 9], [5, 8, 9, 1]),
        ([1, 2, 3, 4], [1, 9, 3, 4, 5]),
        ([3, 3, 3], [3, 3, 4, 3]),
        ([0, 5], [0, 5, 7]),
        ([1_000, 50_000], [1_000, 50_000, 300]),
    ):
        yield Case(f"draft {draft}, chosen {chosen}", draft=draft, chosen=chosen)
    generator = random.Random(0)
    for _ in range(200):
        draft, chosen = drawn(generator)
        yield Case(f"draft {draft}, chosen {chosen}", draft=draft, chosen=chosen)


def drawn(generator: random.Random) -> tuple[list[int], list[int]]:
    """A draft, and the choices of a model that is a function of the text."""
    vocabulary = generator.choice([2, 3, 10, 50_000])
    salt = generator.randrange(1000)

    def model(text: list[int]) -> int:
        return hash((salt, *text)) % vocabulary

    text = [generator.randrange(vocabulary) for _ in range(generator.randint(1, 4))]
    alone = list(text)
    for _ in range(8):
        alone.append(model(alone))
    draft = [
        token if generator.random() < 0.8 else generator.randrange(vocabulary)
        for token in alone[len(text) : len(text) + generator.randint(0, 6)]
    ]
    return draft, [model(text + draft[:i]) for i in range(len(draft) + 1)]


def observe(accept: Any, case: Case, see: Observer) -> None:
    # As read from a file, each token id is an object of its own: `is` must not be relied on.
    draft, chosen = ([int(str(token)) for token in tokens] for tokens in (case.draft, case.chosen))
    with see.call("accept(draft, chosen)"):
        got = accept(draft, chosen)
    agreeing = next(
        (place for place, token in enumerate(case.draft) if token != case.chosen[place]),
        len(case.draft),
    )
    want = case.draft[:agreeing] + case.chosen[agreeing : agreeing + 1]
    because = f"{agreeing} drafted tokens agree, and then the model chooses {want[-1]}."
    see.equal("the result", list(got) if isinstance(got, tuple) else got, want, because)
    see.equal("draft afterwards", draft, case.draft, "The caller still needs it.")
    see.equal("chosen afterwards", chosen, case.chosen, "The caller still needs it.")


def draw(accept: Any) -> Any:
    """A model that recites, and a drafter that looks up what came before."""
    recited = (
        "the cache keeps the keys and the values and the scheduler keeps the requests and the "
        "values and the scheduler keeps the blocks"
    )
    words = recited.split()
    text, rounds = words[:4], []
    while len(text) < len(words):
        draft = prompt_lookup(text, 4, longest=2)[: len(words) - len(text) - 1]
        chosen = words[len(text) : len(text) + len(draft) + 1]
        kept = accept(draft, chosen)
        rounds.append((draft, kept))
        text = text + kept
    return viz.draw_speculation(rounds)
