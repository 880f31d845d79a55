"""Greedy tokens of the real model equal those of transformers' `generate`, in float32.

What transformers answers to each prompt is kept in `real_answers.json`, which this module writes if
it is run by itself; two prompts are asked again, and all of them with YAIE_ALL_COMBINATIONS=1. The
engine answers for a set of combinations in which every block size meets chunked prefill on and off,
every kind of pool and of company occurs, and prefix hits and preemptions are asserted. Four of them
serve half of the prompts each, so that every prompt meets every block size, and chunked prefill on
and off. YAIE_ALL_COMBINATIONS=1 runs all with all.

A token could only differ by rounding if two logits were nearly equal. The prompts are chosen so
that the best two never are, which `test_margins_are_safe` proves: the smallest gap is above 0.004,
and rounding moves these logits by some 0.0001.
"""

import json
import os
import random
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pytest
import torch
from engines import check_whole, run
from prompts import encoded

from yaie.engine.config import EngineConfig
from yaie.engine.engine import Engine
from yaie.engine.params import SamplingParams
from yaie.model.pull import pull
from yaie.model.tokenizer import Tokenizer
from yaie.model.weights import load_model

pytestmark = [pytest.mark.real_model, pytest.mark.slow]

NUM_TOKENS = 16
GREEDY = SamplingParams(temperature=0.0, max_tokens=NUM_TOKENS)
MARGIN = 1e-3
KEPT = Path(__file__).with_name("real_answers.json")
ALL = os.environ.get("YAIE_ALL_COMBINATIONS") == "1"


@dataclass
class Answer:
    """What transformers says: tokens, and by how much each beats the second best."""

    prompt: list[int]
    tokens: list[int]
    gaps: list[float]


@pytest.fixture(scope="module")
def tokenizer(real_model):
    return Tokenizer(real_model)


@pytest.fixture(scope="module")
def model(real_model):
    return load_model(real_model)


@pytest.fixture(scope="module")
def oracle(real_model):
    return load_oracle(real_model)


def load_oracle(folder: Path):
    transformers = pytest.importorskip("transformers")
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, local_files_only=True
    ).eval()


@pytest.fixture(scope="module")
def answers(tokenizer) -> dict[str, Answer]:
    kept, prompts = json.loads(KEPT.read_text()), encoded(tokenizer)
    assert max(map(len, prompts.values())) > 1000
    return {name: Answer(ids, **kept[name]) for name, ids in prompts.items()}


def ask(oracle, prompts: dict[str, list[int]]) -> dict[str, Answer]:
    """What transformers answers, to prompts of similar length together."""
    groups: list[list[str]] = []  # of similar length, since `generate` pads to the longest
    for name in sorted(prompts, key=lambda name: len(prompts[name])):
        if groups and len(prompts[name]) <= 2 * len(prompts[groups[-1][0]]) + 8:
            groups[-1].append(name)
        else:
            groups.append([name])
    answers = {}
    for names in groups:
        answers |= generate(oracle, {name: prompts[name] for name in names})
    return answers


def generate(oracle, prompts: dict[str, list[int]]) -> dict[str, Answer]:
    """transformers' `generate` on a batch padded on the left."""
    eos = oracle.generation_config.eos_token_id
    width = max(map(len, prompts.values()))
    padding = [width - len(prompt) for prompt in prompts.values()]
    rows = [[eos] * n + prompt for n, prompt in zip(padding, prompts.values(), strict=True)]
    mask = [[0] * n + [1] * (width - n) for n in padding]
    result = oracle.generate(
        torch.tensor(rows),
        attention_mask=torch.tensor(mask),
        max_new_tokens=NUM_TOKENS,
        do_sample=False,
        pad_token_id=eos,
        output_logits=True,
        return_dict_in_generate=True,
    )
    answers = {}
    for row, (name, prompt) in enumerate(prompts.items()):
        tokens = result.sequences[row, width:].tolist()
        tokens = tokens[: tokens.index(eos) + 1] if eos in tokens else tokens
        best = torch.stack([logits[row] for logits in result.logits[: len(tokens)]]).topk(2).values
        answers[name] = Answer(prompt, tokens, (best[:, 0] - best[:, 1]).tolist())
    return answers


def check(answer: Answer, got: list[int], name: str) -> None:
    if got == answer.tokens:
        return
    at = next(i for i, pair in enumerate(zip(got, answer.tokens, strict=False)) if len({*pair}) > 1)
    raise AssertionError(
        f"{name!r}: token {at} is {got[at]}, transformers says {answer.tokens[at]}, "
        f"which it prefers by {answer.gaps[at]:.6f}"
    )


def test_transformers_answers_as_kept(oracle, answers):
    names = list(answers) if ALL else ["chat in turns", "joined emoji"]
    for name, answer in ask(oracle, {name: answers[name].prompt for name in names}).items():
        check(answers[name], answer.tokens, name)
        assert answer.gaps == pytest.approx(answers[name].gaps, abs=MARGIN), name


