"""What changes logits, and log-probabilities of prompts: beside naive computations."""

import contextlib
import random

import pytest
import torch
from engines import check_whole, recompute, run
from tiny import make_batch, make_pools

from yaie.engine.config import EngineConfig
from yaie.engine.engine import Engine
from yaie.engine.params import SamplingParams
from yaie.model.weights import load_model

EDITS = [
    {"frequency_penalty": 1.5},
    {"presence_penalty": -2.0},
    {"frequency_penalty": -0.75, "presence_penalty": 1.25, "repetition_penalty": 1.3},
    {"logit_bias": {7: 100.0, 8: 99.5, 2: -100.0}, "frequency_penalty": 2.0},
    {"logit_bias": {2: 100.0}, "min_tokens": 5},  # the end token, as soon as it may come
    {"logit_bias": {9: 100.0}, "min_tokens": 3, "stop_token_ids": [9], "ignore_eos": True},
    {},
]


def make(model, tokenizer, **options) -> Engine:
    options = {"num_blocks": 300, "block_size": 4, "max_num_batched_tokens": 48} | options
    return Engine(model, tokenizer, EngineConfig(max_num_seqs=16, **options))


@pytest.mark.parametrize("overlap", [False, True], ids=["on the host", "on the device"])
@pytest.mark.parametrize("num_blocks", [300, 26], ids=["room", "preempted"])
def test_edits_are_those_of_a_naive_computation(model, tokenizer, overlap, num_blocks):
    """Beside neighbors with other edits and with none, which change nothing of each other."""
    rng, cases = random.Random(1), []
    for number, edits in enumerate(EDITS * 2):
        prompt = [rng.randrange(3, 384) for _ in range(rng.choice([1, 4, 17]))]
        params = SamplingParams(
            **{"ignore_eos": False, "max_tokens": 14} | edits,
            temperature=0.0 if number < len(EDITS) else 0.9,
            seed=number,
        )
        cases.append((prompt, params, recompute(model, prompt, params, on_device=overlap)))
    engine = make(model, tokenizer, overlap=overlap, num_blocks=num_blocks)
    ids = [engine.add_request(prompt, params) for prompt, params, _ in cases]
    outputs = run(engine)
    for request_id, (_, params, wanted) in zip(ids, cases, strict=True):
        assert outputs[request_id].token_ids == wanted
        assert len(wanted) >= params.min_tokens
    check_whole(engine)
    plain = [recompute(model, p, SamplingParams(temperature=0.0, max_tokens=14))
             for p, _, _ in cases[:6]]  # fmt: skip
    changed = [wanted != other for (_, _, wanted), other in zip(cases, plain, strict=False)]
    assert all(changed), "each edit shows"
    early = [outputs[ids[i]] for i in (4, 5)]
    assert [len(output.token_ids) for output in early] == [6, 4]
    assert [output.finish_reason for output in early] == ["stop", "stop"]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_edits_are_the_same_beside_graphs(model, untied_model, tokenizer):
    """Greedy, on a GPU: steps with an edited row are launched, the others replayed."""
    on_gpu = load_model(untied_model, "float32", "cuda")
    engine = make(on_gpu, tokenizer)
    assert engine.runner.graphs
    cases = [({"ignore_eos": False, "max_tokens": 14} | edits, [5 + n] * 9)
             for n, edits in enumerate([*EDITS, {"prompt_logprobs": 1}])]  # fmt: skip
    params = [SamplingParams(**given, temperature=0.0) for given, _ in cases]
    ids = [engine.add_request(case[1], one) for case, one in zip(cases, params, strict=True)]
    outputs = run(engine)
    for request_id, (_, prompt), one in zip(ids, cases, params, strict=True):
        assert outputs[request_id].token_ids == recompute(model, prompt, one)
    assert len(outputs[ids[-1]].prompt_logprobs) == 9
    check_whole(engine)


def test_a_step_that_is_tried_again_counts_no_token_twice(model, tokenizer, monkeypatch):
    params = SamplingParams(temperature=0.0, max_tokens=8, frequency_penalty=0.5, ignore_eos=True)
    engine = make(model, tokenizer, overlap=False)
    request_id, sample = engine.add_request([5, 6], params), engine.sampler.sample
    fails = iter([False, False, True, True, False, True] + [False] * 9)

    def sometimes(*arguments, **options):
        if next(fails):
            raise RuntimeError("a kernel crashed")
        return sample(*arguments, **options)

    monkeypatch.setattr(engine.sampler, "sample", sometimes)
    request = engine.requests[request_id]
    while engine.has_work:
        with contextlib.suppress(RuntimeError):
            engine.step()
    assert request.output_token_ids == recompute(model, [5, 6], params)


