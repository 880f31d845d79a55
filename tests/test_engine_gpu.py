"""The engine on a GPU, on the real model: all its ways give the tokens that it gives on a CPU."""

import gc
import random
from itertools import product

import pytest
import torch
from engines import check_whole, run
from prompts import encoded

from yaie import LLM
from yaie.engine.config import EngineConfig
from yaie.engine.engine import Engine
from yaie.engine.params import SamplingParams
from yaie.model.tokenizer import Tokenizer
from yaie.model.weights import load_model

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.real_model,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]
GREEDY = SamplingParams(temperature=0.0, max_tokens=16)


@pytest.fixture(scope="module")
def tokenizer(real_model):
    return Tokenizer(real_model)


@pytest.fixture(scope="module")
def prompts(tokenizer):
    return [*encoded(tokenizer).values()]


@pytest.fixture(scope="module")
def model_of(real_model):
    """Models on the GPU, by dtype and back end; each is loaded once."""
    models = {}

    def get(dtype: str, backend: str):
        if (dtype, backend) not in models:
            models[dtype, backend] = load_model(real_model, dtype, "cuda", backend)
        return models[dtype, backend]

    return get


def answer(engine: Engine, prompts, params=GREEDY) -> list[list[int]]:
    params = [params] * len(prompts) if isinstance(params, SamplingParams) else params
    ids = [engine.add_request(*pair) for pair in zip(prompts, params, strict=True)]
    outputs = run(engine)
    check_whole(engine)
    assert not any(outputs[request_id].error for request_id in ids)
    return [outputs[request_id].token_ids for request_id in ids]


@pytest.fixture(scope="module")
def wanted(real_model, tokenizer, prompts):
    """The tokens on a CPU, which `test_engine_real_model` compares with those of transformers."""
    return answer(Engine(load_model(real_model), tokenizer, EngineConfig(num_blocks=2000)), prompts)


WAYS = {"waits": {"overlap": False}, "overlaps": {}, "eager": {"enforce_eager": True}}


@pytest.mark.parametrize("backend, way", product(["auto", "cuda", "triton"], WAYS))
def test_greedy_tokens_in_float32(model_of, tokenizer, prompts, wanted, backend, way):
    engine = Engine(
        *(model_of("float32", backend), tokenizer),
        EngineConfig(num_blocks=2000, max_num_seqs=40, max_num_batched_tokens=400, **WAYS[way]),
    )
    assert bool(engine.runner.graphs) == (way != "eager")
    assert answer(engine, prompts) == wanted
    assert answer(engine, prompts) == wanted  # from the cache
    engine.reset_prefix_cache()
    assert [answer(engine, [prompt])[0] for prompt in prompts[:8]] == wanted[:8]


def test_greedy_tokens_of_the_reference(model_of, tokenizer, prompts, wanted):
    engine = Engine(model_of("float32", "reference"), tokenizer, EngineConfig(num_blocks=2000))
    assert not engine.runner.graphs  # it reads lengths on the host
    assert answer(engine, prompts) == wanted


