"""The scheduler without a model: budgets, blocks, order, preemption, endings."""

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from world import World, expected_output

from yaie.course.author.gpu.offline import MOST, workload
from yaie.course.lessons.simulate import Arrival, Simulation
from yaie.engine.config import CHOICES
from yaie.engine.request import Status
from yaie.engine.scheduler import MOST_PASSED, MOST_RANKED, Scheduler, Step


def prompt_of(length: int, first: int = 0) -> list[int]:
    """Tokens that no other `first` begins with."""
    return [first, *((first + i) % 3 for i in range(1, length))]


# ------------------------------------------------------------------------------------ whole prompts


def test_without_chunks_a_prompt_waits_for_a_step_that_has_room():
    world = World(max_num_seqs=4, max_num_batched_tokens=10, enable_chunked_prefill=False)
    a, b, c = (world.add(prompt_of(6, first), max_tokens=1) for first in range(3))
    assert [list(world.step().num_tokens) for _ in range(3)] == [[r.request_id] for r in (a, b, c)]


def test_without_chunks_an_oversized_prompt_has_the_prefill_to_itself():
    world = World(max_num_seqs=4, max_num_batched_tokens=5, enable_chunked_prefill=False)
    decoding = world.add(prompt_of(2), max_tokens=9)
    world.step()
    long, short = (
        world.add(prompt_of(12, 1), max_tokens=1),
        world.add(prompt_of(2, 2), max_tokens=1),
    )
    step = world.step()
    assert step.num_tokens == {decoding.request_id: 1, long.request_id: 12}
    assert short.status is Status.WAITING  # holds no blocks while there is nothing left for it
    assert world.step().num_tokens == {decoding.request_id: 1, short.request_id: 2}


def test_without_chunks_decoding_requests_cannot_keep_a_prompt_out():
    world = World(max_num_seqs=4, max_num_batched_tokens=4, enable_chunked_prefill=False)
    world.add(prompt_of(1), max_tokens=30)
    world.step()
    world.add(prompt_of(4, first=1), max_tokens=1)  # fits the budget, but not what is left of it
    assert world.step().total_tokens == 5


# ------------------------------------------------------------------------------------ chunks


def test_a_chunk_has_a_size_that_leaves_room_for_other_prompts():
    world = World(max_num_seqs=4, max_num_batched_tokens=12, chunked_prefill_size=5)
    a, b, c = (world.add(prompt_of(*prompt), max_tokens=1) for prompt in [(13, 0), (3, 1), (9, 2)])
    steps = [world.step().num_tokens for _ in range(3)]
    names = [request.request_id for request in (a, b, c)]
    computed = [[step.get(name, 0) for name in names] for step in steps]
    assert computed == [[5, 3, 4], [5, 0, 5], [3, 0, 0]]


# ------------------------------------------------------------------------------------ admission


def test_each_request_takes_a_batch_slot():
    world = World(max_num_seqs=2, max_num_batched_tokens=64)
    requests = [world.add(prompt_of(4, first), max_tokens=2) for first in range(3)]
    assert world.step().admitted == requests[:2]
    assert world.step().admitted == []
    assert world.step().admitted == requests[2:]


def test_blocks_of_the_own_prefix_do_not_count_as_evictable():
    world = World(num_blocks=8, max_num_seqs=4, max_num_batched_tokens=64)
    prefix = prompt_of(16, first=1)
    world.add([*prefix, 0], max_tokens=1)
    world.run()
    busy = world.add(prompt_of(5), max_tokens=20)  # two blocks
    world.step()
    assert (world.pool.num_free, world.cache.num_cached) == (2, 5)
    # Seven blocks: four are cached. To get three more, only two are free; the rest is its own.
    request = world.add([*prefix, *prompt_of(12, first=2)], max_tokens=1)
    assert world.step().admitted == []
    assert world.cache.match([*prefix, 0]).length == 16, "it evicted its own prefix"
    world.scheduler.finish(busy, "abort")
    assert world.step().admitted == [request]
    assert request.metrics.num_cached_tokens == 16
    world.run()
    world.check_whole()


def test_no_request_overtakes_the_first_that_does_not_fit():
    world = World(num_blocks=8, max_num_seqs=8, max_num_batched_tokens=64)
    world.add(prompt_of(16), max_tokens=4)
    world.step()
    big, small = world.add(prompt_of(20, first=1), max_tokens=1), world.add(prompt_of(2, first=2))
    assert world.step().admitted == []
    assert world.pool.num_free >= 1  # small would fit
    admitted = [r for step in world.run() for r in step.admitted]
    assert admitted == [big, small]


