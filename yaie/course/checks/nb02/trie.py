"""The check of 02.1: a token trie's lookup against brute force."""

from __future__ import annotations

import random
from typing import Any

from yaie.course.checks.nb02.trees import (
    NO_RETURN,
    random_tokens,
    recognized,
)
from yaie.course.core.expect import equal, given, true

TRIES = [
    ({"a": [1, 2, 3], "b": [1, 2, 4]}, [1, 2, 3]),
    ({"a": [1, 2, 3], "b": [1, 2, 4]}, [1, 2, 9]),
    ({"a": [1, 2, 3], "b": [1, 2, 4]}, [1, 2, 3, 5]),
    ({"a": [1, 2, 3], "b": [1, 2, 4]}, [9, 1, 2]),
    ({"a": [1, 2, 3], "b": [1, 2, 4]}, [1, 9, 2, 3]),
    ({"a": [1, 2, 3], "b": [1, 2, 4]}, []),
    ({"long": [1, 2, 3], "short": [1]}, [1, 2, 7]),
    ({2: [5, 6], 10: [5, 6]}, [5]),
    ({"b": [5, 6], 3: [5, 6]}, [5, 6]),
    ({}, [1, 2]),
]


def check_find_shared_prefixes(TokenTrie: type) -> None:
    generator = random.Random(0)
    drawn_tries = [
        ({f"r{i}": random_tokens(generator, 6) for i in range(5)}, random_tokens(generator, 7))
        for _ in range(200)
    ]
    for requests, prompt in TRIES + drawn_tries:
        trie = TokenTrie()
        for request_id, tokens in requests.items():
            trie.insert_request(request_id, tokens)
        before = trie.num_nodes, trie.get_shared_computation_graph()
        call = f"find_shared_prefixes({prompt}) after inserting {requests}"
        unsorted = "Ids may be of different types: sort them by their text, `key=str`."
        missing = "A token that no request has at this place ends the prefix: ask before you step."
        with (
            recognized(call, TypeError, "'<' not supported", unsorted),
            given(call, errors={KeyError: missing}),
        ):
            got = trie.find_shared_prefixes(list(prompt))
        _equal_shared(got, requests, prompt, call)
        after = trie.num_nodes, trie.get_shared_computation_graph()
        true(
            before == after,
            f"{call} changed the trie: it had {before[0]} nodes, now {after[0]}. A lookup only "
            "reads: `setdefault` and `insert_request` add what was not there.",
        )


def _equal_shared(got: Any, requests: dict, prompt: list[int], call: str) -> None:
    by_length = [_begin_with(prompt[:n], requests) for n in range(len(prompt) + 1)]
    length = max((n for n, ids in enumerate(by_length) if n and ids), default=0)
    ids = by_length[length] if length else []
    mistakes = [
        (None, NO_RETURN),
        ((by_length[0], 0), "With no token in common there is no request to name: ([], 0)."),
        ((ids, length + 1), "The root stands for no token: begin to count at 0."),
        ((ids, length - 1), "The last token that matched counts too."),
        (
            (by_length[min(1, len(prompt))], length),
            "These are the requests that share the first token. Wanted are those that share the "
            "whole prefix: the ids of the last node that you reached.",
        ),
        (
            ([], 0),
            "A part of the prompt is in the trie: its longest known prefix counts, whether or "
            "not the rest follows.",
        ),
        (
            _stepping_over(prompt, requests),
            "The walk went on after a token that was missing: a prefix ends there, for good.",
        ),
        ((ids, len(prompt)), "That is the length of the prompt; only tokens found count."),
        ((set(ids), length), "The ids are wanted as a sorted list."),
    ]
    if all(isinstance(request_id, int) for request_id in ids):
        told = "Sort the ids by their text, `key=str`, since they may be of different types."
        mistakes.append(((sorted(ids), length), told))
    because = f"The longest prefix that anyone begins with is {prompt[:length]}."
    equal(got, (ids, length), call, because, mistakes)


def _begin_with(prefix: list[int], requests: dict) -> list:
    return sorted((i for i, t in requests.items() if t[: len(prefix)] == prefix), key=str)


def _stepping_over(prompt: list[int], requests: dict) -> tuple[list, int]:
    """What a walk finds that goes on from the same node when a token is missing."""
    prefix: list[int] = []
    for token in prompt:
        if _begin_with([*prefix, token], requests):
            prefix.append(token)
    return _begin_with(prefix, requests), len(prefix)
