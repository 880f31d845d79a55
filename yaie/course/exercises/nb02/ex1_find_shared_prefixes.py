"""02.1: a token trie's lookup, against brute force over all requests."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from yaie.course.core.manifest import Exercise
from yaie.course.core.observe import Case, Observer
from yaie.course.exercises.nb02 import NOTEBOOK
from yaie.course.exercises.nb02.trees import random_tokens

EXERCISE = Exercise(
    id="02.1",
    notebook=NOTEBOOK,
    slug="find_shared_prefixes",
    title="Find who begins like this prompt, in a trie",
    target="yaie.course.lessons.trie:TokenTrie.find_shared_prefixes",
    task=(
        "A trie holds the prompts of several requests, one node per token. Walk down as far as a "
        "new prompt agrees with it. Return the ids of the requests that share this prefix, and "
        "its length in tokens."
    ),
    difficulty=1,
    minutes=8,
    hints=(
        "Begin at the root and follow the prompt, one token and one node at a time, until there "
        "is no child for the next token. The node where you stop has the answer.",
        "Before each step, `length` tokens have matched and `node` is where they end; every id in "
        "`node.request_ids` belongs to a request that begins with exactly those tokens. The root "
        "is the prefix of no tokens, so every request is in its set: that is why length 0 is a "
        "case of its own.",
        "Start with `node, length = self.root, 0`. Then:\n\n"
        "    for token in token_ids:\n"
        "        if ...:          # no child of that token\n"
        "            break\n"
        "        ...              # one node down, one token more\n\n"
        "After the loop, length 0 gives `[], 0`. Otherwise return "
        "`sorted(node.request_ids, key=str)` and the length.",
    ),
    proves="It agrees with brute force over all requests on 210 tries, and a lookup adds no node.",
)


def cases() -> Iterator[Case]:
    two = {"a": [1, 2, 3], "b": [1, 2, 4]}
    for prompt in ([1, 2, 3], [1, 2, 9], [1, 2, 3, 5], [9, 1, 2], [1, 9, 2, 3], []):
        yield lookup(two, prompt)
    yield lookup({"long": [1, 2, 3], "short": [1]}, [1, 2, 7])
    yield lookup({2: [5, 6], 10: [5, 6]}, [5])
    yield lookup({"b": [5, 6], 3: [5, 6]}, [5, 6])
    yield lookup({}, [1, 2])
    generator = random.Random(0)
    for _ in range(200):
        requests = {f"r{number}": random_tokens(generator, 6) for number in range(5)}
        yield lookup(requests, random_tokens(generator, 7))


def lookup(requests: dict, prompt: list[int]) -> Case:
    return Case(in_words, trace=list(requests.items()), prompt=prompt)


def in_words(case: Case) -> str:
    return f"a trie of the requests {dict(case.trace)}" if case.trace else "an empty trie"


def observe(TokenTrie: type, case: Case, see: Observer) -> None:
    trie = TokenTrie()
    for request_id, tokens in case.trace:
        trie.insert_request(request_id, tokens)
    held = trie.num_nodes, trie.get_shared_computation_graph()
    by_length = [
        sorted((name for name, tokens in case.trace if tokens[:end] == case.prompt[:end]), key=str)
        for end in range(len(case.prompt) + 1)
    ]
    length = max((end for end, names in enumerate(by_length) if end and names), default=0)
    prefix = f"The longest prefix that a request begins with is {case.prompt[:length]}."
    call = f"find_shared_prefixes({case.prompt})"
    with see.call(call):
        got = trie.find_shared_prefixes(list(case.prompt))
    see.equal(call, got, (by_length[length] if length else [], length), prefix)
    after = trie.num_nodes, trie.get_shared_computation_graph()
    see.true(call, after == held, "changed the trie", "A lookup only reads.")


def draw(TokenTrie: type) -> Any:
    from yaie.course.exercises.nb02.pictures import draw_trie_matches

    return draw_trie_matches(TokenTrie)