def test_prefix_hits_only_within_a_namespace():
    world = World(max_num_seqs=4, max_num_batched_tokens=64)
    prompt = prompt_of(9)
    requests = [world.add(prompt, max_tokens=1, namespace=name) for name in ("a", "b")]
    assert world.step().admitted == requests  # they do not wait for each other either
    again = world.add(prompt, max_tokens=1, namespace="a")
    other = world.add(prompt, max_tokens=1, namespace="c")
    world.run()
    assert (again.metrics.num_cached_tokens, other.metrics.num_cached_tokens) == (8, 0)
    world.check_whole()


# ------------------------------------------------------------------------------------ sharing


@pytest.mark.parametrize("policy", CHOICES["policy"])
def test_a_request_waits_for_a_prefix_that_is_being_computed(policy):
    world = World(max_num_seqs=8, max_num_batched_tokens=8, policy=policy)
    prefix = prompt_of(18)
    first = world.add([*prefix, 0, 0], max_tokens=4)
    second = world.add([*prefix, 1, 1], max_tokens=4)
    assert [world.step().num_tokens for _ in range(2)] == [{first.request_id: 8}] * 2
    assert world.step().admitted == [second]  # the shared blocks are all computed now
    world.run()
    assert second.metrics.num_cached_tokens == 16
    assert second.output_token_ids == expected_output([*prefix, 1, 1], 4)


def test_another_prompt_overtakes_those_that_wait_for_a_prefix():
    world = World(max_num_seqs=8, max_num_batched_tokens=32)
    prefix = prompt_of(18)
    first, second = (world.add([*prefix, i, i], max_tokens=1) for i in range(2))
    stranger = world.add(prompt_of(4, first=1), max_tokens=1)
    assert world.step().admitted == [first, stranger]
    assert world.step().admitted == [second]


def test_generated_blocks_are_shared_as_each_fills():
    """Once the next token is known; and a lone request has them in one node."""
    world = World(max_num_seqs=4, max_num_batched_tokens=64)
    first = world.add(prompt_of(6), max_tokens=20)
    for generated in range(1, 16):
        world.step()
        known = 6 + generated - 1  # when the step was computed
        full = max(6, known - 1) // 4 * 4
        assert world.cache.match_length([*first.token_ids, 0]) == full == 4 * world.cache.num_cached
        assert world.cache.tree.num_nodes == 2
    later = world.add([*first.token_ids[:17], 2], max_tokens=4)
    world.run()
    assert later.metrics.num_cached_tokens == 16
    assert later.output_token_ids == expected_output([*first.token_ids[:17], 2], 4)
    world.check_whole()


def test_requests_that_generate_the_same_share_its_blocks():
    world = World(max_num_seqs=4, max_num_batched_tokens=64)
    prompt = prompt_of(6)
    world.add(prompt, max_tokens=1)
    world.run()
    twins = [world.add(prompt, max_tokens=18) for _ in range(2)]
    world.run_until(lambda: twins[1].num_output_tokens == 14)
    tables = [world.kv.block_tables[twin.request_id] for twin in twins]
    assert tables[0][:4] == tables[1][:4]
    world.run()
    world.check_whole()


def test_a_block_whose_tokens_are_not_known_is_not_shared():
    """A step is launched before the last one's token is read: it may turn out to have a NaN."""
    world = World(max_num_seqs=2, max_num_batched_tokens=16)
    request, scheduler = world.add(prompt_of(6), max_tokens=30), world.scheduler
    for generated in range(20):
        scheduler.advance(scheduler.schedule())
        if request.num_pending:
            request.receive(1)
        request.expect(0)
        kept = max(6, 6 + generated - 2) // 4 * 4  # two tokens behind, as two steps are in flight
        assert 4 * world.cache.num_cached == kept == request.num_kept_tokens
        assert len(request.key) == request.num_known_tokens == 6 + generated
    node = request.node
    request.forget_pending()
    request.error = "a NaN"
    scheduler.finish(request, "error")
    assert world.cache.num_cached == 0 and node.lock_count == 0
    world.check_counts()


# ------------------------------------------------------------------------------------ preemption


