"""Pictures of notebook 04, drawn from the learner's methods."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from yaie.course import viz
from yaie.engine.kv_cache import KVCacheManager

SIZE = 4  # words are tokens here, four to a block
TEXT = (
    "You are the help desk of a town library . When do you open on Sunday ? "
    "Where can I return a book at night ?"
)
WORDS = TEXT.split(" ")
SYSTEM, SUNDAY, NIGHT = range(10), range(10, 17), range(17, 26)


def _decode(tokens: Sequence[int]) -> str:
    return " ".join(WORDS[token] for token in tokens)


def _manager(RadixCache: Any, num_blocks: int) -> tuple[Any, Any]:
    manager = KVCacheManager(num_blocks, SIZE, num_heads=1, head_dim=1)
    return manager, RadixCache(manager.pool, SIZE)


def _serve(manager: Any, cache: Any, name: str, tokens: Sequence[int]) -> None:
    """Let a request start, reuse what is there, compute the rest and keep it; it does not end."""
    found = cache.match(tokens)
    manager.allocate_blocks(name, len(tokens), found.values)
    cache.insert(tokens, manager.block_tables[name])


def draw_match(RadixCache: Any) -> Any:
    """A longer prompt and the very same prompt, matched."""
    manager, cache = _manager(RadixCache, 8)
    prompt = [*SYSTEM, *SUNDAY][:16]
    _serve(manager, cache, "Sunday", prompt)
    states, titles = [], []
    for tokens, name in (([*prompt, 16], "a longer prompt"), (prompt, "the same prompt")):
        found = cache.match(tokens)
        states.append(viz.snapshot_tree(cache.tree, _decode, matched=tokens[: found.length]))
        rest = len(tokens) - found.length
        titles.append(f"{name}: {found.length} tokens reused, {rest} to compute")
    return viz.film_strip(states, viz.draw_tree, titles)


def draw_insert(RadixCache: Any) -> Any:
    """Two requests of one step that computed the same beginning."""
    manager, cache = _manager(RadixCache, 12)
    prompts = {"Sunday": [*SYSTEM, *SUNDAY], "night": [*SYSTEM, *NIGHT]}
    for name, tokens in prompts.items():  # both were matched before either was computed
        manager.allocate_blocks(name, len(tokens))
    states = []
    for name, tokens in prompts.items():
        cache.insert(tokens, manager.block_tables[name])
        states.append(viz.snapshot_cache(manager, cache, _decode))
    for name in prompts:
        manager.free_blocks(name)
    states.append(viz.snapshot_cache(manager, cache, _decode))
    titles = ['insert "Sunday"', 'insert "night"', "both have ended"]
    return viz.film_strip(states, partial(viz.draw_cache, width=4.8), titles)


def draw_evict(RadixCache: Any) -> Any:
    """Room for a request that needs more than is free."""
    manager, cache = _manager(RadixCache, 8)
    for name, tokens in (("Sunday", [*SYSTEM, *SUNDAY]), ("night", [*SYSTEM, *NIGHT])):
        _serve(manager, cache, name, tokens)
        manager.free_blocks(name)
    states = [viz.snapshot_cache(manager, cache, _decode)]
    cache.make_room(4)
    states.append(viz.snapshot_cache(manager, cache, _decode))
    return viz.film_strip(states, partial(viz.draw_cache, width=4.8), ["before", "make_room(4)"])