def test_preempted_requests_have_the_same_tokens(model_of, tokenizer, prompts, wanted):
    longest = max(map(len, prompts)) + GREEDY.max_tokens
    engine = Engine(
        *(model_of("float32", "auto"), tokenizer),
        EngineConfig(num_blocks=longest // 4 + 9, block_size=4),
    )
    preempt, count = engine.scheduler.preempt, []
    engine.scheduler.preempt = lambda request: (count.append(1), preempt(request))
    assert answer(engine, prompts) == wanted
    assert count


def test_seeds_repeat_in_any_company(model_of, tokenizer, prompts):
    params = [
        SamplingParams(temperature=0.8, top_p=0.9, top_k=40 * (n % 2), seed=n, max_tokens=12)
        for n in range(8)
    ]
    engine = Engine(model_of("float32", "auto"), tokenizer, EngineConfig(num_blocks=2000))
    together = answer(engine, prompts[:8], params)
    engine.reset_prefix_cache()
    alone = [
        answer(engine, [prompt], [p])[0] for prompt, p in zip(prompts[:8], params, strict=True)
    ]
    assert alone == together
    eager = Engine(
        model_of("float32", "auto"),
        tokenizer,
        EngineConfig(num_blocks=2000, enforce_eager=True, overlap=False),
    )
    assert answer(eager, prompts[:8], params) == together


@pytest.mark.parametrize("backend", ["cuda", "triton"])
def test_logits_in_bfloat16(model_of, tokenizer, prompts, backend):
    """Within what bfloat16 does to the reference itself: as far from float32 as that, or half
    as far again."""
    logits = {
        name: prompt_logits(
            Engine(
                model_of(dtype, of), tokenizer, EngineConfig(num_blocks=2000, enforce_eager=True)
            ),
            prompts,
        )
        for name, dtype, of in (
            ("exact", "float32", "reference"),
            ("reference", "bfloat16", "reference"),
            ("ours", "bfloat16", backend),
        )
    }
    error, usual = (
        (logits[name] - logits["exact"]).square().mean().sqrt() for name in ("ours", "reference")
    )
    print(f"{backend}: {error:.4f}, reference {usual:.4f}, of {logits['exact'].std():.2f}")
    assert error < 1.5 * usual


def prompt_logits(engine: Engine, prompts) -> torch.Tensor:
    """The logits after each prompt, `[prompts, vocabulary]`, in the model's dtype."""
    found, run_step = {}, engine.runner.run

    def listen(step, ready, *about):
        logits = run_step(step, ready, *about)
        found.update({r.request_id: x for r, x in zip(ready, logits.clone(), strict=True)})
        return logits

    engine.runner.run = listen
    ids = [engine.add_request(prompt, SamplingParams(max_tokens=1)) for prompt in prompts]
    run(engine)
    return torch.stack([found[request_id] for request_id in ids])


def test_a_step_copies_once_each_way(model_of, tokenizer, prompts):
    engine = Engine(model_of("float32", "auto"), tokenizer, EngineConfig(num_blocks=2000))
    params = SamplingParams(temperature=1.0, top_p=0.9, max_tokens=60, ignore_eos=True)
    for prompt in prompts[:8]:
        engine.add_request(prompt, params)
    for _ in range(20):
        engine.step()
    assert all(request.is_decoding for request in engine.scheduler.running)
    torch.cuda.synchronize()
    kinds = torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[kinds.CPU, kinds.CUDA]) as profile:
        for _ in range(10):
            engine.step()
        torch.cuda.synchronize()
    names = [event.name for event in profile.events() if event.device_type.name == "CUDA"]
    assert sum("Memcpy HtoD" in name for name in names) == 10
    assert sum("Memcpy DtoH" in name for name in names) == 10


def test_nothing_leaks(model_of, tokenizer, prompts):
    """Requests come and go, some are aborted; afterwards as much memory is taken as before."""
    engine = Engine(
        model_of("bfloat16", "auto"), tokenizer, EngineConfig(num_blocks=400, max_num_seqs=16)
    )
    rng, taken = random.Random(0), []
    for _ in range(3):
        open_ids = []
        for _ in range(60):
            params = SamplingParams(
                temperature=rng.choice([0.0, 1.0]), max_tokens=rng.randint(1, 30)
            )
            open_ids.append(engine.add_request(rng.choice(prompts)[:300], params))
            for _ in range(rng.randint(0, 3)):
                engine.step()
            if rng.random() < 0.2:
                engine.abort(rng.choice(open_ids))
        run(engine)
        check_whole(engine)
        gc.collect()
        torch.cuda.synchronize()
        taken.append(torch.cuda.memory_allocated())
    assert taken[1] == taken[2]


def test_the_cache_takes_what_is_left(real_model, monkeypatch):
    """Weights, the largest step and the cache take the fraction of memory that was asked for. What
    other programs use is set to 10 GB, because tests beside this one allocate and free memory."""
    total = torch.cuda.get_device_properties(0).total_memory

    def mem_get_info(_device: object) -> tuple[int, int]:
        return total - 10**10 - torch.cuda.memory_reserved(), total

    monkeypatch.setattr(torch.cuda, "mem_get_info", mem_get_info)
    gc.collect()
    torch.cuda.empty_cache()
    share = 10**10 / total + 0.1
    llm = LLM(real_model, device="cuda", gpu_memory_utilization=share)
    assert (llm.engine.runner.model.dtype, llm.engine.max_model_len) == (torch.bfloat16, 8192)
    [output] = llm.generate("The capital of France is", GREEDY)
    assert "Paris" in output.text
    taken = (10**10 + torch.cuda.memory_reserved()) / total
    assert share - 0.02 < taken < share + 0.02  # CUDA graphs come on top
    with pytest.raises(ValueError, match=r"gpu_memory_utilization .* leaves"):
        LLM(real_model, device="cuda", gpu_memory_utilization=share)