def test_what_was_preempted_is_found_in_the_cache():
    """Three requests fit while they are short, and outgrow the pool together."""
    world = World(num_blocks=9, max_num_seqs=4, max_num_batched_tokens=64)
    requests = [world.add(prompt_of(8, first), max_tokens=16) for first in range(3)]
    while not (step := world.step()).preempted:
        pass
    [victim] = step.preempted
    assert victim is requests[2]
    cached, length = world.cache.match(victim.token_ids).length, len(victim.token_ids)
    assert cached > 0
    world.scheduler.finish(requests[1], "abort")
    step = world.step()
    assert step.admitted == [victim]
    assert step.num_tokens[victim.request_id] == length - cached
    assert victim.metrics.num_cached_tokens == 0, "that is about the first admission"
    assert victim.metrics.num_preemptions == 1


@pytest.mark.parametrize("length", [7, 8, 16])
@pytest.mark.parametrize("block_size", [1, 2, 3, 4, 16])
@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize("chunked", [True, False])
def test_a_lone_request_fills_the_smallest_pool_undisturbed(length, block_size, caching, chunked):
    """Also one whose prompt is cached: its last block is computed again, for the logits."""
    max_tokens = 10
    world = World(
        num_blocks=-(-(length + max_tokens) // block_size),
        block_size=block_size,
        max_num_seqs=2,
        max_num_batched_tokens=3,
        enable_prefix_caching=caching,
        enable_chunked_prefill=chunked,
    )
    for first in (0, 1, 1, 0):  # the second time beside a cache full of another request's blocks
        request = world.add(prompt_of(length, first), max_tokens=max_tokens)
        world.run()
        assert request.output_token_ids == expected_output(prompt_of(length, first), max_tokens)
        assert request.metrics.num_preemptions == 0
    world.check_whole()


# ------------------------------------------------------------------------------------ endings


def test_an_error_leaves_what_others_use():
    world = World(max_num_seqs=4, max_num_batched_tokens=8)
    prefix = prompt_of(16)
    world.add([*prefix, 0, 0, 0, 0, 0], max_tokens=1)
    world.run()
    other = world.add([*prefix, 1, 1], max_tokens=9)
    failing = world.add([*prefix, *prompt_of(20, first=2)])
    world.step(), world.step()
    assert 16 < failing.num_computed_tokens < 36
    failing.error = "an error"
    world.scheduler.finish(failing, "error")
    world.check_counts()
    assert world.cache.match([*failing.token_ids, 0]).length == 16
    world.run()
    assert other.output_token_ids == expected_output([*prefix, 1, 1], 9)
    world.check_whole()


# ------------------------------------------------------------------------------------ fairness


def test_lpm_prefers_the_longest_cached_prefix():
    world = World(max_num_seqs=1, max_num_batched_tokens=64, policy="lpm")
    world.add(prompt_of(12), max_tokens=1)
    world.run()
    none = world.add(prompt_of(12, first=1), max_tokens=1)
    short = world.add([*prompt_of(4), *prompt_of(5, first=2)], max_tokens=1)
    long = world.add([*prompt_of(12), 1], max_tokens=1)
    assert [r for step in world.run() for r in step.admitted] == [long, short, none]


@pytest.mark.parametrize(
    "policy, patience, starves", [("fcfs", 6, False), ("lpm", 6, False), ("lpm", 10**9, True)]
)
def test_a_request_is_overtaken_only_while_it_is_patient(policy, patience, starves):
    """Beside a steady stream of requests whose prefix is cached."""
    world = World(
        max_num_seqs=2, max_num_batched_tokens=8, policy=policy, patience=patience, num_blocks=16
    )
    favorite = prompt_of(12)
    world.add(favorite, max_tokens=1)
    world.run()
    patient = world.add(prompt_of(12, first=1), max_tokens=1)
    for i in range(50 if starves else 2 * patience + 6):  # every second step admits two
        world.add([*favorite, i % 3], max_tokens=2)
        world.add([*favorite, (i + 1) % 3], max_tokens=2)
        world.step()
    assert (patient.status is Status.WAITING) == starves


@pytest.mark.parametrize("seed", range(4))
def test_patience_counts_the_steps_in_which_a_later_arrival_came_first(seed):
    """Not those in which no request was admitted, or only earlier ones."""
    rng = random.Random(seed)
    world = World(max_num_seqs=2, max_num_batched_tokens=8, policy="lpm", patience=3, num_blocks=99)
    families = [prompt_of(12, first) for first in range(3)]
    overtaken = Counter()
    for i in range(150):
        if rng.random() < 0.6:
            own = [100 + i] * 12
            world.add([*rng.choice([*families, own]), rng.randint(0, 2)], rng.randint(1, 6))
        order = {request: place for place, request in enumerate(world.requests)}
        step = world.step() if world.scheduler.has_work else Step()
        latest = max((order[request] for request in step.admitted), default=-1)
        for request in world.scheduler.waiting:
            overtaken[request] += order[request] < latest
            assert request.steps_overtaken == overtaken[request] <= 3 and not step.preempted
    assert max(overtaken.values()) == 3, "no request was overtaken often enough"


def test_waiting_behind_earlier_arrivals_costs_no_patience():
    world = World(max_num_seqs=1, max_num_batched_tokens=64, policy="lpm", patience=1)
    world.add(prompt_of(12), max_tokens=20)
    world.step()
    none = world.add(prompt_of(12, first=1), max_tokens=1)
    long = world.add([*prompt_of(12), 1], max_tokens=1)
    assert [r for step in world.run() for r in step.admitted] == [long, none]


# ------------------------------------------------------------------------------------ longest first


def test_longest_admits_the_most_tokens_to_generate_and_equals_as_they_came():
    world = World(max_num_seqs=1, max_num_batched_tokens=64, policy="longest")
    lengths = (2, 9, 4, 9, 4, 1)  # whatever the prompts' lengths are
    requests = [world.add(prompt_of(20 - 3 * i, i), length) for i, length in enumerate(lengths)]
    admitted = [request for step in world.run() for request in step.admitted]
    assert admitted == [requests[i] for i in (1, 3, 2, 4, 0, 5)]


def test_longest_admits_a_preempted_request_first():
    """However little it still lacks."""
    world = World(max_num_seqs=1, max_num_batched_tokens=64, policy="longest")
    preempted = world.add(prompt_of(8), max_tokens=12)
    world.run_until(lambda: preempted.num_output_tokens == 7)
    world.scheduler.preempt(preempted)
    shorter, equal, longer = (world.add(prompt_of(8, 1), max_tokens=n) for n in (4, 5, 6))
    admitted = [request for step in world.run() for request in step.admitted]
    assert admitted == [preempted, longer, equal, shorter]
    assert preempted.output_token_ids == expected_output(prompt_of(8), 12)


def test_longest_ranks_a_request_once(monkeypatch):
    """When it is added, not in every step in which it waits."""
    calls, rank = Counter(), Scheduler._rank_by_length
    counted = staticmethod(lambda request: (calls.update(all=1), rank(request))[1])
    monkeypatch.setattr(Scheduler, "_rank_by_length", counted)
    world = World(max_num_seqs=2, num_blocks=4, max_num_batched_tokens=64, policy="longest")
    for i in range(100):
        world.add(prompt_of(3, i), 1 + i % 5)
    ranked = calls["all"]
    assert 0 < ranked <= 100 * 9
    world.run()
    assert calls["all"] == ranked


def test_the_longest_first_end_a_batch_earlier():
    """On nano-vLLM's workload in steps of at most 384 tokens. No proof: it depends on the lengths,
    since requests that decode longer leave less of each step's budget to prompts."""
    prompts, answers = workload(0)
    both = enumerate(zip(prompts, answers, strict=True))
    arrivals = {f"r{i}": Arrival(0, len(prompt), answer) for i, (prompt, answer) in both}
    steps = {}
    for policy in ("fcfs", "longest"):
        options = {"max_num_seqs": len(prompts), "max_num_batched_tokens": 384, "policy": policy}
        simulation = Simulation(Scheduler, len(prompts), block_size=2 * MOST, **options)
        steps[policy] = len(simulation.run(arrivals, limit=2000))
        assert simulation.is_whole()
    assert max(answers) <= steps["longest"] <= 1030 < 1500 < steps["fcfs"]


# ------------------------------------------------------------------------------------ anything


@st.composite
def workloads(draw):
    """A pool, a scheduler, and requests that come and are aborted at some step."""
    block_size, num_blocks = draw(st.integers(1, 5)), draw(st.integers(1, 12))
    capacity = block_size * num_blocks
    max_num_seqs = draw(st.integers(1, 5))
    options = {
        "num_blocks": num_blocks,
        "block_size": block_size,
        "max_num_seqs": max_num_seqs,
        "max_num_batched_tokens": draw(st.integers(max_num_seqs, max_num_seqs + 12)),
        "enable_prefix_caching": draw(st.booleans()),
        "enable_chunked_prefill": draw(st.booleans()),
        "chunked_prefill_size": draw(st.none() | st.integers(1, 12)),
        "policy": draw(st.sampled_from(CHOICES["policy"])),
        "patience": draw(st.integers(0, 8)),
    }
    arrivals = []
    for _ in range(draw(st.integers(1, 8))):
        length = draw(st.integers(1, max(1, min(24, capacity - 1))))
        seed = draw(st.lists(st.integers(0, 2), min_size=1, max_size=3))
        prompt = [seed[i % len(seed)] for i in range(length)]
        arrivals.append(
            {
                "prompt": prompt,
                "max_tokens": draw(st.integers(1, max(1, min(20, capacity - length)))),
                "namespace": draw(st.sampled_from(["", "", "other"])),
                "arrives": draw(st.integers(0, 12)),
                "leaves": draw(st.none() | st.none() | st.integers(0, 20)),
            }
        )
    return options, arrivals


def end(world, request, reason):
    """End a request in whatever state it is; after an error, no other finds what it computed."""
    node = request.node
    request.error = "an error" if reason == "error" and node is not None else None
    world.scheduler.finish(request, reason)
    assert (request.status, request.finish_reason) == (Status.FINISHED, reason)
    world.check_counts()
    if request.error:  # unless others use it, or the tree goes on from it
        assert not world.cache.tree._is_evictable(node)


@settings(max_examples=400, deadline=None)
@given(workloads())
def test_every_workload_ends_right(workload):
    options, arrivals = workload
    world = World(**options)
    requests: dict[int, object] = {}
    for now in range(2000):
        for i, arrival in enumerate(arrivals):
            if arrival["arrives"] == now:
                requests[i] = world.add(
                    arrival["prompt"], arrival["max_tokens"], arrival["namespace"]
                )
            if arrival["leaves"] == now and i in requests and not requests[i].finish_reason:
                end(world, requests[i], "error" if i % 2 else "abort")
        if world.scheduler.has_work:
            world.step()
        elif len(requests) == len(arrivals):
            break
    else:
        raise AssertionError("the workload does not come to an end")
    for i, request in requests.items():
        wanted = expected_output(arrivals[i]["prompt"], arrivals[i]["max_tokens"])
        if request.finish_reason == "length":
            assert request.output_token_ids == wanted
        else:
            assert request.output_token_ids == wanted[: request.num_output_tokens]
    world.check_whole()


# ------------------------------------------------------------------------------------ looking


def test_to_rank_the_waiting_is_not_to_use_their_prefixes(monkeypatch):
    world = World(num_blocks=16, max_num_seqs=4, max_num_batched_tokens=64, policy="lpm")
    world.add(prompt_of(8), max_tokens=1)
    world.run()
    world.add(prompt_of(40, first=1), max_tokens=12)
    world.step()
    for _ in range(5):
        world.add([*prompt_of(6), *prompt_of(24, first=2)], max_tokens=1)
    used = []
    match = world.cache.match
    monkeypatch.setattr(world.cache, "match", lambda *args: used.append(args) or match(*args))
    assert world.step().admitted == []
    assert len(used) == 1, "only the one that was tried"


def test_a_long_queue_is_ranked_in_part(monkeypatch):
    world = World(num_blocks=8, max_num_seqs=4, max_num_batched_tokens=64, policy="lpm")
    world.add(prompt_of(28), max_tokens=4)
    world.step()
    looked = []
    monkeypatch.setattr(world.cache, "match_length", lambda *args: looked.append(args) or 0)
    for first in range(300):
        world.add([first % 3] * 12, max_tokens=1)
    assert world.step().admitted == []
    assert 0 < len(looked) < 200


@pytest.mark.parametrize("policy", CHOICES["policy"])
def test_a_step_passes_over_few_of_many_copies(monkeypatch, policy):
    world = World(num_blocks=64, max_num_seqs=99, max_num_batched_tokens=100, policy=policy)
    copies = [world.add(prompt_of(120), max_tokens=1) for _ in range(2000)]
    looked = []
    match_length = world.cache.match_length
    monkeypatch.setattr(
        world.cache, "match_length", lambda *args: looked.append(args) or match_length(*args)
    )
    assert world.step().admitted == copies[:1]
    first = world.scheduler.running[0]
    monkeypatch.setattr(world.scheduler, "max_num_batched_tokens", 200)  # room beside its rest
    assert first is copies[0] and world.step().admitted == []
    assert 0 < len(looked) <= 2 * (MOST_PASSED + MOST_RANKED)


def test_prompts_under_way_are_gathered_only_where_requests_wait(monkeypatch):
    world = World(max_num_seqs=4, max_num_batched_tokens=4)
    world.add(prompt_of(12), max_tokens=1)
    world.step()
    monkeypatch.setattr(world.scheduler, "_prefixes_underway", None)  # would not be callable
    assert world.step().total_tokens == 4
