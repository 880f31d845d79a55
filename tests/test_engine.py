"""The engine on a tiny model: tokens do not depend on how, beside whom or in what pieces.

All of it is true of an engine that waits for each step, as on a CPU, and of one that launches the
next before it knows the last one's tokens, as on a GPU.
"""

import contextlib
import dataclasses
import random
from functools import partial
from itertools import count
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
import torch
from engines import check_whole, follow, interfere, leave_alone, recompute, run
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import make_tiny_model

from yaie.course.author.gpu import first_token as long_prompt
from yaie.course.author.gpu.engine_steps import decoding, first_token
from yaie.engine import engine as engine_module
from yaie.engine import graphs, inputs
from yaie.engine import runner as runner_module
from yaie.engine.config import CHOICES, EngineConfig
from yaie.engine.engine import Engine
from yaie.engine.kv_cache import KVCacheManager
from yaie.engine.params import SamplingParams
from yaie.engine.radix_node import RadixNode
from yaie.engine.request import Request
from yaie.engine.runner import StagingBuffer
from yaie.engine.sampling import SamplingKernel
from yaie.engine.scheduler import Step
from yaie.model.weights import load_model
from yaie.ops import registry

NUM_TOKENS = 16


def greedy(max_tokens: int, **options) -> SamplingParams:
    """The likeliest tokens, this many."""
    return SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True, **options)


@pytest.fixture(scope="module", params=[False, True], ids=["waits", "overlaps"])
def overlap(request):
    return request.param


@pytest.fixture(scope="module")
def make_engine(overlap, model, tokenizer):
    return partial(make, model, tokenizer, overlap=overlap)


@pytest.fixture
def ahead(model, tokenizer):
    """Makes engines that run ahead."""
    return partial(make, model, tokenizer, overlap=True)


@pytest.fixture(scope="module")
def workload(model, overlap):
    """Requests with and without shared beginnings, greedy and drawn, and their right tokens.

    Without penalties for an engine that runs ahead, which waits where one has to be computed.
    """
    rng = random.Random(0)

    def tokens(length: int) -> list[int]:
        return [rng.randrange(3, model.config.vocab_size) for _ in range(length)]

    system = tokens(37)
    prompts = [tokens(1), tokens(2), tokens(16), tokens(17), tokens(33)]
    prompts += [system + tokens(n) for n in (1, 5, 11)] + [system, system[:20] + tokens(9)]
    params = [
        SamplingParams(temperature=0.0),
        SamplingParams(temperature=1.0, seed=1),
        SamplingParams(temperature=0.8, top_p=0.9, seed=2),
        SamplingParams(temperature=1.5, top_k=20, seed=3),
        SamplingParams(temperature=0.0, repetition_penalty=1.0 if overlap else 1.3),
        SamplingParams(
            temperature=0.7, min_p=0.05, repetition_penalty=1.0 if overlap else 1.1, seed=4
        ),
    ]
    cases = []
    for i, prompt in enumerate(prompts):
        p = params[i % len(params)]
        p = SamplingParams(
            **{**vars(p), "max_tokens": NUM_TOKENS - i % 3, "ignore_eos": i % 2 == 0}
        )
        cases.append((prompt, p, recompute(model, prompt, p, on_device=overlap)))
    return cases


def make(model, tokenizer, num_blocks=None, block_size=4, **options) -> Engine:
    num_blocks = 1200 // block_size if num_blocks is None else num_blocks
    options = {"max_num_seqs": 16, "max_num_batched_tokens": 48} | options
    return Engine(
        model, tokenizer, EngineConfig(num_blocks=num_blocks, block_size=block_size, **options)
    )


