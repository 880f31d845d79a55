"""A scheduler with its memory and no model, for tests.

The model is a function that reads every slot of its context through the block table. So a slot
that was never written, or that another request has overwritten, changes what a request generates.
"""

from collections import Counter
from collections.abc import Callable, Iterator

from yaie.engine.config import EngineConfig
from yaie.engine.kv_cache import BlockPool, KVCacheManager
from yaie.engine.params import SamplingParams
from yaie.engine.prefix_cache import RadixCache
from yaie.engine.radix import RadixNode
from yaie.engine.request import Request, Status
from yaie.engine.scheduler import Scheduler, Step

VOCABULARY = 3  # few tokens, so that prompts and outputs often begin alike


def next_token(context: list[int]) -> int:
    """What the model says after `context`: any function of all of it will do."""
    state = 17
    for token in context:
        state = (state * 31 + token + 1) % 1009
    return state % VOCABULARY


def expected_output(prompt: list[int], max_tokens: int) -> list[int]:
    """What a request generates when nothing goes wrong."""
    tokens = list(prompt)
    for _ in range(max_tokens):
        tokens.append(next_token(tokens))
    return tokens[len(prompt) :]


class World:
    """Takes steps as the engine does, and checks everything that must hold after each."""

    def __init__(self, num_blocks: int = 64, block_size: int = 4, **scheduling) -> None:
        self.pool = BlockPool(num_blocks)
        self.kv = KVCacheManager(num_blocks, block_size, 1, 2, pool=self.pool)
        self.cache = RadixCache(self.pool, block_size)
        self.scheduler = Scheduler(self.kv, self.cache, EngineConfig(**scheduling))
        self.memory: dict[int, tuple[int, int]] = {}  # slot -> position and token written there
        self.requests: list[Request] = []

    def add(self, prompt: list[int], max_tokens: int = 8, namespace: str = "") -> Request:
        """Queue a request."""
        params = SamplingParams(max_tokens=max_tokens)
        request = Request(f"r{len(self.requests)}", prompt, params, namespace)
        self.requests.append(request)
        self.scheduler.add(request)
        return request

    def step(self) -> Step:
        """Schedule, compute, sample, finish."""
        running = list(self.scheduler.running)
        tokens = [list(request.token_ids) for request in self.requests]
        step = self.scheduler.schedule()
        assert tokens == [request.token_ids for request in self.requests]
        self.check_step(step)
        self.check_preempted(step, running)
        self.check_counts()
        ready = []
        for request in step.scheduled:
            start = request.num_computed_tokens
            end = start + step.num_tokens[request.request_id]
            self.write(request, start, end)
            if end == len(request.token_ids):
                ready.append((request, next_token(self.read(request, end))))
        self.scheduler.advance(step)
        for request, token in ready:
            request.token_ids.append(token)
            if request.num_output_tokens == request.params.max_tokens:
                self.scheduler.finish(request, "length")
        self.check_counts()
        return step

    def run(self, limit: int = 1000) -> list[Step]:
        """Take steps until nothing is left to do."""
        steps = []
        while self.scheduler.has_work:
            assert len(steps) < limit, "the workload does not come to an end"
            steps.append(self.step())
        return steps

    def run_until(self, condition: Callable[[], object], limit: int = 200) -> None:
        """Take steps until something has happened."""
        for _ in range(limit):
            if condition():
                return
            self.step()
        raise AssertionError("it never happened")

    def write(self, request: Request, start: int, end: int) -> None:
        slots = self.kv.slot_mapping(request.request_id, start, end)
        for position, slot in zip(range(start, end), slots, strict=True):
            block = slot // self.kv.block_size
            assert self.pool.ref_count(block) == 1, f"block {block} is shared and written to"
            self.memory[slot] = (position, request.token_ids[position])

    def read(self, request: Request, end: int) -> list[int]:
        cells = [self.memory[slot] for slot in self.kv.slot_mapping(request.request_id, 0, end)]
        assert [position for position, _ in cells] == list(range(end))
        return [token for _, token in cells]

    # ------------------------------------------------------------------------ what must hold

    def check_step(self, step: Step) -> None:
        scheduler, budget = self.scheduler, self.scheduler.max_num_batched_tokens
        assert step.scheduled or step.preempted or not scheduler.has_work, "a step without progress"
        assert len(scheduler.running) <= scheduler.max_num_seqs
        assert len(set(step.num_tokens)) == len(step.scheduled), "a request is scheduled twice"
        old = [request for request in scheduler.running if request not in step.admitted]
        decoding = [request for request in old if request.is_decoding]
        assert step.scheduled[: len(decoding)] == decoding, "a decoding request was left out"
        prefills = step.scheduled[len(decoding) :]
        for request in step.scheduled:
            assert request.status is Status.RUNNING
            assert 1 <= step.num_tokens[request.request_id] <= request.num_new_tokens
        if scheduler.enable_chunked_prefill:
            assert step.total_tokens <= budget, "the budget is exceeded"
            most = scheduler.chunked_prefill_size or budget
            for request in scheduler.running:  # as much of the prompts as fits, in their order
                computed = step.num_tokens.get(request.request_id)
                assert request.is_decoding or computed is None or computed <= most
                is_whole = computed in (request.num_new_tokens, most)
                is_cut = step.total_tokens == budget and request not in prefills[:-1]
                assert is_whole or is_cut, "tokens of the budget are left"
        elif step.total_tokens > budget:
            prompts = [request for request in prefills if not request.is_decoding]
            assert len(prompts) == 1, "the budget is exceeded by more than one prompt"

    def check_preempted(self, step: Step, running: list[Request]) -> None:
        """Those admitted last give way, and wait in front of all others in their old order."""
        number, waiting = len(step.preempted), list(self.scheduler.waiting)
        assert step.preempted == running[::-1][:number]
        assert waiting[:number] == step.preempted[::-1]
        assert not (step.preempted and step.admitted), "a request is admitted for one preempted"
        for request in step.preempted:
            assert (request.status, request.num_computed_tokens) == (Status.WAITING, 0)

    def check_counts(self) -> None:
        scheduler, kv, pool = self.scheduler, self.kv, self.pool
        running = {request.request_id for request in scheduler.running}
        waiting = {request.request_id for request in scheduler.waiting}
        assert not running & waiting
        assert all(request.status is Status.RUNNING for request in scheduler.running)
        assert all(request.status is Status.WAITING for request in scheduler.waiting)
        assert running == kv.block_tables.keys() == kv.lengths.keys()
        for request in scheduler.running:  # what another request has computed as well is held once
            cached = request.node.path_values()
            assert kv.block_tables[request.request_id][: len(cached)] == cached
        nodes = list(self.nodes())
        users = Counter(block for table in kv.block_tables.values() for block in table)
        users.update(block for node in nodes for block in node.values)
        assert [pool.ref_count(b) for b in range(pool.num_blocks)] == [
            users[b] for b in range(pool.num_blocks)
        ]
        assert sorted(pool.free_block_list) == [b for b in range(pool.num_blocks) if not users[b]]
        locks = Counter()
        for request in scheduler.running:
            node = request.node
            while node.parent is not None:
                locks[id(node)] += 1
                node = node.parent
        assert all(node.lock_count == locks[id(node)] for node in nodes)
        assert sum(locks.values()) == sum(node.lock_count for node in nodes)
        assert self.cache.num_cached == sum(len(node.values) for node in nodes)
        assert scheduler.enable_prefix_caching or not nodes
        unlocked = [block for node in nodes if not node.lock_count for block in node.values]
        assert self.cache.tree.num_evictable == len(unlocked)
        assert all(users[block] == 1 for block in unlocked), "an evictable block is in use"
        for request in self.requests:
            if request.status is not Status.RUNNING:
                assert request.node is None

    def check_whole(self) -> None:
        """Nothing runs: what is not cached is free, and every cached block can be evicted."""
        assert not self.scheduler.has_work
        self.check_counts()
        num_free = self.pool.num_free
        assert num_free + self.cache.num_cached == self.pool.num_blocks
        assert self.cache.evict(self.pool.num_blocks) + num_free == self.pool.num_blocks
        assert self.pool.num_free == self.pool.num_blocks

    def nodes(self) -> Iterator[RadixNode]:
        """Every node of the cache but the roots."""
        stack = [child for root in self.cache.tree.roots.values() for child in _below(root)]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(_below(node))


def _below(node: RadixNode) -> list[RadixNode]:
    return list(node.children.values())
