"""The check of 04.1: `RadixCache.match`."""

from __future__ import annotations

from typing import Any

from yaie.course.checks.nb04.common import PROMPT, SIZE, counts, counts_of, depth, keep, new_cache
from yaie.course.checks.nb04.trace import check_trace
from yaie.course.core.expect import equal, given, true

ZERO_LENGTH = (
    "Everything is cached, so the prefill would have length zero: no forward pass, no logits, no "
    "next token. At least one token has to be left over."
)
TOO_CAREFUL = (
    "That is a block too few: only the last token has to be left over, and here it stands behind "
    "this block."
)
MATCHES = [
    ([*PROMPT, 99], 6, "The last token is new, and all three blocks before it can be reused."),
    (PROMPT, 4, "One token has to be left over, and a block is shared whole or not at all."),
    (PROMPT[:5], 4, "Two whole blocks, and one token is left over."),
    (PROMPT[:4], 2, "One token has to be left over, and a block is shared whole or not at all."),
    (PROMPT[:2], 0, "The only block holds the token that must be computed."),
    (PROMPT[:1], 0, "One token fills no block of 2."),
    ([], 0, "No tokens match nothing."),
    ([1, 2, 3, 99, 5, 6], 2, "The second block differs in its last token."),
    ([99, 2, 3, 4, 5, 6], 0, "The first token differs, and what follows depends on it."),
]


def check_match(RadixCache: Any) -> None:
    cache = new_cache(RadixCache)
    blocks = keep(cache, PROMPT)
    for prompt, length, because in MATCHES:
        call = f"match({prompt}) on a cache that holds {PROMPT} in blocks of {SIZE}"
        _check_found(_match(cache, prompt, call), prompt, blocks[: length // SIZE], call, because)
    equal(
        counts(cache, blocks),
        [1, 1, 1],
        f"after {len(MATCHES)} calls of match, {counts_of(blocks)}",
        because="The cache is the only user of its blocks. A match takes no reference: the request "
        "becomes a user when its table is made, and would be counted twice.",
    )
    equal(
        cache.num_available,
        cache.pool.num_blocks,
        f"after {len(MATCHES)} calls of match, num_available",
        because="A match takes no lock: its caller does, and takes it back in the end.",
    )
    _check_namespaces(RadixCache)
    _check_evicted(RadixCache)
    _check_use(RadixCache)
    check_trace(RadixCache, seed=1)


def _match(cache: Any, prompt: list[int], call: str, namespace: str = "") -> Any:
    from yaie.engine.radix import Match

    tokens = list(prompt)
    with given(call):
        found = cache.match(tokens, namespace) if namespace else cache.match(tokens)
    true(
        isinstance(found, Match),
        f"{call} returned {found!r}; a Match is wanted, with node, length and values: it is what "
        "`self.tree.match` returns.",
    )
    equal(
        tokens,
        prompt,
        f"{call} changed its argument: token_ids",
        because="They are the request's own tokens, which it has yet to compute. Slice a copy.",
    )
    return found


def _check_found(
    found: Any, prompt: list[int], blocks: list[int], call: str, because: str = ""
) -> None:
    length = len(blocks) * SIZE
    mistakes = [(length - SIZE, TOO_CAREFUL)]
    if length < len(prompt):
        unaligned = f"{len(prompt) - 1} tokens are not whole blocks of {SIZE}."
        mistakes += [
            (len(prompt), ZERO_LENGTH),
            (len(prompt) - 1, f"A block is shared whole or not at all: {unaligned}"),
        ]
    equal(found.length, length, f"{call}: length", because=because, mistakes=mistakes)
    equal(found.values, blocks, f"{call}: values", because="They are the matched blocks.")
    at = depth(found.node)
    true(
        at == length,
        f"{call}: length is {length}, but the node ends after {at} tokens, so the request would "
        "lock blocks that it does not use. Take the token away before the tree is asked: then "
        "node, length and values agree.",
    )


def _check_namespaces(RadixCache: Any) -> None:
    cache = new_cache(RadixCache)
    prompt = [*PROMPT, 99]
    adapted = keep(cache, PROMPT, "adapter-1")
    alien = (
        "They were computed in another namespace, with other weights: other keys and values for "
        "the same tokens. Tell the tree which namespace is meant."
    )
    call = f'match({prompt}) on a cache that holds {PROMPT} in namespace "adapter-1" only'
    found = _match(cache, prompt, call)
    equal(found.length, 0, f"{call}: length", because=alien)
    plain = keep(cache, PROMPT)
    call = f'match({prompt}, "adapter-1") on a cache that holds {PROMPT} in two namespaces'
    found = _match(cache, prompt, call, "adapter-1")
    equal(found.values, adapted, f"{call}: values", because="", mistakes=[(plain, alien)])
    found = _match(cache, prompt, call := call.replace(', "adapter-1")', ")"))
    equal(found.values, plain, f"{call}: values", because="", mistakes=[(adapted, alien)])


def _check_evicted(RadixCache: Any) -> None:
    cache = new_cache(RadixCache)
    prompt = [*PROMPT, 99]
    blocks = keep(cache, PROMPT)
    call = f"match({prompt})"
    _match(cache, prompt, call)
    cache.evict(3)
    call = f"{call} again, after its blocks {blocks} were evicted"
    found = _match(cache, prompt, call)
    equal(
        found.length,
        0,
        f"{call}: length",
        because="They are free, and whoever gets them next overwrites them. What was true at the "
        "last match need not be true now: ask the tree each time.",
    )


def _check_use(RadixCache: Any) -> None:
    cache = new_cache(RadixCache)
    first, second = [1, 2], [3, 4]
    keep(cache, first)
    keep(cache, second)
    call = f"match({[*first, 9]})"
    _match(cache, [*first, 9], call)
    cache.evict(1)
    found = _match(cache, [*first, 9], call)
    equal(
        found.length,
        2,
        f"{first} and then {second} were inserted, {first} was matched, and one block evicted. "
        f"{call}: length",
        because="What a match finds counts as used now, so the other one had to go.",
    )
