"""02.1: a token trie's lookup, against brute force over all requests."""

import random
from collections.abc import Iterator

from yaie.course.core.observe import Case, Observer
from yaie.course.exercises.nb02 import pictures
from yaie.course.exercises.nb02.trees import DEEP, random_tokens


def cases() -> Iterator[Case]:
    two = {"a": [1, 2, 3], "b": [1, 2, 4]}
    for prompt in ([1, 2, 3], [1, 2, 9], [1, 2, 3, 5], [9, 1, 2], [1, 9, 2, 3], []):
        yield lookup(two, prompt)
    yield lookup({"long": [1, 2, 3], "short": [1]}, [1, 2, 7])
    yield lookup({2: [5, 6], 10: [5, 6]}, [5])
    yield lookup({"b": [5, 6], 3: [5, 6]}, [5, 6])
    yield lookup({"zero": [0, 5], "one": [1]}, [0, 5, 1])
    yield lookup({}, [1, 2])
    yield Case(f"a trie of one request with {DEEP:,} tokens", trace=None, depth=DEEP)
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
    if case.trace is None:
        trie.insert_request("long", [1] * case.depth)
        call = "find_shared_prefixes(its prompt)"
        with see.call(call):
            got = trie.find_shared_prefixes([1] * case.depth)
        see.equal(call, got, (["long"], case.depth), "The request begins with the whole prompt.")
        return
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
        got = trie.find_shared_prefixes(prompt := list(case.prompt))
    see.equal(call, got, (by_length[length] if length else [], length), prefix)
    after = trie.num_nodes, trie.get_shared_computation_graph()
    see.true(call, after == held, "changed the trie", "A lookup only reads.")
    see.unchanged(["token_ids"], [prompt], [case.prompt])


draw = pictures.draw_trie_matches
