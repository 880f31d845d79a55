"""Scheduling without a model: the real scheduler over a real cache, with made-up tokens.

What a scheduler decides depends on lengths, arrivals and free blocks, not on what the model says.
So a simulation shows every decision, in no time.
"""

from dataclasses import dataclass
from typing import Any

from yaie.course import viz
from yaie.engine.config import EngineConfig
from yaie.engine.kv_cache import KVCacheManager
from yaie.engine.params import SamplingParams
from yaie.engine.prefix_cache import RadixCache
from yaie.engine.request import Request


@dataclass(frozen=True)
class Arrival:
    """A request of a simulation.

    Attributes:
        step: when it comes.
        prompt: its tokens, or how many; then no other request has any of them.
        num_outputs: how many tokens it generates.
    """

    step: int
    prompt: int | list[int]
    num_outputs: int


class Simulation:
    """A scheduler over a small pool.

    Args:
        scheduler_class: the scheduler to watch.
        num_blocks, block_size: the pool.
        options: of `EngineConfig`.
    """

    def __init__(
        self, scheduler_class: type, num_blocks: int = 32, block_size: int = 4, **options: Any
    ) -> None:
        self.kv = KVCacheManager(num_blocks, block_size, 1, 1)
        self.cache = RadixCache(self.kv.pool, block_size)
        options = {"max_num_seqs": 8, "max_num_batched_tokens": 16, **options}
        self.scheduler = scheduler_class(self.kv, self.cache, EngineConfig(**options))
        self.requests: dict[str, Request] = {}
        self._next_token = 100_000

    def add(self, name: str, prompt: int | list[int], max_tokens: int = 128) -> Request:
        """Queue a request with these tokens, or with that many new ones, that may generate at most
        `max_tokens`."""
        if isinstance(prompt, int):
            prompt = [self.new_token() for _ in range(prompt)]
        self.requests[name] = Request(name, prompt, SamplingParams(max_tokens=max_tokens))
        self.scheduler.add(self.requests[name])
        return self.requests[name]

    def new_token(self) -> int:
        """A token that no prompt or answer has had."""
        self._next_token += 1
        return self._next_token

    def compute(self, step: Any) -> None:
        """Do with a step what the engine does: a request with all tokens computed gets one more."""
        self.scheduler.advance(step)
        for request in step.scheduled:
            if request.num_new_tokens == 0:
                request.token_ids.append(self.new_token())

    def run(self, arrivals: dict[str, Arrival], limit: int = 500) -> list[viz.StepRecord]:
        """Step until all requests are served, or `limit` is reached; the steps, for pictures."""
        steps: list[viz.StepRecord] = []
        while len(steps) < limit:
            for name, arrival in arrivals.items():
                if arrival.step == len(steps):
                    self.add(name, arrival.prompt, arrival.num_outputs)
            if not (self.scheduler.has_work or any(a.step > len(steps) for a in arrivals.values())):
                break
            steps.append(self._step(arrivals))
        return steps

    def _step(self, arrivals: dict[str, Arrival]) -> viz.StepRecord:
        decoding = {r.request_id for r in self.scheduler.running if r.is_decoding}
        step = self.scheduler.schedule()
        work = tuple(
            (name, "decode" if name in decoding else "prefill", count)
            for name, count in counts(step).items()
        )
        self.compute(step)
        finished = [
            request
            for request in self.scheduler.running
            if request.num_output_tokens >= arrivals[request.request_id].num_outputs
        ]
        for request in finished:
            self.scheduler.finish(request, "length")
        return viz.StepRecord(
            work=work,
            preempted=tuple(request.request_id for request in step.preempted),
            finished=tuple(request.request_id for request in finished),
            free_blocks=self.kv.pool.num_free,
        )

    def num_locked(self) -> int:
        """How many cached blocks are locked."""
        return self.cache.tree.num_values - self.cache.tree.num_evictable

    def is_whole(self) -> bool:
        """Whether every block is free, or kept by the cache without a lock."""
        return self.num_locked() == 0 and (
            self.kv.pool.num_free + self.cache.num_cached == self.kv.pool.num_blocks
        )


def counts(step: Any) -> dict[str, int]:
    """How many tokens each request computes in a step, in the order of the batch."""
    return {r.request_id: step.num_tokens[r.request_id] for r in step.scheduled}
