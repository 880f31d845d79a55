"""The scheduler without a model: budgets, blocks, order, preemption, endings."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from world import World, expected_output

from yaie.engine.request import Status


def prompt_of(length: int, first: int = 0) -> list[int]:
    """Tokens that no other `first` begins with."""
    return [first, *((first + i) % 3 for i in range(1, length))]


def lone_steps(world: World, prompt: list[int], **kwargs) -> list[int]:
    world.add(prompt, **kwargs)
    return [step.total_tokens for step in world.run()]


# ------------------------------------------------------------------------------------ budget


@pytest.mark.parametrize(
    "length, budget, chunks",
    [(10, 4, [4, 4, 2]), (8, 4, [4, 4]), (9, 4, [4, 4, 1]), (1, 4, [1]), (4, 4, [4]), (5, 99, [5])],
)
def test_chunks_fill_the_budget(length, budget, chunks):
    world = World(max_num_seqs=4, max_num_batched_tokens=budget)
    assert lone_steps(world, prompt_of(length), max_tokens=1) == chunks


def test_decode_comes_before_a_long_prompt():
    world = World(max_num_seqs=4, max_num_batched_tokens=4)
    short = [world.add(prompt_of(1, first), max_tokens=9) for first in (0, 1)]
    world.step()
    long = world.add(prompt_of(20, first=2), max_tokens=1)
    for _ in range(5):
        step = world.step()
        assert step.scheduled[:2] == short
        assert step.num_tokens[long.request_id] == 2  # what the two leave of the budget
    world.run()
    world.check_whole()


def test_decode_fills_the_whole_budget():
    world = World(max_num_seqs=3, max_num_batched_tokens=3)
    for first in range(3):
        world.add(prompt_of(1, first), max_tokens=4)
    waits = world.add(prompt_of(6), max_tokens=1)
    steps = [world.step() for _ in range(4)]
    assert [step.total_tokens for step in steps] == [3, 3, 3, 3]
    assert waits.num_computed_tokens == 0
    assert [step.total_tokens for step in world.run()] == [3, 3]


def test_prompts_share_what_is_left_in_order_of_arrival():
    world = World(max_num_seqs=4, max_num_batched_tokens=10)
    a, b, c = (world.add(prompt_of(6, first), max_tokens=1) for first in range(3))
    assert world.step().num_tokens == {a.request_id: 6, b.request_id: 4}
    assert world.step().num_tokens == {b.request_id: 2, c.request_id: 6}


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


# ------------------------------------------------------------------------------------ admission


def test_a_seat_a_request():
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


def test_cached_prefixes_make_room_for_a_new_request():
    world = World(num_blocks=4, max_num_seqs=4, max_num_batched_tokens=64)
    for first in range(3):
        assert len(lone_steps(world, prompt_of(14, first), max_tokens=2)) == 2
    world.check_whole()


def test_nobody_overtakes_the_first_that_does_not_fit():
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


def test_no_prefix_caching_shares_and_keeps_nothing():
    world = World(max_num_seqs=4, max_num_batched_tokens=64, enable_prefix_caching=False)
    requests = [world.add(prompt_of(9), max_tokens=3) for _ in range(2)]
    assert world.step().total_tokens == 18
    world.run()
    assert [r.metrics.num_cached_tokens for r in requests] == [0, 0]
    assert world.cache.num_cached == 0
    assert world.pool.num_free == world.pool.num_blocks


# ------------------------------------------------------------------------------------ sharing


@pytest.mark.parametrize("policy", ["fcfs", "lpm"])
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


def test_a_stranger_overtakes_those_who_wait_for_a_prefix():
    world = World(max_num_seqs=8, max_num_batched_tokens=32)
    prefix = prompt_of(18)
    first, second = (world.add([*prefix, i, i], max_tokens=1) for i in range(2))
    stranger = world.add(prompt_of(4, first=1), max_tokens=1)
    assert world.step().admitted == [first, stranger]
    assert world.step().admitted == [second]


def test_many_requests_compute_a_shared_prefix_once():
    world = World(num_blocks=256, max_num_seqs=32, max_num_batched_tokens=512)
    prefix = prompt_of(64)
    for i in range(20):
        world.add([*prefix, i % 3, i // 3 % 3, i // 9], max_tokens=2)
    steps = world.run()
    assert steps[0].total_tokens == 67
    assert steps[1].total_tokens == 19 * 3 + 1
    world.check_whole()


# ------------------------------------------------------------------------------------ preemption


def under_pressure(**scheduling) -> tuple[World, list]:
    """Three requests that fit while they are short, and outgrow the pool together."""
    world = World(
        num_blocks=9, block_size=4, max_num_seqs=4, max_num_batched_tokens=64, **scheduling
    )
    return world, [world.add(prompt_of(8, first), max_tokens=16) for first in range(3)]


def test_the_last_admitted_gives_way_and_keeps_its_tokens():
    world, requests = under_pressure()
    while not (step := world.step()).preempted:
        generated = [r.output_token_ids for r in requests]
    [victim] = step.preempted
    assert victim is requests[2]
    assert victim.output_token_ids == generated[2] != []
    assert (victim.status, victim.num_computed_tokens) == (Status.WAITING, 0)
    assert world.scheduler.waiting[0] is victim
    assert step.scheduled == requests[:2], "the others go on in the same step"


def test_preempted_requests_wait_in_their_old_order():
    world = World(num_blocks=4, block_size=2, max_num_seqs=4, max_num_batched_tokens=64)
    requests = [world.add([first], max_tokens=7) for first in range(3)]
    preempted = []
    while len(preempted) < 2:
        preempted += world.step().preempted
    assert preempted == [requests[2], requests[1]]
    assert list(world.scheduler.waiting) == requests[1:]
    world.run()
    assert all(r.output_token_ids == expected_output(r.prompt_token_ids, 7) for r in requests)
    world.check_whole()


@pytest.mark.parametrize("chunked", [True, False])
@pytest.mark.parametrize("caching", [True, False])
def test_preemption_changes_nobodys_output(chunked, caching):
    world, requests = under_pressure(enable_chunked_prefill=chunked, enable_prefix_caching=caching)
    steps = world.run()
    assert sum(len(step.preempted) for step in steps) > 0
    for request in requests:
        assert request.output_token_ids == expected_output(request.prompt_token_ids, 16)
    world.check_whole()


def test_what_was_preempted_is_found_in_the_cache():
    world, requests = under_pressure()
    while not world.step().preempted:
        pass
    victim = requests[2]
    cached, length = world.cache.match(victim.token_ids).length, len(victim.token_ids)
    assert cached > 0
    world.scheduler.finish(requests[1], "abort")
    step = world.step()
    assert step.admitted == [victim]
    assert step.num_tokens[victim.request_id] == length - cached
    assert victim.metrics.num_cached_tokens == 0, "that is about the first admission"
    assert victim.metrics.num_preemptions == 1


def test_nobody_is_admitted_in_a_step_that_preempts():
    world, _ = under_pressure()
    newcomer = None
    while not (step := world.step()).preempted:
        newcomer = newcomer or world.add([0], max_tokens=1)
    assert step.admitted == []


def test_a_prompt_under_way_can_be_preempted():
    world = World(num_blocks=6, block_size=2, max_num_seqs=2, max_num_batched_tokens=2)
    old = world.add([0, 0], max_tokens=9)
    world.step()
    young = world.add(prompt_of(8, first=1), max_tokens=1)
    while not (step := world.step()).preempted:
        pass
    assert step.preempted == [young]
    assert young.num_output_tokens == 0
    world.run()
    assert old.output_token_ids == expected_output([0, 0], 9)
    assert young.output_token_ids == expected_output(prompt_of(8, first=1), 1)
    world.check_whole()


@pytest.mark.parametrize("block_size", [1, 2, 3, 4, 16])
@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize("chunked", [True, False])
def test_a_lone_request_fills_the_smallest_pool_undisturbed(block_size, caching, chunked):
    length, max_tokens = 7, 10
    world = World(
        num_blocks=-(-(length + max_tokens) // block_size),
        block_size=block_size,
        max_num_seqs=2,
        max_num_batched_tokens=3,
        enable_prefix_caching=caching,
        enable_chunked_prefill=chunked,
    )
    for first in (0, 1, 0):  # the second time beside a cache full of others' blocks
        request = world.add(prompt_of(length, first), max_tokens=max_tokens)
        world.run()
        assert request.output_token_ids == expected_output(prompt_of(length, first), max_tokens)
        assert request.metrics.num_preemptions == 0
    world.check_whole()


def test_a_request_that_computed_what_another_did_gives_its_duplicates_up():
    """Its blocks and the cache's hold the same tokens; it goes on with the cache's."""
    world = World(num_blocks=6, block_size=4, max_num_seqs=2, max_num_batched_tokens=3)
    prompt = prompt_of(4)
    tokens = prompt + expected_output(prompt, 12)
    world.add(prompt, max_tokens=8)
    world.run_until(lambda: world.requests[0].num_output_tokens == 7)
    request = world.add(tokens[:12], max_tokens=12)
    assert not any(step.preempted for step in world.run())
    assert request.output_token_ids == expected_output(tokens[:12], 12)
    world.check_whole()


# ------------------------------------------------------------------------------------ endings

STATES = ["waiting", "half prefilled", "decoding", "preempted", "recomputed in part"]


def request_in(world: World, state: str):
    """Bring one of several requests into a state."""
    if state == "waiting":
        return world.add(prompt_of(12))
    if state == "half prefilled":
        request = world.add(prompt_of(12))
        world.step()
        assert 0 < request.num_computed_tokens < 12
        return request
    request = world.add(prompt_of(6), max_tokens=20)
    if state == "decoding":
        for _ in range(6):
            world.step()
        assert request.num_output_tokens > 0
        return request
    rival = world.add(prompt_of(6, first=1), max_tokens=20)
    world.run_until(lambda: rival.metrics.num_preemptions)
    if state == "recomputed in part":
        world.cache.evict(99)
        world.scheduler.finish(request, "abort")
        world.step()
        assert 0 < rival.num_computed_tokens < len(rival.token_ids) - 1
    return rival


@pytest.mark.parametrize("reason", ["abort", "error", "stop"])
@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize("state", STATES)
def test_finishing_in_any_state_leaves_the_pool_whole(state, caching, reason):
    world = World(
        num_blocks=8,
        block_size=4,
        max_num_seqs=3,
        max_num_batched_tokens=5,
        enable_prefix_caching=caching,
    )
    request = request_in(world, state)
    if reason == "error" and request.status is Status.WAITING:
        pytest.skip("an error comes out of a step, and this request is in none")
    request.error = "an error" if reason == "error" else None
    world.scheduler.finish(request, reason)
    assert (request.status, request.finish_reason) == (Status.FINISHED, reason)
    world.check_counts()
    if reason == "error":
        assert world.cache.match([*request.token_ids, 0]).length == 0
    survivor = world.add(prompt_of(12), max_tokens=3)
    world.run()
    assert survivor.output_token_ids == expected_output(prompt_of(12), 3)
    world.check_whole()


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


@pytest.mark.parametrize("policy", ["fcfs", "lpm"])
def test_nobody_starves(policy):
    patience = 6
    world = World(
        max_num_seqs=2, max_num_batched_tokens=8, policy=policy, patience=patience, num_blocks=16
    )
    favorite = prompt_of(12)
    world.add(favorite, max_tokens=1)
    world.run()
    patient = world.add(prompt_of(12, first=1), max_tokens=1)
    steps = 0
    while patient.status is Status.WAITING:
        world.add([*favorite, steps % 3], max_tokens=2)
        world.add([*favorite, (steps + 1) % 3], max_tokens=2)
        world.step()
        steps += 1
        assert steps <= patience + 6, "somebody who came later is always preferred"
    world.run()


def test_lpm_would_starve_without_patience():
    """The workload of the test above is one where patience is what helps."""
    world = World(max_num_seqs=2, max_num_batched_tokens=8, policy="lpm", patience=10**9)
    favorite = prompt_of(12)
    world.add(favorite, max_tokens=1)
    world.run()
    patient = world.add(prompt_of(12, first=1), max_tokens=1)
    for i in range(50):
        world.add([*favorite, i % 3], max_tokens=2)
        world.add([*favorite, (i + 1) % 3], max_tokens=2)
        world.step()
    assert patient.status is Status.WAITING


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
        "policy": draw(st.sampled_from(["fcfs", "lpm"])),
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
                requests[i].error = "an error" if i % 2 else None
                world.scheduler.finish(requests[i], "abort")
                world.check_counts()
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


@pytest.mark.parametrize(
    "options, error",
    [
        ({"max_num_seqs": 0}, ValueError),
        ({"max_num_seqs": 2.0}, TypeError),
        ({"max_num_seqs": True}, TypeError),
        ({"max_num_batched_tokens": 63}, ValueError),
        ({"max_num_batched_tokens": "2048"}, TypeError),
        ({"policy": "random"}, ValueError),
        ({"patience": -1}, ValueError),
    ],
)
def test_bad_options_are_named(options, error):
    with pytest.raises(error, match=next(iter(options))):
        World(**options)


# ------------------------------------------------------------------------------------ duplicates


def test_a_request_alone_can_fill_the_pool_with_a_prompt_that_is_cached():
    """Its last cached block is computed again, for the logits; the duplicate must not stay."""
    world = World(num_blocks=4, block_size=16, max_num_seqs=4, max_num_batched_tokens=64)
    prompt = prompt_of(32)
    world.add(prompt, max_tokens=1)
    world.run()
    request = world.add(prompt, max_tokens=30)  # 62 of 64 tokens
    world.run()
    assert request.metrics.num_cached_tokens == 16
    assert request.metrics.num_preemptions == 0
    world.check_whole()


def test_a_request_goes_on_with_the_cached_blocks():
    world = World(num_blocks=8, max_num_seqs=4, max_num_batched_tokens=64)
    world.add(prompt_of(8), max_tokens=1)
    world.run()
    request = world.add(prompt_of(8), max_tokens=3)
    world.step()
    cached = world.cache.tree.match(prompt_of(8)).values
    assert world.kv.block_tables[request.request_id] == cached
    assert [world.pool.ref_count(block) for block in cached] == [2, 2]
    assert world.pool.num_free == 8 - 2
    world.run()
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


def test_prompts_under_way_are_not_gathered_for_nobody(monkeypatch):
    world = World(max_num_seqs=4, max_num_batched_tokens=4)
    world.add(prompt_of(12), max_tokens=1)
    world.step()
    monkeypatch.setattr(world.scheduler, "_prefixes_underway", None)  # would not be callable
    assert world.step().total_tokens == 4