def smallest_pool(workload, block_size: int) -> int:
    """How many blocks the longest request takes."""
    longest = max(len(prompt) + params.max_tokens for prompt, params, _ in workload)
    return -(-longest // block_size)


def add_all(engine: Engine, workload) -> list[str]:
    return [engine.add_request(prompt, params) for prompt, params, _ in workload]


def check_answers(engine: Engine, outputs, ids, workload) -> None:
    for request_id, (prompt, _, wanted) in zip(ids, workload, strict=True):
        assert outputs[request_id].token_ids == wanted
        assert outputs[request_id].prompt_token_ids == prompt
    check_whole(engine)


# ------------------------------------------------------------------------------------ equality


PAIRS = [  # of which any two options meet in every way, as three do in the test with arrivals
    *((1, True, True, True), (1, False, False, False), (4, True, False, True)),
    *((4, False, True, False), (16, True, True, False), (16, False, False, True)),
]


@pytest.mark.parametrize("block_size, chunked, caching, tight", PAIRS)
def test_tokens_do_not_depend_on_memory_or_schedule(
    make_engine, workload, block_size, chunked, caching, tight
):
    engine = make_engine(
        num_blocks=smallest_pool(workload, block_size) + 1 if tight else None,
        block_size=block_size,
        max_num_batched_tokens=16 if chunked else 48,
        enable_chunked_prefill=chunked,
        enable_prefix_caching=caching,
    )
    for _ in range(2):  # the second time, with the first one's prefixes in the cache
        ids = add_all(engine, workload)
        outputs = run(engine)
        check_answers(engine, outputs, ids, workload)
        metrics = [outputs[request_id].metrics for request_id in ids]
        assert (sum(m.num_preemptions for m in metrics) > 0) == tight
        assert (sum(m.num_cached_tokens for m in metrics) > 0) == caching


@pytest.mark.parametrize("caching", [True, False])
def test_tokens_alone_are_tokens_in_company(make_engine, workload, caching):
    engine = make_engine(enable_prefix_caching=caching)
    for prompt, params, wanted in workload:
        request_id = engine.add_request(prompt, params)
        assert run(engine)[request_id].token_ids == wanted
    check_whole(engine)


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_tokens_do_not_depend_on_arrivals(make_engine, workload, data):
    """Requests come at any step, some are aborted, in a pool of any size."""
    block_size = data.draw(st.sampled_from([1, 3, 4, 16]))
    engine = make_engine(
        num_blocks=smallest_pool(workload, block_size)
        + data.draw(st.integers(0, 60 // block_size)),
        block_size=block_size,
        max_num_seqs=data.draw(st.integers(1, 8)),
        max_num_batched_tokens=data.draw(st.integers(8, 64)),
        enable_chunked_prefill=data.draw(st.booleans()),
        enable_prefix_caching=data.draw(st.booleans()),
        policy=data.draw(st.sampled_from(CHOICES["policy"])),
    )
    chosen = data.draw(st.lists(st.sampled_from(range(len(workload))), min_size=1, max_size=10))
    arrivals = [(data.draw(st.integers(0, 30)), i) for i in chosen]
    aborted = data.draw(st.sets(st.integers(0, len(chosen) - 1), max_size=3))
    ids, outputs, now = {}, {}, 0
    while engine.has_work or len(ids) < len(arrivals):
        for n, (time, i) in enumerate(arrivals):
            if time == now:
                ids[n] = engine.add_request(*workload[i][:2])
            if n in aborted and n in ids and now == time + 9 and (end := engine.abort(ids[n])):
                outputs[end.request_id] = end
        outputs |= {o.request_id: o.request.output() for o in engine.step() if o.finish_reason}
        now += 1
        assert now < 3000
    for n, (_, i) in enumerate(arrivals):
        output, wanted = outputs[ids[n]], workload[i][2]
        assert output.token_ids == wanted[: len(output.token_ids)]
        assert output.finish_reason == "abort" or len(output.token_ids) == len(wanted)
    check_whole(engine)


def test_unseeded_requests_differ(make_engine):
    engine = make_engine()
    for _ in range(2):
        engine.add_request([5], SamplingParams(max_tokens=20, ignore_eos=True))
    first, second = run(engine).values()
    assert first.token_ids != second.token_ids


def test_a_chat_computes_only_what_is_new(make_engine):
    """The answer of one turn is part of the prefix of the next."""
    engine = make_engine(block_size=4)
    params = greedy(10)
    first = run_one(engine, list(range(10, 30)), params)
    second = run_one(engine, [*range(10, 30), *first.token_ids, 40, 41], params)
    # The last token of the answer was never computed, and of 29 tokens only whole blocks are kept.
    assert second.metrics.num_cached_tokens == 28


def run_one(engine: Engine, prompt: list[int], params: SamplingParams):
    request_id = engine.add_request(prompt, params)
    return run(engine)[request_id]


# ------------------------------------------------------------------------------------ limits


def test_the_context_full_ends_a_request(tmp_path, tokenizer, overlap):
    short = load_model(make_tiny_model(tmp_path / "short", max_position_embeddings=20))
    engine = make(short, tokenizer, overlap=overlap)
    assert engine.max_model_len == 20
    for more, most in ({}, "20 .context 20"), ({"num_blocks": 1}, "16 .* cache 1 blocks of 16"):
        with pytest.raises(ValueError, match=f"max_model_len must be at most {most}.*got 21"):
            make(short, tokenizer, max_model_len=21, block_size=16, **more)
    output = run_one(engine, [5] * 12, SamplingParams(max_tokens=99, ignore_eos=True))
    assert (output.finish_reason, len(output.token_ids)) == ("length", 8)
    output = run_one(engine, [5] * 19, SamplingParams(max_tokens=99, ignore_eos=True))
    assert (output.finish_reason, len(output.token_ids)) == ("length", 1)


@pytest.mark.parametrize("block_size, num_blocks", [(1, 24), (4, 6), (24, 1)])
def test_the_cache_full_ends_a_request(make_engine, block_size, num_blocks):
    engine = make_engine(num_blocks, block_size)
    params = greedy(99)
    for prompt in ([5] * 12, [6] * 12, [5] * 23):
        output = run_one(engine, prompt, params)
        assert (output.finish_reason, len(output.token_ids)) == ("length", 24 - len(prompt))
        metrics = output.metrics
        assert metrics.num_preemptions == 0
        assert metrics.arrival_time <= metrics.first_token_time <= metrics.finished_time
        check_whole(engine)


class CountedTokens(list):
    """A list that counts the items that are copied out of it."""

    copied = 0

    def __getitem__(self, index):
        found = super().__getitem__(index)
        self.copied += len(found) if isinstance(index, slice) else 0
        return found

    def __iter__(self):
        self.copied += len(self)
        return super().__iter__()


@settings(max_examples=10, deadline=None)
@given(length=st.integers(50, 100), special=st.booleans())
def test_the_work_of_a_step_does_not_grow_with_the_answer(make_engine, length, special):
    """What is copied of the tokens, and what a step returns, is the same at the end."""
    engine = make_engine()
    options = {"logprobs": 1, "stop": "never said"} if special else {}
    params = greedy(length, **options)
    request = engine.requests[engine.add_request([5, 6, 7], params)]
    outputs = engine.step()
    request.token_ids = tokens = CountedTokens(request.token_ids)
    while engine.has_work:
        before, pieces = tokens.copied, len(request.output_text.pieces)
        new = engine.step()
        outputs += new
        if request.finish_reason is None:
            assert tokens.copied - before <= 1 + engine.kv.block_size  # a block that is shared
            assert len(new) <= 1 and sum(len(output.new_token_ids) for output in new) <= 1
            assert len(request.output_text.pieces) - pieces <= 1
    whole = request.output()
    assert [token for output in outputs for token in output.new_token_ids] == whole.token_ids
    assert "".join(output.new_text for output in outputs) == whole.text
    assert [entry for output in outputs for entry in output.new_logprobs] == whole.logprobs
    assert len(whole.token_ids) == length and outputs[-1].finish_reason == "length"
    assert engine.step() == []
    check_whole(engine)


# ------------------------------------------------------------------------------------ failures


def poison(engine, request_id: str, when=lambda request: True):
    """Turn the logits of one request into NaN."""

    def after(step, logits):
        ready = [r for r in step.scheduled if r.num_new_tokens == step.num_tokens[r.request_id]]
        for row, request in enumerate(ready):
            if request.request_id == request_id and when(request):
                logits[row, 7] = float("nan")

    interfere(engine, after=after)


@pytest.mark.parametrize("at", [0, 1, 5])
@pytest.mark.parametrize("victim", [0, 3, 7])
def test_nan_ends_one_request_and_no_other(make_engine, workload, at, victim):
    engine = make_engine(max_num_batched_tokens=16)
    ids = add_all(engine, workload)
    poison(engine, ids[victim], when=lambda request: request.num_output_tokens == at)
    outputs = run(engine)
    failed = outputs.pop(ids.pop(victim))
    assert failed.finish_reason == "error" and "NaN" in failed.error
    assert failed.token_ids == workload[victim][2][:at]
    assert not any(output.error for output in outputs.values())
    check_answers(engine, outputs, ids, [case for case in workload if case is not workload[victim]])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_logits_that_allow_no_choice_are_errors(make_engine, value):
    engine = make_engine()
    interfere(engine, after=lambda step, logits: logits[0].fill_(value))
    output = run_one(engine, [5], SamplingParams(seed=0))
    assert (output.finish_reason, output.token_ids) == ("error", [])
    check_whole(engine)


@pytest.mark.parametrize("chunked", [True, False])
def test_keys_that_became_nan_are_not_shared(make_engine, workload, chunked):
    """A fault in the first part of a prompt: the same prompt must not find it in the cache."""
    prompt, params, wanted = workload[7]
    engine = make_engine(max_num_batched_tokens=16, enable_chunked_prefill=chunked)
    faults = [1]

    def after(step, logits):
        if faults:
            faults.pop()
            [request] = step.scheduled
            block = engine.kv.block_tables[request.request_id][0]
            engine.kv.key_pools[0][block] = float("nan")

    interfere(engine, after=after)
    output = run_one(engine, prompt, params)
    assert output.finish_reason == "error"
    assert engine.cache.num_cached == 0
    check_whole(engine)
    for _ in range(2):  # also in the very block that holds NaN
        assert run_one(engine, prompt, params).token_ids == wanted
    check_whole(engine)


class Fault(Exception):
    pass


@pytest.mark.parametrize("error", [Fault, KeyboardInterrupt])
@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("tight", [True, False])
def test_a_step_that_failed_can_be_tried_again(make_engine, workload, error, where, tight):
    """Every third step fails, in the forward pass or after it; no tokens change."""
    engine = make_engine(num_blocks=20 if tight else None)
    if engine.overlap:
        engine.runner._staging = [CopiedBuffer(engine.runner._staging[0].host) for _ in range(2)]
    count = iter(range(10**6))

    def fail(*_):
        if next(count) % 3 == 2:
            raise error

    interfere(engine, **{where: fail})
    ids = add_all(engine, workload)
    outputs, failures = {}, 0
    while engine.has_work:
        try:
            outputs |= {o.request_id: o.request.output() for o in engine.step() if o.finish_reason}
        except error:
            failures += 1
    assert failures > 8
    check_answers(engine, outputs, ids, workload)


@pytest.mark.parametrize("where", ["sample", "fetch"])
def test_a_step_that_failed_after_its_tokens_were_chosen_can_be_tried_again(
    ahead, model, monkeypatch, where
):
    """They lie where the device kept the tokens of the step before, which are not read yet."""
    engine, prompts, params = ahead(block_size=4), ([5, 6, 7], [9] * 4), greedy(20)
    buffers = [CopiedBuffer(engine.runner._staging[0].host) for _ in range(2)]
    engine.runner._staging, calls, failures = list(buffers), count(), 0

    def failing(inner, *arguments):
        result = inner(*arguments)
        if next(calls) % 3 == 2:
            raise KeyboardInterrupt
        return result

    for owner in [engine.runner] if where == "sample" else buffers:
        monkeypatch.setattr(owner, where, partial(failing, getattr(owner, where)))
    ids, outputs = [engine.add_request(prompt, params) for prompt in prompts], {}
    while engine.has_work:
        try:
            outputs |= {o.request_id: o.request.output() for o in engine.step() if o.finish_reason}
        except KeyboardInterrupt:
            failures += 1
    wanted = [recompute(model, prompt, params) for prompt in prompts]
    assert failures > 8 and [outputs[name].token_ids for name in ids] == wanted
    check_whole(engine)


@pytest.mark.parametrize("steps", range(0, 12, 2))
def test_everything_can_be_aborted_after_a_failure(make_engine, workload, steps):
    engine = make_engine(num_blocks=20, max_num_batched_tokens=16)
    ids = add_all(engine, workload)
    for _ in range(steps):
        engine.step()
    interfere(engine, before=lambda step: (_ for _ in ()).throw(Fault()))
    with pytest.raises(Fault):
        engine.step()
    for request_id in ids:
        assert engine.abort(request_id).finish_reason == "abort"
        assert engine.abort(request_id) is None
    check_whole(engine)
    leave_alone(engine)
    prompt, params, wanted = workload[6]
    assert run_one(engine, prompt, params).token_ids == wanted


def test_logprobs_that_fail_are_told_once(make_engine, model, monkeypatch):
    engine, tell, count = make_engine(), engine_module.token_logprobs, iter(range(100))
    prompt, params = [5, 6, 7], greedy(4)
    wanted = recompute(model, prompt, params)
    request_id = engine.add_request(prompt, dataclasses.replace(params, logprobs=1))

    def failing(*arguments):
        if next(count) % 2 == 0:
            raise Fault
        return tell(*arguments)

    monkeypatch.setattr(engine_module, "token_logprobs", failing)
    finished = []
    while engine.has_work:
        with contextlib.suppress(Fault):
            finished += [o.request.output() for o in engine.step() if o.finish_reason]
    [output] = finished
    assert output.request_id == request_id and output.token_ids == wanted
    assert [logprob.token_id for logprob in output.logprobs] == wanted
    check_whole(engine)


def test_a_scheduler_that_does_nothing_is_an_error_and_no_endless_loop(make_engine):
    engine = make_engine()
    engine.scheduler.admit = lambda step: None
    engine.add_request([5])
    with pytest.raises(RuntimeError, match="1 requests wait"):
        engine.step()


def test_an_abort_in_the_middle_of_a_step_waits_for_its_end(make_engine, workload):
    """The garbage collector may close a forgotten stream at any time."""
    engine = make_engine()
    first, second = (engine.add_request(*workload[i][:2]) for i in (0, 2))
    interfere(engine, after=lambda step, logits: engine.abort(first))
    outputs = run(engine)
    assert first not in outputs
    assert outputs[second].token_ids == workload[2][2]
    check_whole(engine)


def test_an_abort_during_another_waits_for_its_end(make_engine, monkeypatch):
    """Both would put the same second block into the tree, and one of the nodes would be lost."""
    engine = make_engine(block_size=4)
    params = SamplingParams(temperature=0.0, max_tokens=40, ignore_eos=True)
    first, second = (engine.add_request([5], params) for _ in range(2))
    while engine.requests[first].num_known_tokens < 9:
        engine.step()
    closing = [second]

    def node(*arguments):
        while closing:  # the garbage collector runs where memory is allocated
            engine.abort(closing.pop())
        return RadixNode(*arguments)

    monkeypatch.setattr("yaie.engine.radix.RadixNode", node)
    engine.abort(first)
    assert not closing
    check_whole(engine)
    engine.reset_prefix_cache()
    assert engine.kv.pool.num_free == engine.kv.pool.num_blocks


def test_inference_leaves_no_trace_of_autograd(make_engine):
    assert torch.is_grad_enabled()
    engine = make_engine()
    run_one(engine, [5], SamplingParams(max_tokens=2, repetition_penalty=1.2))
    assert torch.is_grad_enabled()
    assert not torch.is_inference_mode_enabled()


def test_the_tokenizers_end_token_ends_a_request(untied_model, tokenizer, overlap):
    """A chat template writes the tokenizer's; a config.json often names only another."""
    model = load_model(untied_model)
    model.config = dataclasses.replace(model.config, eos_token_ids=(0,))
    engine = make(model, tokenizer, overlap=overlap)
    follow(engine, {7: [9, 9, 2, 9], 8: [9, 0, 9, 9]})
    for first in (7, 8):
        engine.add_request([first], SamplingParams(temperature=0.0, max_tokens=4))
    found = {(*o.prompt_token_ids, *o.token_ids, o.finish_reason) for o in run(engine).values()}
    assert found == {(7, 9, 9, 2, "stop"), (8, 9, 0, "stop")}


def test_the_penalty_is_told_each_token_once(make_engine, monkeypatch):
    engine = make_engine()
    told, penalty = [], engine.sampler.repetition_penalty

    def listen(logits, factor, seen):
        told.append(seen.tolist())
        return penalty(logits, 1.0, seen)  # so that the model may repeat itself

    monkeypatch.setattr(engine.sampler, "repetition_penalty", listen)
    follow(engine, {7: [9, 9, 5, 9]})
    engine.add_request([7], SamplingParams(temperature=0, repetition_penalty=2.0, max_tokens=4))
    run(engine)
    assert told == [[7], [7, 9], [7, 9], [5, 7, 9]]


# ------------------------------------------------------------------------------------ overlap


def test_a_step_is_launched_before_the_last_ones_tokens_are_known(ahead, model):
    engine = ahead()
    params = greedy(5)
    wanted = recompute(model, [5, 6, 7], params)
    request = engine.requests[engine.add_request([5, 6, 7], params)]
    seen = []
    while engine.has_work:
        known = [list(output.new_token_ids) for output in engine.step()]
        seen.append((known, request.num_pending))
    # The engine does not run ahead beyond the last token.
    assert seen == [
        ([], 1),
        ([wanted[:1]], 1),
        ([wanted[1:2]], 1),
        ([wanted[2:3]], 1),
        ([wanted[3:4], wanted[4:]], 0),
    ]
    check_whole(engine)


def test_a_neighbor_whose_logits_are_edited_brings_two_tokens_in_one_call(ahead, model):
    """The token in flight and that of the step with edited logits, which is read immediately."""
    engine = ahead()
    wanted = recompute(model, [5, 6, 7], greedy(5))
    engine.add_request([5, 6, 7], greedy(5), "plain")
    assert engine.step() == []
    engine.add_request([8, 9], dataclasses.replace(greedy(2), logit_bias={3: 100.0}), "edited")
    seen = []
    while engine.has_work:
        seen.append([(output.request_id, *output.new_token_ids) for output in engine.step()])
    first, second, third, *others = [("plain", token) for token in wanted]
    edited = ("edited", 3)
    assert seen[0] == [first, second, edited] and seen[1] == [third, edited]
    assert [output for outputs in seen[2:] for output in outputs] == others
    check_whole(engine)


def test_a_prompt_is_shared_once_its_first_token_is_read(ahead, model):
    """Until then a request with the same prompt waits, and an aborted one leaves nothing cached."""
    engine = ahead(block_size=4)
    prompt, params = [5, 6, 7] * 4, greedy(5)
    engine.add_request(prompt, params, "gone")
    engine.step()
    assert engine.requests["gone"].is_unread and engine.cache.num_cached == 0
    engine.abort("gone")
    assert engine.cache.num_cached == 0
    check_whole(engine)
    engine.add_request(prompt, params, "first")
    engine.step()
    engine.add_request(prompt, params, "second")
    engine.step()  # which reads the first token of "first"
    assert (engine.cache.num_cached, len(engine.scheduler.waiting)) == (3, 1)
    outputs = run(engine)
    assert [outputs[name].metrics.num_cached_tokens for name in ("first", "second")] == [0, 8]
    wanted = recompute(model, prompt, params)
    assert [output.token_ids for output in outputs.values()] == [wanted, wanted]
    check_whole(engine)


def test_a_prompt_with_a_nan_is_never_shared(ahead, monkeypatch):
    engine = ahead(block_size=4)
    sample = engine.runner.sample
    monkeypatch.setattr(engine.runner, "sample", lambda logits: sample(logits * float("nan")))
    told = []
    for name in ("first", "second"):
        engine.add_request([5, 6, 7] * 4, greedy(5), name)
        told += engine.step()
        assert engine.cache.num_cached == 0
    while engine.has_work:
        told += engine.step()
    assert [(output.request_id, output.finish_reason) for output in told] == [
        ("first", "error"),
        ("second", "error"),
    ]
    assert engine.cache.num_cached == 0
    check_whole(engine)


def test_an_answer_is_told_though_the_launch_behind_it_fails(ahead, monkeypatch):
    """The step reads the last tokens of one request, then fails to launch the next for another."""
    engine = ahead()
    ids = [engine.add_request([5, 6, 7], greedy(3)), engine.add_request([8, 9], greedy(9))]
    told, launch, count = [], engine.runner.launch, 0

    def failing(*arguments):
        nonlocal count
        count += 1
        if count % 2:
            raise RuntimeError("no luck")
        return launch(*arguments)

    monkeypatch.setattr(engine.runner, "launch", failing)
    while engine.has_work:
        with contextlib.suppress(RuntimeError):
            told += engine.step()
    finished = [output.request.output() for output in told if output.finish_reason]
    assert sorted(output.request_id for output in finished) == sorted(ids)
    assert {len(output.token_ids) for output in finished} == {3, 9}
    check_whole(engine)


def test_a_request_under_way_shows_known_tokens_only(ahead, model):
    engine = ahead()
    params = greedy(50)
    wanted = recompute(model, [5, 6, 7], params)
    for num_steps in (2, 3, 7):
        request = engine.requests[engine.add_request([5, 6, 7], params)]
        for _ in range(num_steps):
            engine.step()
        assert request.num_pending == 1
        assert request.output().token_ids == wanted[: num_steps - 1]
        ended = engine.abort(request.request_id)
        assert (ended.token_ids, ended.finish_reason) == (wanted[: num_steps - 1], "abort")
        check_whole(engine)


def test_what_was_computed_in_vain_is_not_cached(ahead):
    """A stop token ends the request while its next token is on its way."""
    engine = ahead(block_size=1)
    follow(engine, {7: [9, 9, 9, 2, 9, 9]})
    request_id = engine.add_request([7], SamplingParams(temperature=0.0, max_tokens=20))
    output = run(engine)[request_id]
    assert (output.token_ids, output.finish_reason) == ([9, 9, 9, 2], "stop")
    assert engine.cache.num_cached == 4  # the prompt and three 9s: nothing else was read
    check_whole(engine)


@pytest.mark.parametrize("arrives", range(6))
@pytest.mark.parametrize("special", [{"repetition_penalty": 1.3}, {"logprobs": 2}])
def test_a_request_that_needs_the_host_stops_the_running_ahead(ahead, model, arrives, special):
    engine = ahead()
    drawn = SamplingParams(temperature=1.0, seed=1, max_tokens=12, ignore_eos=True)
    cases = [([5, 6], drawn), ([8], dataclasses.replace(drawn, temperature=0.0, **special))]
    ids = [engine.add_request(*cases[0])]
    for _ in range(arrives):
        engine.step()
    ids.append(engine.add_request(*cases[1]))
    outputs = run(engine)
    for request_id, case in zip(ids, cases, strict=True):
        assert outputs[request_id].token_ids == recompute(model, *case, on_device=True)
    assert len(outputs[ids[1]].logprobs) == (12 if "logprobs" in special else 0)
    check_whole(engine)


def test_no_request_is_preempted_while_it_is_computed(ahead, model):
    """In a pool so small that requests are preempted, and the tokens are still right."""
    engine = ahead(num_blocks=16)
    preempt, pending = engine.scheduler.preempt, []

    def listen(request):
        pending.append(request.num_pending)
        preempt(request)

    engine.scheduler.preempt = listen
    params = greedy(30)
    prompts = [[n] * 9 for n in range(5, 11)]
    ids = [engine.add_request(prompt, params) for prompt in prompts]
    outputs = run(engine)
    assert pending
    assert not any(pending)
    for request_id, prompt in zip(ids, prompts, strict=True):
        assert outputs[request_id].token_ids == recompute(model, prompt, params)
    check_whole(engine)


def test_a_sampler_of_ones_own_may_come_at_any_time(ahead, model):
    """From then on it chooses the tokens, and the engine does not run ahead of it."""
    engine = ahead()
    params = greedy(12)
    request = engine.requests[engine.add_request([5, 6, 7], params)]
    for _ in range(4):
        engine.step()
    assert request.num_pending == 1

    class Sevens(SamplingKernel):
        def sample(self, logits, **_):
            return torch.full((len(logits),), 7, dtype=torch.int32)  # int64 is asked for

    engine.sampler = Sevens()
    engine.step()
    assert request.num_pending == 0
    output = run(engine)[request.request_id]
    assert output.token_ids == [*recompute(model, [5, 6, 7], params)[:4], *[7] * 8]
    check_whole(engine)


# ------------------------------------------------------------------------------------ graphs


class PretendedGraph:
    """What a CUDA graph does, launched anew: everything in the sizes that it was captured with."""

    def __init__(self, runner, shape):
        self.runner, self.shape, self.is_used = runner, shape, False

    def replay(self):
        self.is_used = True
        with torch.inference_mode():
            return self.runner.sample(self.runner.forward())


@pytest.mark.parametrize(
    "block_size, chunk, max_model_len, largest",
    [(4, 48, None, 40), (16, 20, None, 40), (4, 200, 76, 200)],
)
def test_rows_of_padding_change_nothing(
    untied_model,
    tokenizer,
    workload,
    overlap,
    monkeypatch,
    block_size,
    chunk,
    max_model_len,
    largest,
):
    """Also where a graph has more tokens than a sequence may have."""
    if not overlap:
        pytest.skip("a sampler that sees logits has no graphs")
    # Of the back ends that run here, this is the one that knows rows without a slot.
    model = load_model(untied_model, backends={"reshape_and_cache": "cuda"})
    monkeypatch.setattr(model, "_check", lambda *_: None)
    monkeypatch.setattr(graphs, "PROMPT_TOKENS", (2, 5, 17, largest))
    monkeypatch.setattr(graphs, "FEW_REQUESTS", (3, 4))
    options = {"max_num_batched_tokens": chunk, "max_model_len": max_model_len}
    engine = make(model, tokenizer, block_size=block_size, overlap=True, **options)
    runner = engine.runner
    sizes = graphs.shapes(16, runner.max_blocks, block_size, chunk)
    runner.graphs = [PretendedGraph(runner, shape) for shape in sizes]
    for _ in range(2):
        ids = add_all(engine, workload)
        check_answers(engine, run(engine), ids, workload)
    used = [graph.shape for graph in runner.graphs if graph.is_used]
    assert {shape.tokens for shape in used if shape.is_decode} >= {8, 16}
    assert max(shape.tokens for shape in used) == min(chunk, largest)


def test_logits_stay_as_they_are_until_python_chooses(untied_model, tokenizer, monkeypatch):
    engine = make(load_model(untied_model, "bfloat16", backends="reference"), tokenizer)
    computed, chosen, launch = set(), set(), engine.runner.launch
    interfere(engine, after=lambda step, logits: computed.add(logits.dtype))

    def listen(step, ready, samples, choose):
        def listened(logits):
            chosen.add(logits.dtype)
            return choose(logits)

        return launch(step, ready, samples, choose and listened)

    monkeypatch.setattr(engine.runner, "launch", listen)
    for repetition_penalty in (1.0, 1.3):
        params = dataclasses.replace(greedy(4), repetition_penalty=repetition_penalty)
        engine.add_request([5, 6, 7], params)
        run(engine)
    assert computed == {torch.bfloat16} and chosen == {torch.float32}


class CopiedBuffer(StagingBuffer):
    """As `PinnedStagingBuffer`, without a GPU: there are two in turn, each copied to the device."""

    def __init__(self, device):
        super().__init__(torch.full_like(device, 255))  # whatever was there before
        self.device, self._tokens = device, torch.zeros(64, dtype=torch.int64)

    def send(self, shape):
        self.device[: shape.nbytes] = self.host[: shape.nbytes]

    def fetch(self, tokens):
        return self._tokens[: len(tokens)].copy_(tokens), None


def test_what_is_copied_from_the_last_step_is_what_would_be_written(
    untied_model, tokenizer, monkeypatch
):
    """Even if two requests generate the same tokens, and one continues in the other's blocks; if
    requests end, and prompts, whole or in chunks, come between; and if there is one buffer only."""
    model = load_model(untied_model, backends={"reshape_and_cache": "cuda"})
    monkeypatch.setattr(model, "_check", lambda *_: None)
    write, write_next, copied, seen = inputs.write_batch, inputs.write_next_tokens, [], []

    def counted(now, last, kv):
        copied.append(write_next(now, last, kv))
        return copied[-1]

    def compared(fields, shape, step, ready, kv, num_sampled, last=None):
        copied.clear()
        laid_out = write(fields, shape, step, ready, kv, num_sampled, last)
        whole = {name: np.full_like(field, 77) for name, field in fields.items()}
        write(whole, shape, step, ready, kv, num_sampled)
        for name in whole.keys() - {"uniform"}:  # written later
            assert whole[name].tolist() == fields[name].tolist(), name
        seen.append((len(last.requests) if last else 0, len(step.scheduled), sum(copied)))
        return laid_out

    monkeypatch.setattr(inputs, "write_next_tokens", counted)
    monkeypatch.setattr(runner_module, "write_batch", compared)
    for num_buffers, has_graphs in ((1, False), (1, True), (2, True)):
        options = {"max_num_seqs": 5, "max_num_batched_tokens": 16}
        engine = make(model, tokenizer, block_size=4, overlap=True, **options)
        runner, host = engine.runner, engine.runner._staging[0].host
        if num_buffers == 2:
            runner._staging = [CopiedBuffer(host) for _ in range(2)]
        sizes = graphs.shapes(5, runner.max_blocks, 4, 48)
        runner.graphs = [PretendedGraph(runner, shape) for shape in sizes if has_graphs]
        prompts = [5, 6, 7], [5, 6, 7], [9] * 9, [8] * 21, [5] * 2, [3] * 14
        for top_k, prompt in enumerate(prompts):
            params = dataclasses.replace(greedy(24 - 4 * top_k), top_k=top_k, top_p=0.9, min_p=0.1)
            engine.add_request(prompt, params)
            for _ in range(3):
                engine.step()
        run(engine)
        check_whole(engine)
    assert {count for _, _, count in seen} == {0, 1, 2, 3, 4, 5}
    assert any(before == now == count > 2 for before, now, count in seen)
    assert any(before > now == count > 1 for before, now, count in seen)  # one has ended
    assert any(now > count > 1 for _, now, count in seen)  # a prompt came


def test_what_an_interrupt_left_half_laid_out_is_laid_out_anew(ahead, model, monkeypatch):
    engine = ahead(block_size=4)
    params, ids, interrupts = greedy(20), [], 0
    for prompt in ([5, 6, 7], [9] * 4):
        ids.append(engine.add_request(prompt, params))
    slots, calls = engine.kv.slot_mapping, count()

    def interrupted(*arguments):
        if next(calls) % 5 == 4:
            raise KeyboardInterrupt
        return slots(*arguments)

    monkeypatch.setattr(engine.kv, "slot_mapping", interrupted)
    outputs = {}
    while engine.has_work:
        try:
            told = engine.step()
        except KeyboardInterrupt:
            told, interrupts = engine.take_outputs(), interrupts + 1
        outputs |= {o.request_id: o.request.output() for o in told if o.finish_reason}
    wanted = [recompute(model, prompt, params) for prompt in ([5, 6, 7], [9] * 4)]
    assert interrupts > 3 and [outputs[name].token_ids for name in ids] == wanted
    check_whole(engine)


@given(data=st.data())
def test_padding_is_empty_and_a_last_sequence_with_the_rest(data):
    """In a decode step it is sequences of one token."""
    max_num_seqs, max_blocks = (data.draw(st.integers(1, 40)) for _ in "12")
    block_size, budget = data.draw(st.integers(1, 16)), data.draw(st.integers(max_num_seqs, 3000))
    few = data.draw(st.lists(st.integers(1, 40), max_size=2))
    with mock.patch.object(graphs, "FEW_REQUESTS", few):
        sizes = graphs.shapes(max_num_seqs, max_blocks, block_size, budget)
    length = st.integers(1, max_blocks * block_size)
    alone = data.draw(st.integers(0, max_num_seqs))
    lengths = [1] * alone + data.draw(st.lists(length, max_size=max_num_seqs - alone))
    requests = [Request(str(i), [7] * length) for i, length in enumerate(lengths)]
    step = Step()
    kv = KVCacheManager(4000, block_size, 1, 8, torch.float32, 1, "cpu")
    for request in requests:
        step.add(request, len(request.token_ids))
        kv.allocate_blocks(request.request_id, len(request.token_ids), [])
    alone, number = step.num_decodes, len(lengths)
    wanted = graphs.Shape(sum(lengths), number, number, max_blocks, alone)
    shape = next((shape for shape in sizes if shape.holds(wanted)), None)
    most = sizes[-1].tokens
    held = wanted.is_decode or (sum(lengths) <= most and alone < most)
    assert (shape is not None) == held
    if shape is None:
        return
    memory = torch.full((shape.nbytes,), 0x55, dtype=torch.uint8)
    fields = {name: view.numpy() for name, view in shape.views(memory).items()}
    inputs.write_batch(fields, shape, step, requests, kv, max_num_seqs)
    counts, starts = np.diff(fields["cu_seqlens"]).tolist(), fields["cu_seqlens"].tolist()
    contexts = fields["context_lens"].tolist()
    assert starts[0] == 0 and sum(counts) == shape.tokens and min(counts) >= 0
    assert counts[:alone] == contexts[:alone] == [1] * alone
    padding = shape.decodes - alone
    assert contexts[alone : shape.decodes] == [0] * padding
    assert counts[alone : shape.decodes] == [int(shape.is_decode)] * padding
    end = shape.decodes + number - alone
    assert counts[shape.decodes : end] == contexts[shape.decodes : end] == lengths[alone:]
    assert contexts[end:] == [0] * len(contexts[end:]) and not any(counts[end:-1])
    assert set(fields["slot_mapping"][sum(lengths) :]) <= {-1}


def test_functions_of_ones_own_are_not_captured_and_that_is_said(model, monkeypatch, capsys):
    runner = SimpleNamespace(model=SimpleNamespace(backends=dict.fromkeys(model.backends, "auto")))
    assert graphs.why_not_captured(runner.model) is None

    def mine(x):
        return x

    monkeypatch.setitem(registry._FUNCTIONS["silu_and_mul"], "cuda", mine)
    assert graphs.capture(runner, []) == []
    wanted = "no CUDA graphs: silu_and_mul is computed by 'cuda' (test_engine:"
    assert capsys.readouterr().err.startswith(wanted)
    runner.model.backends["silu_and_mul"] = "reference"
    assert "'reference' (yaie.ops.reference.elementwise:silu_and_mul)" in graphs.why_not_captured(
        runner.model
    )


def test_the_largest_graph_is_captured_first(monkeypatch):
    order = []
    monkeypatch.setattr(graphs, "_capture_one", lambda _, shape, *__: order.append(shape))
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    monkeypatch.setattr(torch.cuda, "Stream", lambda: None)
    runner = SimpleNamespace(model=SimpleNamespace(backends={}, dtype=torch.float32))
    graphs.capture(runner, graphs.shapes(200, 8, 16, 256))
    sizes = [(shape.tokens, shape.rows) for shape in order]
    assert sizes == sorted(sizes, reverse=True) and sizes[:3] == [(256, n) for n in (200, 192, 128)]


def test_sizes_of_graphs():
    def sizes(*arguments):
        found = graphs.shapes(*arguments)
        return [(shape.tokens, shape.sequences, shape.rows, shape.decodes) for shape in found]

    decode = [(n, n, n, n) for n in (1, 2, 4, 8, 16, 20)]
    mixed = [(16, 15 + 16 + 1, 16, 15)]
    assert sizes(20, 128, 4, 40) == decode + mixed + [(n, 41, 20, 20) for n in (32, 40)]
    mixed += [(n, 41, 20, 20) for n in graphs.PROMPT_TOKENS[1:]]
    assert sizes(20, 8, 16, 10**6) == decode + mixed
    assert sizes(3, 8, 16, 10**6)[-1] == (3 * 128, 7, 3, 3)  # a longer step there is not
    assert sizes(200, 8, 16, 256)[-4:] == [
        (128, 127 + 128 + 1, 128, 127), (256, 257, 128, 128), (256, 385, 192, 192),
        (256, 401, 200, 200),
    ]  # fmt: skip
    assert graphs.shapes(1, 8, 16, 1)[0] == graphs.Shape(1, 1, 1, 8, 1)
    assert graphs.shapes(1, 8, 10**6, 10**6)[-1].tokens == graphs.PROMPT_TOKENS[-1]


def test_the_benchmark_of_steps_has_what_the_engine_asks_for(model):
    """Its tokenizer above all, which knows no words."""
    engine = decoding(model, 2, 48)
    for _ in range(3):
        engine.step()
    row = first_token(model, length=60, own=16)
    assert (row["prompt"], row["own"]) == (60, 16)
    assert row["cold ms"] > 0
    assert row["cached ms"] > 0


def test_a_departure_of_answers_is_told_with_its_gap(model):
    ms, answer = long_prompt.first_token(model, 40)
    assert ms > 0
    assert long_prompt.departure(answer, answer) is None
    other = [*answer[:3], dataclasses.replace(answer[3], token_id=-1), *answer[4:]]
    best, second = list(answer[3].top.values())
    assert long_prompt.departure(answer, other) == {"token": 3, "gap": best - second}
