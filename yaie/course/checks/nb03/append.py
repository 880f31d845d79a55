"""The check of KVCacheManager.append_tokens."""

from __future__ import annotations

import random
from collections.abc import Hashable
from typing import Any

from yaie.course.checks.nb03.common import (
    NO_RETURN,
    accounts,
    new_manager,
    oracle_slots,
    picture_of,
    snapshot,
    state_of,
    unchanged,
)
from yaie.course.core.expect import equal, fail, given, raises, true


def check_append_tokens(KVCacheManager: Any) -> None:
    append_alone(KVCacheManager)
    refuse_bad_appends(KVCacheManager)
    copy_on_write(KVCacheManager)
    share_full_blocks(KVCacheManager)
    append_nothing(KVCacheManager)
    refuse_when_full_after_a_fork(KVCacheManager)
    append_at_random(KVCacheManager)


def append(manager: Any, name: str, num_tokens: int, note: str = "") -> list[int]:
    """Append through the learner's code; check table, length, slots and counts."""
    size, length = manager.block_size, manager.lengths[name]
    old = list(manager.block_tables[name])
    call = f"append_tokens({name!r}, {num_tokens}) to {length} tokens with block_size {size}{note}"
    with given(call):
        got = manager.append_tokens(name, num_tokens)
    table = list(manager.block_tables[name])
    end, needed = length + num_tokens, -(-(length + num_tokens) // size)
    equal(
        len(table),
        needed,
        f"the number of blocks after {call}",
        because=f"It had {len(old)} blocks, and {end} tokens need {needed}.",
        mistakes=[
            (len(old), "No new block was taken, though the last one is full."),
            (needed + 1, "The last block is filled exactly: the next is taken when it is needed."),
            (len(old) + 1, "New tokens may need several blocks: count what all of them need."),
        ],
    )
    equal(manager.lengths[name], end, f"lengths[{name!r}] after {call}")
    want = oracle_slots(table, size, length, end)
    equal(
        got,
        want,
        f"the slots that {call} returned",
        because=f"The table is {table}: a slot is block * block_size + offset.",
        mistakes=[
            (None, NO_RETURN),
            (list(range(length, end)), "These are positions in the sequence, not slots."),
            (oracle_slots(table, size, 0, end), "Return the slots of the new tokens only."),
            (oracle_slots(table, size, 0, num_tokens), "The new tokens come after the old ones."),
            (oracle_slots(table, size, end, end + num_tokens), "That is behind the new tokens."),
        ],
    )
    return got


def append_alone(KVCacheManager: Any) -> None:
    manager = new_manager(KVCacheManager, 12, 4)
    manager.allocate_blocks("a", 3)
    manager.allocate_blocks("b", 4)
    for name, num_tokens in (("a", 1), ("b", 1), ("a", 1), ("a", 3), ("a", 6), ("b", 11), ("a", 4)):
        old = list(manager.block_tables[name])
        append(manager, name, num_tokens)
        equal(
            manager.block_tables[name][: len(old)],
            old,
            f"the old blocks of {name!r} after append_tokens({name!r}, {num_tokens})",
            because="Nobody else uses them, so there is nothing to copy.",
        )
        accounts(manager, f"append_tokens({name!r}, {num_tokens})")


def refuse_bad_appends(KVCacheManager: Any) -> None:
    from yaie.engine.kv_cache import OutOfBlocks

    manager = new_manager(KVCacheManager, 3, 4)
    manager.allocate_blocks("a", 3)
    before = state_of(manager)
    for error, name, num_tokens, because in (
        (ValueError, "a", -1, "Tokens cannot be taken back."),
        (KeyError, "nobody", 1, "Nobody has no block table."),
        (OutOfBlocks, "a", 12, "15 tokens need 4 blocks, and there are 3."),
    ):
        call = f"append_tokens({name!r}, {num_tokens})"
        raises(error, lambda n=name, k=num_tokens: manager.append_tokens(n, k), call, because)
        unchanged(
            manager,
            before,
            f"{call}, which raised {error.__name__}",
            "A call that fails changes nothing: take all blocks at once, and record after that.",
        )


def forked(KVCacheManager: Any, num_blocks: int, num_tokens: int) -> Any:
    """A request "a" with contents in two layers, and its fork "b"; blocks of 4."""
    import torch

    manager = new_manager(KVCacheManager, num_blocks, 4, num_layers=2)
    manager.allocate_blocks("other", 1)
    manager.allocate_blocks("a", num_tokens)
    contents = torch.arange(num_tokens * 2, dtype=torch.float32).view(num_tokens, 1, 2) + 1
    for layer in range(2):
        manager.write("a", 0, contents + 100 * layer, -contents - 100 * layer, layer)
    manager.fork("a", "b")
    return manager


def copy_on_write(KVCacheManager: Any) -> None:
    manager = forked(KVCacheManager, 8, 6)
    full, tail = manager.block_tables["a"]
    before = snapshot(manager)
    note = ', with a tail block that "a" and "b" share'
    append(manager, "b", 1, note)
    own = manager.block_tables["b"][-1]
    true(
        own != tail,
        f'After fork("a", "b"), append_tokens("b", 1) returned a slot in block {tail}, which "a" '
        "uses too: b's token would stand in a's text as soon as \"a\" goes on. Take a copy first.",
        picture_of(manager, before),
    )
    equal(manager.block_tables["a"], [full, tail], 'block_tables["a"] after "b" appended',
          because='The request that writes gets the copy; "a" keeps its table.')  # fmt: skip
    equal(
        manager.block_tables["b"],
        [full, own],
        'block_tables["b"] after it appended',
        because="A full block is never written again, so it stays shared.",
    )
    same_contents(manager, tail, own)
    equal(
        manager.pool.ref_count(tail),
        1,
        f'the users of block {tail} after "b" took a copy of it',
        because='Only "a" is left.',
        mistakes=[
            (
                2,
                f'"b" has its copy, and still counts as a user of block {tail}: the block would '
                "never be free again.",
            )
        ],
    )
    accounts(manager, 'append_tokens("b", 1) after fork("a", "b")')
    append(manager, "a", 1, ', whose tail block was shared with "b" until "b" took a copy')
    equal(
        manager.block_tables["a"],
        [full, tail],
        'block_tables["a"] after it appended, too',
        because=f'"a" is the only user of block {tail} by now: nothing to copy.',
    )
    accounts(manager, 'append_tokens("a", 1)')


def same_contents(manager: Any, source: int, copy: int) -> None:
    """Both blocks hold the keys and values of the tokens 4 and 5, as `forked` wrote them."""
    import torch

    written = torch.arange(8, 12, dtype=torch.float32).view(2, 1, 2) + 1
    for layer in range(2):
        for name, pools, sign in (
            ("keys", manager.key_pools, 1),
            ("values", manager.value_pools, -1),
        ):
            want = sign * (written + 100 * layer)
            if not bool((pools[layer][source, :2] == want).all()):
                fail(
                    f"The {name} of layer {layer} in block {source} have changed: block {source} "
                    f'stays with "a", and {copy} is the copy. Was it copied in the wrong direction?'
                )
            if not bool((pools[layer][copy, :2] == want).all()):
                fail(
                    f"The {name} of layer {layer} in block {copy} are not those of block {source}, "
                    "which it is a copy of. The tokens before the new one lie in the copied block: "
                    "their keys and values, of every layer, have to come along. `_copy_block` "
                    "copies all of them."
                )


def share_full_blocks(KVCacheManager: Any) -> None:
    manager = forked(KVCacheManager, 8, 8)
    shared = list(manager.block_tables["a"])
    append(manager, "b", 1, ', all in full blocks that "a" and "b" share')
    equal(
        manager.block_tables["b"][:2],
        shared,
        'b\'s first two blocks after append_tokens("b", 1) to 8 tokens in blocks of 4',
        because="They are full: the new token lies in a new block, so nothing is copied.",
    )
    accounts(manager, 'append_tokens("b", 1) after a fork at a block boundary')


def append_nothing(KVCacheManager: Any) -> None:
    manager = forked(KVCacheManager, 8, 6)
    before = state_of(manager)
    append(manager, "b", 0, ', with a tail block that "a" and "b" share')
    because = "Nothing is written, so nothing is copied."
    unchanged(manager, before, 'append_tokens("b", 0) after a fork', because)


def refuse_when_full_after_a_fork(KVCacheManager: Any) -> None:
    from yaie.engine.kv_cache import OutOfBlocks

    manager = forked(KVCacheManager, 4, 6)
    before = state_of(manager)
    call = 'append_tokens("b", 3), which needs a copy and a new block when 1 is free,'
    raises(OutOfBlocks, lambda: manager.append_tokens("b", 3), call)
    unchanged(
        manager,
        before,
        call,
        "It failed halfway: the copy was made before the new block was refused. Count the copy "
        "among the blocks that you ask for, and ask once.",
    )


def append_at_random(KVCacheManager: Any) -> None:
    import torch

    from yaie.engine.kv_cache import OutOfBlocks

    generator = random.Random(0)
    for block_size in (1, 3, 4):
        manager = new_manager(KVCacheManager, 14, block_size)
        texts: dict[Hashable, list[int]] = {}
        for step in range(150):
            action, name = generator.random(), f"r{step}"
            if not texts or action < 0.15:
                if manager.pool.num_free:
                    manager.allocate_blocks(name, 0)
                    texts[name] = []
                continue
            chosen = generator.choice(list(texts))
            if action < 0.3:
                manager.fork(chosen, name)
                texts[name] = list(texts[chosen])
            elif action < 0.45:
                manager.free_blocks(chosen)
                del texts[chosen]
            else:
                new = [generator.randrange(1000) for _ in range(generator.randrange(6))]
                before, call = (
                    state_of(manager),
                    f"step {step}, append_tokens({chosen!r}, {len(new)})",
                )
                try:
                    with given(call):
                        got = manager.append_tokens(chosen, len(new))
                except OutOfBlocks:
                    unchanged(manager, before, call, "A call that fails changes nothing.")
                    continue
                equal(len(got), len(new), f"the number of slots of {call}")
                keys = torch.tensor(new, dtype=torch.float32).view(-1, 1, 1).expand(-1, 1, 2)
                manager.key_pools[0].flatten(0, 1)[torch.tensor(got, dtype=torch.int64)] = keys
                texts[chosen] += new
                accounts(manager, call)
            for reader, text in texts.items():
                found = [int(x) for x in manager.gather(reader)[0][:, 0, 0]]
                equal(found, text, f"what {reader!r} reads after step {step} ({chosen!r} changed)",
                      because="Somebody else wrote into its blocks.")  # fmt: skip


def draw_append_tokens(KVCacheManager: Any) -> Any:
    from yaie.course.viz import draw_blocks, film_strip

    manager = new_manager(KVCacheManager, 8, 16)
    manager.allocate_blocks("a", 40)
    states, titles = [snapshot(manager)], ["a: 40 tokens"]
    manager.fork("a", "b")
    states.append(snapshot(manager))
    titles.append("b is forked")
    manager.append_tokens("b", 1)
    states.append(snapshot(manager))
    titles.append("b writes: copy first")
    manager.append_tokens("a", 14)
    states.append(snapshot(manager))
    titles.append("a writes 14 in its own")
    return film_strip(states, draw_blocks, titles)
