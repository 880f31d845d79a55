"""The check of accept."""

from __future__ import annotations

import random
from typing import Any

from yaie.course.core.expect import equal, given

OWN = "Behind the tokens that agree comes the model's own choice, which costs nothing more."


def check_accept(accept: Any) -> None:
    for draft, chosen, because in (
        ([5, 6], [5, 6, 7], f"All of the draft agrees. {OWN}"),
        ([5, 6, 9], [5, 8, 9, 1], "The second token differs: 8 is what the model says there."),
        ([4], [5, 6], "The first token differs already, and 5 is the model's own."),
        ([], [7], "Without a draft it is an ordinary decode step: one token."),
        ([1, 2, 3, 4], [1, 9, 3, 4, 5], "What follows the wrong 2 was computed with it in the "
                                        "text, so it says nothing about the text with 9."),
        ([3, 3, 3], [3, 3, 4, 3], "The third differs."),
    ):  # fmt: skip
        ask(accept, draft, chosen, because)
    rng = random.Random(0)
    for _ in range(200):
        by_one_token_at_a_time(accept, rng)


def ask(accept: Any, draft: list[int], chosen: list[int], because: str) -> None:
    what = f"accept({draft}, {chosen})"
    beyond = "`chosen` has one token more than `draft`, and either may be short."
    given_draft, given_chosen = list(draft), list(chosen)
    with given(what, errors={IndexError: beyond}):
        got = accept(given_draft, given_chosen)
    equal((given_draft, given_chosen), (draft, chosen), f"{what}: the arguments, afterwards")
    agreeing = longest(draft, chosen)
    want = draft[:agreeing] + chosen[agreeing : agreeing + 1]
    matches = [d for d, c in zip(draft, chosen, strict=False) if d == c]
    shifted = longest(draft, chosen[1:])
    equal(
        got if not isinstance(got, tuple) else list(got),
        want,
        what,
        because,
        mistakes=[
            (draft[:agreeing], f"One is missing. {OWN} Without it, a draft that is wrong at once "
                               "would yield nothing, and the text would never grow."),
            (draft[: agreeing + 1], "That keeps the drafted token that the model would not have "
                                    "chosen. Its place is the model's own choice's."),
            (draft[:agreeing] + chosen[-1:], "The last of `chosen` follows the whole draft. The "
                                             "model's choice at the first difference stands at "
                                             "that place."),
            (draft[: agreeing + 1] + chosen[agreeing + 1 : agreeing + 2],
             "That keeps the drafted token that the model would not have chosen."),
            (draft + chosen[-1:], "That accepts the draft whatever the model says."),
            (draft, "That accepts the draft whatever the model says."),
            (chosen, "Beyond the first difference, `chosen` was computed behind a token that is "
                     "not in the text: it means nothing."),
            (chosen[: len(matches) + 1], "That counts all places that agree. Only those before "
                                         "the first difference count."),
            (matches + chosen[-1:], "That keeps all places that agree. Only those before the "
                                    "first difference count."),
            (matches + chosen[len(matches) : len(matches) + 1],
             "That keeps all places that agree. Only those before the first difference count."),
            (matches + chosen[agreeing : agreeing + 1],
             "That keeps all places that agree. Only those before the first difference count."),
            (draft[:shifted] + chosen[shifted : shifted + 1],
             "chosen[0] follows the text, where draft[0] stands as well: compare draft[i] with "
             "chosen[i]."),
            (draft[:shifted] + chosen[shifted + 1 : shifted + 2],
             "chosen[0] follows the text, where draft[0] stands as well: compare draft[i] with "
             "chosen[i]."),
        ],
    )  # fmt: skip


def longest(draft: list[int], chosen: list[int]) -> int:
    """How many tokens agree from the beginning."""
    for place, (a, b) in enumerate(zip(draft, chosen, strict=False)):
        if a != b:
            return place
    return min(len(draft), len(chosen))


def by_one_token_at_a_time(accept: Any, rng: random.Random) -> None:
    """A model that is a function of the text: what is accepted is what it writes alone."""
    vocabulary = rng.choice([2, 3, 10])
    salt = rng.randrange(1000)

    def model(text: list[int]) -> int:
        return hash((salt, *text)) % vocabulary

    text = [rng.randrange(vocabulary) for _ in range(rng.randint(1, 4))]
    alone = list(text)
    for _ in range(8):
        alone.append(model(alone))
    draft = [
        token if rng.random() < 0.8 else rng.randrange(vocabulary)
        for token in alone[len(text) : len(text) + rng.randint(0, 6)]
    ]
    chosen = [model(text + draft[:i]) for i in range(len(draft) + 1)]
    ask(accept, draft, chosen, "One token at a time, the model writes the same.")


def draw_accept(accept: Any) -> Any:
    """A model that recites, and a drafter that looks up what came before."""
    from yaie.course.lessons.speculative import prompt_lookup
    from yaie.course.viz.speculation import draw_speculation

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
    return draw_speculation(rounds)