def test_no_stop_string_is_looked_for_before_min_tokens(model, tokenizer):
    once = tokenizer.encode("Once upon")
    told = {token: 100.0 for token in once[:1]}
    for least, wanted in ((0, 1), (4, 4)):
        params = SamplingParams(
            temperature=0.0, max_tokens=6, min_tokens=least, logit_bias=told, ignore_eos=True,
            stop=tokenizer.decode(once[:1]),
        )  # fmt: skip
        engine = make(model, tokenizer)
        engine.add_request([5], params)
        [output] = run(engine).values()
        assert len(output.token_ids) == wanted and output.finish_reason == "stop"
        assert output.text == tokenizer.decode(once[:1]) * (wanted - 1)


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("num_blocks", [300, 30], ids=["room", "preempted"])
def test_a_prompt_is_scored_as_the_model_does(model, tokenizer, overlap, num_blocks):
    """In chunks, preempted, and though the prefix cache holds all of it: 70 tokens are scored in
    two slices, and a neighbor is not."""
    rng = random.Random(2)
    long = [rng.randrange(3, 384) for _ in range(70)]
    engine = make(model, tokenizer, overlap=overlap, num_blocks=num_blocks)
    engine.add_request(long, SamplingParams(max_tokens=1))
    run(engine)  # the cache holds the prompt now
    asked = [(long, 0), (long[:30], None), (long[:1], 2), (long[:33], 3), (long[:2], 20)]
    ids = []
    for prompt, top in asked:
        params = SamplingParams(temperature=0.0, max_tokens=9, prompt_logprobs=top, ignore_eos=True)
        ids.append(engine.add_request(prompt, params))
    outputs = run(engine)
    for request_id, (prompt, top) in zip(ids, asked, strict=True):
        output = outputs[request_id]
        want = SamplingParams(temperature=0.0, max_tokens=9, ignore_eos=True)
        assert output.token_ids == recompute(model, prompt, want)
        if top is None:
            assert output.prompt_logprobs == []
            continue
        with torch.inference_mode():
            batch = make_batch([(prompt, 0, [0])], len(prompt), range(len(prompt)))
            logits = model(batch, *make_pools(model.config, 1, len(prompt)))
        table = logits.double().log_softmax(dim=-1)
        assert output.prompt_logprobs[0] is None and len(output.prompt_logprobs) == len(prompt)
        for place, found in enumerate(output.prompt_logprobs[1:], start=1):
            row = table[place - 1]
            assert found.token_id == prompt[place]
            assert found.logprob == pytest.approx(row[prompt[place]].item(), abs=1e-4)
            best = row.topk(top)
            assert list(found.top.values()) == pytest.approx(best.values.tolist(), abs=1e-4)
            assert len(found.top) == top
    check_whole(engine)
    if num_blocks == 30:
        assert any(output.metrics.num_preemptions for output in outputs.values())


def test_an_end_token_that_the_model_lacks_is_not_forbidden(model, tokenizer, monkeypatch):
    """A tokenizer may have added tokens for which the model was not made larger."""
    monkeypatch.setattr(tokenizer, "eos_token_id", model.config.vocab_size)
    engine = make(model, tokenizer)
    engine.add_request([5], SamplingParams(max_tokens=3, min_tokens=2))
    [output] = run(engine).values()
    assert len(output.token_ids) >= 2


def test_a_prompt_is_scored_again_for_a_request_of_the_same_id(model, tokenizer):
    """The first one's blocks in the cache would have no log-probabilities."""
    engine = make(model, tokenizer)
    outputs = []
    for _ in range(2):
        engine.add_request(list(range(3, 40)), SamplingParams(prompt_logprobs=1), "a")
        outputs += run(engine).values()
    assert outputs[0].prompt_logprobs[1:] == outputs[1].prompt_logprobs[1:]
    assert None not in outputs[1].prompt_logprobs[1:]


@pytest.mark.parametrize(
    "given, error, words",
    [
        ({"frequency_penalty": 2.5}, ValueError, "frequency_penalty must be between -2 and 2"),
        ({"presence_penalty": "1"}, TypeError, "presence_penalty must be a number"),
        ({"logit_bias": {3: 101}}, ValueError, r"logit_bias\[3\] must be between -100 and 100"),
        ({"logit_bias": {"3": 1}}, TypeError, "logit_bias' token ids must be an int"),
        ({"logit_bias": 3}, TypeError, "logit_bias must map token ids to numbers"),
        ({"min_tokens": 5, "max_tokens": 4}, ValueError, "min_tokens must be from 0 to max_tokens"),
        ({"prompt_logprobs": 21}, ValueError, "prompt_logprobs must be from 0 to 20"),
    ],
)
def test_what_is_out_of_range_is_named(given, error, words):
    with pytest.raises(error, match=words):
        SamplingParams(**given)


def test_a_bias_for_a_token_that_the_model_lacks_is_refused(model, tokenizer):
    with pytest.raises(ValueError, match=r"params.logit_bias has token id 384, outside 0 to 383"):
        make(model, tokenizer).add_request([5], SamplingParams(logit_bias={384: 1.0}))
