"""03.2: reference counts going down, to a free block or to an error that changes nothing."""

import random
from collections import deque
from collections.abc import Iterator
from typing import Any

from yaie.course import viz
from yaie.course.core.observe import Case, Observer
from yaie.course.exercises.nb03.books import FAILED, after, film
from yaie.engine.kv_cache import KVCacheManager


def cases() -> Iterator[Case]:
    yield case([1, 1, 1, 0], ("release", [1]))
    yield case([2, 0, 1, 0], ("release", [0]))
    yield case([1, 1, 1, 0], ("release", [3]))
    yield case([1, 1, 1, 0], ("release", [0, 1, 3]))
    yield case([1, 1], ("release", [1, 1]))
    yield case([1, 2], ("release", [1, 1]))
    yield case([1, 1, 1], ("release", [-1]))
    yield case([1, 1, 1], ("release", [3]))
    yield case([1, 1, 1], ("release an iterator of", [0, 2]))
    generator = random.Random(0)
    yield case([0] * 6, *(random_step(generator) for _ in range(600)))


def case(users: list[int], *steps: tuple) -> Case:
    return Case(in_words, trace=steps, users=users)


def random_step(generator: random.Random) -> tuple[str, list[int]]:
    action = generator.random()
    blocks = [generator.randrange(6) for _ in range(generator.randrange(4))]
    return "allocate" if action < 0.3 else "share" if action < 0.5 else "release", blocks


def in_words(case: Case) -> str:
    told = [f"{action} {'a block' if action == 'allocate' else blocks}"
            for action, blocks in case.trace]  # fmt: skip
    return after(f"in a pool with {case.users} users per block", told)


def observe(BlockPool: type, case: Case, see: Observer) -> None:
    pool, users = BlockPool(len(case.users)), list(case.users)
    pool._ref_counts[:] = users
    pool.free_block_list = deque(block for block, count in enumerate(users) if count == 0)
    for action, blocks in case.trace:
        if action == "allocate":
            if pool.num_free:
                users[pool.allocate(1)[0]] = 1
        elif action == "share":
            if all(users[block] for block in blocks):
                pool.share(blocks)
                for block in blocks:
                    users[block] += 1
        else:
            observe_release(see, pool, users, blocks, iterator="iterator" in action)
        see.stop_if_wrong()


def observe_release(
    see: Observer, pool: Any, users: list[int], blocks: list[int], iterator: bool
) -> None:
    """Call `release`, and count down in `users` what it should count down."""
    size = len(users)
    argument = iter(blocks) if iterator else list(blocks)
    call = f"release({f'iter({blocks})' if iterator else blocks})"
    because = ""
    for block in blocks:
        if not 0 <= block < size:
            because = f"The blocks of this pool have the numbers 0 to {size - 1}."
        elif users[block] < blocks.count(block):
            because = f"The count of block {block} cannot go down from {users[block]} by "
            because += f"{blocks.count(block)}."
    if because:
        see.raises(call, ValueError, lambda: pool.release(argument), because)
        told, because = f"the refused {call}", FAILED
    else:
        with see.call(call):
            pool.release(argument)
        for block in blocks:
            users[block] -= 1
        told, because = call, f"Each block loses a user for each time it is in {blocks}."
    counts = [pool.ref_count(block) for block in range(size)]
    see.equal(f"the count of users per block after {told}", counts, users, because)
    free = [block for block in range(size) if users[block] == 0]
    because = "A block without users is free, once."
    see.equal(f"the list of free blocks after {told}", sorted(pool.free_block_list), free, because)


def draw(BlockPool: type) -> Any:
    manager = KVCacheManager(8, 16, num_heads=1, head_dim=2, pool=BlockPool(8))
    manager.allocate_blocks("chat", 48)
    manager.fork("chat", "again")
    states = {"two users of each block": viz.snapshot_pool(manager)}
    manager.free_blocks("chat")
    states["chat ends: one user left"] = viz.snapshot_pool(manager)
    manager.free_blocks("again")
    states["again ends: free"] = viz.snapshot_pool(manager)
    return film(states)
