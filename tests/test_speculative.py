"""Speculative decoding: the text of plain greedy decoding, in fewer passes."""

import random

import pytest
import torch
from engines import recompute

from yaie import LLM
from yaie.course.lessons.speculative import Round, Verifier, accept, prompt_lookup, speculate
from yaie.engine.params import SamplingParams
from yaie.model.weights import load_model


def by_definition(tokens, num_draft, longest, shortest):
    """Every place, every length: the longest tail first, the latest place of it."""
    for length in range(longest, shortest - 1, -1):
        places = [
            i
            for i in range(len(tokens) - length)
            if length and tokens[i : i + length] == tokens[-length:]
        ]
        if places and length < len(tokens):
            return tokens[max(places) + length :][:num_draft]
    return []


def test_prompt_lookup_at_random():
    draw = random.Random(0)
    for _ in range(300):
        tokens = [draw.randrange(3) for _ in range(draw.randint(0, 12))]
        options = (draw.randint(1, 5), draw.randint(1, 4), 1)
        assert prompt_lookup(tokens, *options) == by_definition(tokens, *options)


def test_accept():
    assert accept([], [7]) == [7]
    assert accept([5, 6], [5, 6, 7]) == [5, 6, 7]
    assert accept([5, 6, 9], [5, 8, 9, 1]) == [5, 8]


def test_kept_tokens_of_a_round():
    assert Round([5, 6, 9], [5, 8]).kept == 1
    assert Round([5, 6], [5, 6]).kept == 2  # cut off after an end token that was drafted
    assert Round([], [4]).kept == 0


def drafters(wanted):
    """Drafts that are right, wrong, right up to a point, random, none, or looked up."""
    draw = random.Random(1)

    def right(tokens):
        return wanted[len(tokens) : len(tokens) + 4]

    return {
        "right": right,
        "wrong": lambda tokens: [(t + 1) % 384 for t in right(tokens)],
        "mixed": lambda tokens: [t if draw.random() < 0.7 else 5 for t in right(tokens)],
        "none": lambda tokens: [],
        "lookup": prompt_lookup,
    }


@pytest.mark.parametrize("drafter", ["right", "wrong", "mixed", "none", "lookup"])
@pytest.mark.parametrize("length", [1, 16, 40])
def test_the_text_is_that_of_plain_decoding(untied_model, drafter, length):
    model = load_model(untied_model)
    prompt = [3 + i % 7 for i in range(length)]
    params = SamplingParams(temperature=0.0, max_tokens=24)
    plain = recompute(model, prompt, params)
    draft = drafters(prompt + plain)[drafter]
    got, rounds = speculate(Verifier(model, length + 24), prompt, 24, draft)
    assert got == plain
    assert [token for r in rounds for token in r.accepted] == plain
    if drafter == "right":
        assert len(rounds) == -(-len(plain) // 5)
    if drafter in ("wrong", "none"):
        assert len(rounds) == len(plain)


def test_a_text_is_cached_in_the_dtype_of_the_engine(tiny_model):
    """Weights in groups go with keys and values in float16, whose rounding moves the logits."""
    prompt, params = list(range(3, 20)), SamplingParams(temperature=0.0, max_tokens=12)
    llm = LLM(tiny_model, device="cpu", dtype="q8_0", num_blocks=8)
    verifier = Verifier(load_model(tiny_model, "q8_0"), 40)
    cached = {pool.dtype for pool in verifier.cache.key_pools + verifier.cache.value_pools}
    assert cached == {pool.dtype for pool in llm.engine.kv.key_pools} == {torch.float16}
    got, _ = speculate(verifier, prompt, 12, prompt_lookup)
    assert got == llm.generate([prompt], params)[0].token_ids


def test_an_end_token_ends_the_text(untied_model):
    model = load_model(untied_model)
    prompt = list(range(3, 20))
    plain = recompute(model, prompt, SamplingParams(temperature=0.0, max_tokens=12))
    end = plain[5]
    object.__setattr__(model.config, "eos_token_ids", (end,))
    want = plain[: plain.index(end) + 1]
    for drafter in drafters(prompt + plain).values():
        assert speculate(Verifier(model, 40), prompt, 12, drafter)[0] == want


def test_a_text_that_is_too_long_for_its_cache_is_told_so(untied_model):
    model = load_model(untied_model)
    assert len(Verifier(model, 20).choose(range(15), [1] * 5)) == 6
    with pytest.raises(ValueError, match="max_tokens is 20, but the text and its draft have 21"):
        Verifier(model, 20).choose(range(16), [1] * 5)
    with pytest.raises(ValueError, match="max_tokens must be at least 1, got 0"):
        Verifier(model, 0)
