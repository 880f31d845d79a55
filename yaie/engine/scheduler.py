"""Which requests compute how many tokens in the next step.

Continuous batching: every step has a new batch, so that a finished request leaves immediately and a
waiting one takes its place (Yu et al., "Orca", 2022). A long prompt is cut into chunks that fit
beside the running requests' single tokens (Agrawal et al., "Sarathi-Serve", 2024).
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice, takewhile

from yaie.engine.config import EngineConfig
from yaie.engine.kv_cache import KVCacheManager, blocks_needed
from yaie.engine.prefix_cache import RadixCache
from yaie.engine.radix import RadixTree
from yaie.engine.request import Request, Status

MOST_RANKED = 128  # waiting requests that "lpm" compares in a step, each by a lookup of its prompt
MOST_PASSED = 128  # waiting requests that a step passes over, each after two lookups


@dataclass
class Step:
    """The work of one step.

    Attributes:
        num_tokens: how many tokens each scheduled request computes, by request id.
        scheduled: the requests, in the order of the batch.
        admitted, preempted: requests that got or lost their blocks in this step.
    """

    scheduled: list[Request] = field(default_factory=list)
    num_tokens: dict[str, int] = field(default_factory=dict)
    admitted: list[Request] = field(default_factory=list)
    preempted: list[Request] = field(default_factory=list)

    @property
    def total_tokens(self) -> int:
        """How many tokens the step computes."""
        return sum(self.num_tokens.values())

    @cached_property
    def num_decodes(self) -> int:
        """How many requests of the complete step, from the first on, compute one token each."""
        counts = (self.num_tokens[request.request_id] for request in self.scheduled)
        return sum(1 for _ in takewhile(lambda count: count == 1, counts))

    def add(self, request: Request, num_tokens: int) -> None:
        """Let `request` compute its next `num_tokens` tokens."""
        self.scheduled.append(request)
        self.num_tokens[request.request_id] = num_tokens


class Scheduler:
    """Decides step by step, within a budget of tokens and the blocks that there are.

    Args:
        kv: block tables of the running requests.
        cache: prefixes computed before, in the same block pool.
        config: the limits and the policy.

    Attributes:
        waiting: requests without blocks, in the order in which they are to be admitted.
        running: requests with blocks, in the order in which they were admitted.
    """

    def __init__(
        self, kv: KVCacheManager, cache: RadixCache, config: EngineConfig | None = None
    ) -> None:
        config = EngineConfig() if config is None else config
        self.kv = kv
        self.cache = cache
        self.max_num_seqs = config.max_num_seqs
        self.max_num_batched_tokens = config.max_num_batched_tokens
        self.enable_prefix_caching = config.enable_prefix_caching
        self.enable_chunked_prefill = config.enable_chunked_prefill
        self.chunked_prefill_size = config.chunked_prefill_size
        self.policy = config.policy
        self.patience = config.patience
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []

    @property
    def has_work(self) -> bool:
        """Whether any request is waiting or running."""
        return bool(self.waiting or self.running)

    def add(self, request: Request) -> None:
        """Queue a new request."""
        if self.policy == "longest":
            insort(self.waiting, request, key=self._rank_by_length)
        else:
            self.waiting.append(request)

    def schedule(self) -> Step:
        """Put the next step together: decode first, then prompts under way, then new requests.

        A request that decodes needs one token of the budget, and its reader is waiting for it: so
        no prompt, however long, can hold it up. After a preemption no request is admitted.
        """
        step, prefilling = Step(), []
        for request in self.running:  # `grow` preempts from the end, never one passed here
            if not request.is_decoding:
                prefilling.append(request)
            elif self.grow(request, step):
                step.add(request, 1)
        for request in prefilling:
            self.add_prefill(request, step)
        if not step.preempted:  # otherwise even the running requests lacked blocks
            self.admit(step)
        return step

    def add_prefill(self, request: Request, step: Step) -> None:
        """Schedule the next chunk of a prompt: the least of what is left of the prompt, of the
        step's budget, and of `chunked_prefill_size`.

        Without chunked prefill, the rest of the prompt or nothing: a prompt that exceeds what is
        left of the budget waits for a step in which it is the only prompt.
        """
        budget = self.max_num_batched_tokens - step.total_tokens
        wanted = request.num_new_tokens
        if self.enable_chunked_prefill:
            wanted = min(wanted, budget, self.chunked_prefill_size or wanted)
        elif wanted > budget and any(not r.is_decoding for r in step.scheduled):
            return
        step.add(request, wanted)

    def grow(self, request: Request, step: Step) -> bool:
        """Make sure that the newest token of a running request has a slot.

        Slots are made up to the end of a block, so that the tokens that follow have theirs already.
        If no block is free or can be evicted, the request admitted last is preempted, in the end
        this one itself. As a rule the last has the least to lose, and the requests that came first
        finish first and free their blocks for the rest.

        Returns:
            Whether the request still runs.
        """
        length, size = self.kv.lengths[request.request_id], self.kv.block_size
        if len(request.token_ids) <= length:
            return True
        while length % size == 0 and not self.cache.make_room(1):
            victim = self.running[-1]
            self.preempt(victim)
            step.preempted.append(victim)
            if victim is request:
                return False
        self.kv.append_tokens(request.request_id, size - length % size)
        return True

    def admit(self, step: Step) -> None:
        """Start waiting requests while there are batch slots, tokens of the budget and blocks.

        A request whose first tokens another request is computing now waits for them, and is passed
        over, as long as they are few. Apart from that, no request overtakes the first that does not
        fit.

        The last free block may be given away, although the running requests will need it soon and
        take it back by preemption. Blocks kept free for them would save that work when memory is
        short, but lie idle when outputs end early, and the scheduler cannot know their lengths.
        """
        if not (self.waiting and self._has_place(step)):
            return
        underway = self._prefixes_underway()
        passed = overtaken = 0
        for request in self._in_order_of_admission():
            if passed == MOST_PASSED or not self._has_place(step):
                break
            if self._will_be_cached(request, underway):
                passed += 1
                continue
            if not self.start(request):
                break
            place = self.waiting.index(request)
            del self.waiting[place]
            overtaken = overtaken - 1 if place < overtaken else place
            step.admitted.append(request)
            self.add_prefill(request, step)
            self._note_underway(request, underway)
        for request in islice(self.waiting, overtaken):
            request.steps_overtaken += 1

    def start(self, request: Request) -> bool:
        """Give a waiting request its cached prefix and blocks for the rest of its tokens.

        The prefix is locked before blocks are counted: until then, the blocks that it is about to
        share look as if they could be evicted.

        Returns:
            Whether it runs now. If not, nothing was taken.
        """
        found = self.cache.match(
            request.key if self.enable_prefix_caching else "", request.namespace
        )
        self.cache.lock(found.node)
        missing = blocks_needed(len(request.token_ids), self.kv.block_size) - len(found.values)
        if not self.cache.make_room(missing):
            self.cache.unlock(found.node)
            return False
        self.kv.allocate_blocks(request.request_id, len(request.token_ids), found.values)
        request.node = found.node
        request.num_computed_tokens = found.length
        if request.metrics.num_preemptions == 0:
            request.metrics.num_cached_tokens = found.length
        request.status = Status.RUNNING
        self.running.append(request)
        return True

    def advance(self, step: Step, is_read: bool = True) -> None:
        """Record that the step was computed, and keep the blocks that are full for others to share.

        A prompt's blocks are kept immediately or, if the step's tokens are read later, with its
        first token: see `Request.is_unread`. A generated block is kept once the next token is
        known: then the step that filled it has been read, and had no NaN.
        """
        for request in step.scheduled:
            was_decoding = request.is_decoding
            request.num_computed_tokens += step.num_tokens[request.request_id]
            if not was_decoding:
                request.is_unread = not is_read and request.num_new_tokens == 0
            if request.is_unread:
                continue
            if not was_decoding:
                self.keep(request)
            elif request.num_known_tokens > request.num_kept_tokens + self.kv.block_size:
                self.keep(request, request.num_known_tokens - 1)

    def preempt(self, request: Request) -> None:
        """Take a running request's blocks; it waits in front, to be computed again.

        It keeps its generated tokens: when it is admitted again, they are part of what is
        computed, and what the cache still holds of it is found there.
        """
        self.leave(request)
        request.num_computed_tokens = 0
        request.metrics.num_preemptions += 1
        request.status = Status.WAITING
        self.waiting.appendleft(request)

    def finish(self, request: Request, reason: str) -> None:
        """End a request, wherever it is: its blocks go to the cache or back to the pool."""
        if request.status is Status.RUNNING:
            self.leave(request)
        elif request.status is Status.WAITING:
            self.waiting.remove(request)
        request.status = Status.FINISHED
        request.finish_reason = reason

    def leave(self, request: Request) -> None:
        """Release everything that a running request holds."""
        self.keep(request)
        self.kv.free_blocks(request.request_id)
        node, request.node, request.num_kept_tokens = request.node, None, 0
        self.cache.unlock(node)
        self.running.remove(request)
        if request.error:
            self.cache.drop(node)

    def keep(self, request: Request, num_tokens: int | None = None) -> None:
        """Put the full blocks of a running request's first `num_tokens` tokens, by default all that
        are computed, into the cache, and lock them there.

        Where the cache has other blocks for the same tokens, the request continues with those: they
        are locked in any case, and its own would hold the same keys and values a second time.
        """
        if not self.enable_prefix_caching or request.error:
            return
        table, size = self.kv.block_tables[request.request_id], self.kv.block_size
        num_tokens = request.num_computed_tokens if num_tokens is None else num_tokens
        kept, end = request.num_kept_tokens, num_tokens // size * size
        request.num_kept_tokens = end
        first, last = kept // size, end // size
        if kept and self.cache.extend(request.node, request.key[kept:end], table[first:last]):
            return
        node = self.cache.insert(request.key[:end], table, request.namespace)
        self.cache.lock(node)
        self.cache.unlock(request.node)
        request.node = node
        ours, cached = table[first:last], node.path_values()[first:]
        self.kv.pool.share(cached)
        self.kv.pool.release(ours)  # most are the same, and keep as many users as they had
        table[first:last] = cached

    def _has_place(self, step: Step) -> bool:
        has_budget = step.total_tokens < self.max_num_batched_tokens
        return has_budget and len(self.running) < self.max_num_seqs

    def _in_order_of_admission(self) -> list[Request]:
        if self.policy != "lpm":
            return list(self.waiting)

        def rank(request: Request) -> tuple[bool, int]:
            is_patient = request.steps_overtaken < self.patience
            length = self.cache.match_length(request.key, request.namespace)
            return is_patient, -length if is_patient else 0

        first = islice(self.waiting, MOST_RANKED)
        return sorted(first, key=rank) + list(islice(self.waiting, MOST_RANKED, None))

    @staticmethod
    def _rank_by_length(request: Request) -> tuple[bool, int]:
        """A preempted request comes first: its client has a part of the answer."""
        return request.metrics.num_preemptions == 0, len(request.token_ids) - request.max_length

    def _prefixes_underway(self) -> RadixTree:
        """A tree of the prompts that are being computed."""
        underway = RadixTree(self.kv.block_size)
        for request in self.running:
            if request.is_unread or not request.is_decoding:
                self._note_underway(request, underway)
        return underway

    def _note_underway(self, request: Request, underway: RadixTree) -> None:
        if self.enable_prefix_caching:
            underway.insert(request.key, namespace=request.namespace)

    def _will_be_cached(self, request: Request, underway: RadixTree) -> bool:
        """Whether another request is computing a longer prefix than the cached one."""
        if underway.num_values == 0:
            return False
        soon = underway.match_length(request.key[:-1], request.namespace)
        return soon > self.cache.match_length(request.key, request.namespace)