def test_margins_are_safe(answers):
    gap, name = min((min(answer.gaps), name) for name, answer in answers.items())
    assert gap > MARGIN, f"{name!r} has two logits {gap} apart: choose another prompt"


# ------------------------------------------------------------------------------------ equality


@dataclass(frozen=True)
class Case:
    """How the prompts are served."""

    block_size: int
    chunked: bool
    caching: bool
    tight: bool  # a pool so small that requests are preempted
    alone: bool
    half: int | None = None  # which half of the prompts it serves, or all

    def __str__(self) -> str:
        words = ["chunked" if self.chunked else "whole", "cached" if self.caching else "uncached"]
        words += ["tight"] * self.tight + ["alone" if self.alone else "mixed"]
        return "-".join([str(self.block_size), *words])


COVERING = [
    Case(16, chunked=True, caching=True, tight=False, alone=True),
    Case(16, chunked=False, caching=False, tight=True, alone=False),
    Case(4, chunked=False, caching=True, tight=False, alone=False, half=1),
    Case(4, chunked=True, caching=False, tight=False, alone=False, half=0),
    Case(1, chunked=True, caching=True, tight=True, alone=False, half=0),
    Case(1, chunked=False, caching=True, tight=True, alone=False, half=1),
]
EVERY = [
    Case(size, chunked, caching, tight, alone)
    for size, chunked, caching, tight, alone in product([1, 4, 16], *[[True, False]] * 4)
    if not (tight and alone)  # one request is never preempted
]
CASES = EVERY if ALL else COVERING


@pytest.mark.parametrize("case", CASES, ids=str)
def test_tokens_equal_transformers(model, tokenizer, answers, case):
    names = served(answers, case)
    longest = max(len(answers[name].prompt) for name in names) + NUM_TOKENS
    tokens = longest + 32 if case.tight else 10 * longest
    engine = Engine(
        model,
        tokenizer,
        EngineConfig(
            num_blocks=-(-tokens // case.block_size),
            block_size=case.block_size,
            max_num_seqs=40,
            max_num_batched_tokens=200 if case.chunked else 2048,
            enable_chunked_prefill=case.chunked,
            enable_prefix_caching=case.caching,
        ),
    )
    metrics = serve(engine, answers, names, case.alone)
    assert (sum(m.num_preemptions for m in metrics.values()) > 0) == case.tight
    assert (sum(m.num_cached_tokens for m in metrics.values()) > 0) == case.caching
    if case.caching and not case.tight:  # everything is in the cache now: once more, from there
        metrics = serve(engine, answers, names, alone=False)
        for name in names:
            reusable = (len(answers[name].prompt) - 1) // case.block_size * case.block_size
            assert metrics[name].num_cached_tokens == reusable


def served(answers: dict[str, Answer], case: Case) -> list[str]:
    """The names of the prompts that a case serves, in the order in which they arrive."""
    halves = enumerate(answers)  # by pairs, so that in each some begin alike
    names = [name for i, name in halves if case.half is None or i // 2 % 2 == case.half]
    random.Random(0).shuffle(names)
    if case.tight and "a long story" in names:  # the longest prompt would have the pool to itself
        names.remove("a long story")
    if case.alone:  # each is a run of its own: a quarter of them, and two that begin alike
        names = ["half a story", "half a story and a question", *names[::4]]
    return names


def serve(engine: Engine, answers: dict[str, Answer], names: list[str], alone: bool) -> dict:
    """Answer all prompts, check the tokens, and return the metrics by name."""
    metrics = {}
    for batch in [[name] for name in names] if alone else [names]:
        ids = {name: engine.add_request(answers[name].prompt, GREEDY) for name in batch}
        outputs = run(engine)
        for name, request_id in ids.items():
            check(answers[name], outputs[request_id].token_ids, name)
            metrics[name] = outputs[request_id].metrics
    check_whole(engine)
    return metrics


# ------------------------------------------------------------------------------------ rotary


def test_rotary_tables_are_transformers(model, oracle):
    """Float32 frequencies, float32 angles: to the last bit, over the whole context."""
    positions = torch.arange(model.config.max_position_embeddings).unsqueeze(0)
    cos, sin = oracle.model.rotary_emb(torch.zeros(1, dtype=torch.float32), positions)
    half = model.config.head_dim // 2
    for ours, theirs in ((model.cos, cos[0]), (model.sin, sin[0])):
        assert ours.dtype == torch.float32
        assert torch.equal(theirs[:, :half], theirs[:, half:])
        assert torch.equal(ours, theirs[:, :half])


if __name__ == "__main__":
    folder = pull(progress=False)
    found = ask(load_oracle(folder), encoded(Tokenizer(folder)))
    rows = [
        json.dumps({"tokens": one.tokens, "gaps": [round(gap, 4) for gap in one.gaps]})
        for one in found.values()
    ]
    lines = [f"{json.dumps(name)}: {row}" for name, row in zip(found, rows, strict=True)]
    KEPT.write_text("{\n" + ",\n".join(lines) + "\n}\n")
