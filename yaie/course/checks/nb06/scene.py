"""What the checks of notebook 06 share: a small scheduler, and a model that takes no time."""

from __future__ import annotations

from typing import Any


class Scene:
    """A scheduler over a small pool, with requests made of made-up tokens.

    Blocks hold four tokens. `compute` does what the engine does with a step, without a model:
    every request whose tokens are all computed gets one more.
    """

    def __init__(self, scheduler_class: type, num_blocks: int = 32, **options: Any) -> None:
        from yaie.kv_cache import KVCacheManager
        from yaie.prefix_cache import RadixCache

        self.kv = KVCacheManager(num_blocks, 4, 1, 1)
        self.cache = RadixCache(self.kv.pool, 4)
        options = {"max_num_seqs": 8, "max_num_batched_tokens": 16, **options}
        self.scheduler = scheduler_class(self.kv, self.cache, **options)
        self._next_token = 1000

    def request(self, name: str, tokens: list[int] | int) -> Any:
        """A new waiting request: with these tokens, or with that many that nobody else has."""
        from yaie.engine.request import Request

        if isinstance(tokens, int):
            tokens = [self.new_token() for _ in range(tokens)]
        request = Request(name, tokens)
        self.scheduler.add(request)
        return request

    def new_token(self) -> int:
        self._next_token += 1
        return self._next_token

    def compute(self, step: Any) -> None:
        self.scheduler.advance(step)
        for request in step.scheduled:
            if request.num_new_tokens == 0:
                request.token_ids.append(self.new_token())

    def run_reference_step(self) -> Any:
        """One step of the reference, to set a scene with."""
        from yaie.engine.scheduler import Scheduler

        step = Scheduler.schedule(self.scheduler)
        self.compute(step)
        return step

    def num_locked(self) -> int:
        """How many cached blocks are locked."""
        return self.cache.tree.num_values - self.cache.tree.num_evictable

    def is_whole(self) -> bool:
        """Whether every block is free, or kept by the cache without a lock."""
        return self.num_locked() == 0 and (
            self.kv.pool.num_free + self.cache.num_cached == self.kv.pool.num_blocks
        )


def counts(step: Any) -> dict[str, int]:
    """Tokens by request of a step."""
    return {r.request_id: step.num_tokens[r.request_id] for r in step.scheduled}
