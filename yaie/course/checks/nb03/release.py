"""The check of BlockPool.release."""

from __future__ import annotations

import random
from typing import Any

from yaie.course.checks.nb03.common import snapshot, users_of
from yaie.course.core.expect import equal, given, raises, true


def check_release(BlockPool: Any) -> None:
    release_one_and_shared(BlockPool)
    refuse_a_free_block(BlockPool)
    refuse_all_or_nothing(BlockPool)
    release_twice_in_one_call(BlockPool)
    refuse_outside(BlockPool)
    release_an_iterator(BlockPool)
    release_at_random(BlockPool)


def release_one_and_shared(BlockPool: Any) -> None:
    pool = BlockPool(4)
    pool.allocate(3)
    with given("release([1])"):
        pool.release([1])
    equal(pool.ref_count(1), 0, "the users of block 1 after release([1])", because="It had one.")
    equal(
        sorted(pool.free_block_list),
        [1, 3],
        "the free blocks after release([1])",
        because="Block 1 has no users left.",
        mistakes=[([3], "Block 1 has no users left but is not in free_block_list: it is leaked.")],
    )
    pool.share([0])
    call = "release([0]) of a block with 2 users"
    with given(call):
        pool.release([0])
    early = (
        "Block 0 was freed while somebody still reads it: it is free when the last user has "
        "released it."
    )
    equal(pool.ref_count(0), 1, f"the users of block 0 after {call}", mistakes=[(0, early)])
    free = sorted(pool.free_block_list)
    equal(free, [1, 3], f"the free blocks after {call}", mistakes=[([0, 1, 3], early)])


def full_pool(BlockPool: Any, num_blocks: int, *free: int) -> Any:
    """All blocks have one user, but those in `free`."""
    pool = BlockPool(num_blocks)
    pool.allocate(num_blocks)
    pool.release(free)
    return pool


def refuse_a_free_block(BlockPool: Any) -> None:
    call = "release([7]) of a block that is free"
    refuse_silence(full_pool(BlockPool, 8, 7), call)
    pool = full_pool(BlockPool, 8, 7)
    raises(ValueError, lambda: pool.release([7]), call)
    equal(
        pool.ref_count(7),
        0,
        f"the users of block 7 after {call}",
        mistakes=[
            (
                -1,
                "The call was refused, but the reference count was dropped before the check: with "
                "-1, `share` no longer sees that the block is free. Check first, then count.",
            )
        ],
    )
    free = list(pool.free_block_list)
    equal(free, [7], f"the free blocks after {call}", because="It was refused, too late.")


def refuse_silence(pool: Any, call: str) -> None:
    """See what a version does that does not refuse the call."""
    try:
        pool.release([7])
    except Exception:  # whether it is the right one is tried next
        return
    true(
        list(pool.free_block_list) != [7, 7],
        f"{call} should raise ValueError, but block 7 was freed twice: it stands in "
        "free_block_list twice, so two requests will be given it and write over each other.",
    )
    true(
        pool.ref_count(7) >= 0,
        f"{call} should raise ValueError, but its count went to {pool.ref_count(7)}: `share` no "
        "longer sees that the block is free, and the mistake of the caller stays hidden.",
    )


def refuse_all_or_nothing(BlockPool: Any) -> None:
    pool = full_pool(BlockPool, 4, 3)
    call = "release([0, 1, 3]), when block 3 is free,"
    raises(ValueError, lambda: pool.release([0, 1, 3]), call)
    equal(
        sorted(pool.free_block_list),
        [3],
        f"the free blocks after {call}",
        because="Blocks 0 and 1 were released before block 3 was found to be free. The caller "
        "sees an error and still has its table: look at all blocks first, then release.",
    )
    equal(users_of(pool), [1, 1, 1, 0], f"the users of each block after {call}")


def release_twice_in_one_call(BlockPool: Any) -> None:
    pool = BlockPool(2)
    pool.allocate(2)
    call = "release([1, 1]) of a block with 1 user"
    raises(
        ValueError,
        lambda: pool.release([1, 1]),
        call,
        because="It is to lose two users and has one: count how often a block occurs.",
    )
    equal(users_of(pool), [1, 1], f"the users of each block after {call}")
    pool.share([1])
    with given("release([1, 1]) of a block with 2 users", errors={ValueError: "It has two."}):
        pool.release([1, 1])
    call = "release([1, 1]) of a block with 2 users"
    forgotten = "A block that occurs twice loses two users: a set forgets that."
    equal(pool.ref_count(1), 0, f"the users of block 1 after {call}", mistakes=[(1, forgotten)])
    free = list(pool.free_block_list)
    equal(free, [1], f"the free blocks after {call}", because="It is free, once.")


def refuse_outside(BlockPool: Any) -> None:
    for block in (-1, 3):
        pool = BlockPool(3)
        pool.allocate(3)
        call = f"release([{block}]) in a pool of 3 blocks"
        because = "A negative index counts from the end: block 2 was released in its place."
        if block == 3:
            because = "`ref_count` checks the number."
        raises(ValueError, lambda p=pool, b=block: p.release([b]), call, because=because)
        equal((users_of(pool), list(pool.free_block_list)), ([1, 1, 1], []),
              f"users and free blocks after {call}")  # fmt: skip


def release_an_iterator(BlockPool: Any) -> None:
    pool = BlockPool(3)
    pool.allocate(3)
    call = "release(iter([0, 2]))"
    with given(call, errors={TypeError: "`blocks` may be any iterable: make it a list first."}):
        pool.release(iter([0, 2]))
    equal(
        sorted(pool.free_block_list),
        [0, 2],
        f"the free blocks after {call}",
        mistakes=[([], "An iterator can be read only once: make `blocks` a list first.")],
    )


def release_at_random(BlockPool: Any) -> None:
    generator = random.Random(0)
    pool, users = BlockPool(6), [0] * 6
    for step in range(600):
        action = generator.random()
        blocks = [generator.randrange(6) for _ in range(generator.randrange(4))]
        if action < 0.3 and pool.num_free:
            users[pool.allocate(1)[0]] = 1
        elif action < 0.5 and all(users[block] for block in blocks):
            pool.share(blocks)
            for block in blocks:
                users[block] += 1
        elif action >= 0.5:
            before = list(users)
            for block in blocks:
                users[block] -= 1
            call = f"step {step}, release({blocks}) with users {before},"
            if min(users) < 0:
                users = before
                raises(ValueError, lambda b=blocks: pool.release(b), call)
            else:
                with given(call):
                    pool.release(blocks)
            free = [block for block in range(6) if not users[block]]
            equal(users_of(pool), users, f"the users of each block after {call}")
            equal(sorted(pool.free_block_list), free, f"the free blocks after {call}")


def draw_release(BlockPool: Any) -> Any:
    from yaie.course.viz import draw_blocks, film_strip
    from yaie.engine.kv_cache import KVCacheManager

    manager = KVCacheManager(8, 16, num_heads=1, head_dim=2, pool=BlockPool(8))
    manager.allocate_blocks("chat", 48)
    manager.fork("chat", "again")
    states, titles = [snapshot(manager)], ["two users of each block"]
    manager.free_blocks("chat")
    states.append(snapshot(manager))
    titles.append("chat ends: one user left")
    manager.free_blocks("again")
    states.append(snapshot(manager))
    titles.append("again ends: free")
    return film_strip(states, draw_blocks, titles)
