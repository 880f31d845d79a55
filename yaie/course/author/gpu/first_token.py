"""The time to the first token of a long prompt of the 8B shape, by each kernel for prompts.

Beside it stands what it consists of: the products of all layers by cuBLAS, and the attention of all
layers by the fastest library. The tokens that follow are compared: where the kernels' part, the
first two candidates must be about equally likely. Weights are random, and no step is a graph: this
one is so long that its kernels are launched while others run.

    python -m yaie.course.author.gpu.first_token --output first_token.json
"""

import argparse
import statistics
from pathlib import Path

import torch
from torch.nn import functional as F

from yaie.bench import files
from yaie.bench.cases_attention import prefill
from yaie.bench.drawn import LLAMA_8B, random_model
from yaie.bench.machine import head
from yaie.bench.protocol import CudaClock
from yaie.course.author.gpu.engine_steps import Wordless
from yaie.course.lessons.ladders import left, named
from yaie.engine.config import EngineConfig
from yaie.engine.engine import Engine
from yaie.engine.params import SamplingParams
from yaie.engine.request import TokenLogprob
from yaie.model.config import ModelConfig
from yaie.model.llama import STEP_OPERATORS, Llama
from yaie.ops.registry import choose

LENGTH, STEP, TOKENS, ROUNDS = 8192, 8192, 16, 6
# Of paged_attention. Triton compiles and tunes at its first step, so it comes last.
WAYS = {"Hopper": "cuda_hopper", "mma": "cuda", "Triton": "triton"}


def run(output: Path | None = None, skip: str | None = None, length: int = LENGTH) -> dict:
    """Measure every way, and the parts of a step; what is known is saved and printed after each.

    Args:
        skip: words, separated by commas: ways and libraries with one of them are left out.
    """
    device = torch.device("cuda")
    kept = None if output is None else files.output_path(output)
    config = ModelConfig.from_dict(LLAMA_8B | {"max_position_embeddings": 2 * length})
    model = random_model(config, "bfloat16", device)
    record = head(device) | {"prompt": length, "step": STEP, "ways": {}}
    record |= parts(model, length, skip)
    print({name: record[name] for name in ("products ms", "attention ms", "libraries")}, flush=True)
    answers = {}
    for name, backend in WAYS.items():
        if skip is not None and named(name, skip):
            continue
        model.backends = choose(STEP_OPERATORS, {"paged_attention": backend})
        ms, answers[name] = first_token(model, length)
        record["ways"][name] = {
            "ms": ms,
            "over its parts": ms / (record["products ms"] + record["attention ms"]),
            "departs": departure(answers["Hopper"], answers[name]),
        }
        print(name, record["ways"][name], flush=True)
        if kept is not None:
            files.save(record, kept)
    return record


def first_token(model: Llama, length: int) -> tuple[float, list[TokenLogprob]]:
    """Milliseconds from a request to its first token, and the log-probabilities of its answer."""
    engine = Engine(
        *(model, Wordless()),
        EngineConfig(
            kv_cache_memory_bytes=2 << 30, max_model_len=length + 2 * TOKENS, max_num_seqs=8,
            max_num_batched_tokens=STEP, enforce_eager=True,
        ),
    )  # fmt: skip
    times = []
    for number in range(ROUNDS):
        engine.reset_prefix_cache()
        last = number == ROUNDS - 1
        params = SamplingParams(
            temperature=0.0, max_tokens=TOKENS if last else 1, ignore_eos=True,
            logprobs=2 if last else None,
        )  # fmt: skip
        request_id = engine.add_request([n * 31 % 251 for n in range(length)], params)
        found = None
        while found is None or found.finish_reason is None:
            found = next((o for o in engine.step() if o.request_id == request_id), found)
        metrics = found.request.metrics
        times.append((metrics.first_token_time - metrics.arrival_time) * 1e3)
    return statistics.median(times[1:-1]), found.request.logprobs


def departure(want: list[TokenLogprob], got: list[TokenLogprob]) -> dict | None:
    """Where two answers part, and how far apart the log-probabilities of the two likeliest tokens
    are there, at most; None if they are equal."""
    for place, pair in enumerate(zip(want, got, strict=True)):
        if pair[0].token_id != pair[1].token_id:
            best = [list(one.top.values()) for one in pair]
            return {"token": place, "gap": max(first - second for first, second in best)}
    return None


def parts(model: Llama, length: int, skip: str | None = None) -> dict:
    """Milliseconds of all layers' products by cuBLAS, and of their attention by libraries."""
    config, device = model.config, model.embed.device
    clock = CudaClock(device, warm=True)
    weights = [weight for weight in model.layers.parameters() if weight.dim() == 2]
    widths = {weight.shape[1] for weight in weights}
    inputs = {n: torch.randn(length, n, device=device, dtype=model.dtype) for n in widths}

    def products() -> None:
        for weight in weights:
            F.linear(inputs[weight.shape[1]], weight)

    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    starts = torch.tensor([0, length], dtype=torch.int32, device=device)
    q, k, v = (
        torch.randn(length, n, config.head_dim, device=device, dtype=model.dtype)
        for n in (heads, kv_heads, kv_heads)
    )
    libraries: dict[str, float | str] = {}
    case = left(prefill(1, heads, length, config.head_dim, True, model.dtype), skip)
    for name, prepare in case.peers.items():
        # Only these two take fewer heads of keys than of queries.
        same = 1 if name.startswith(("FlashInfer", "FlashAttention-3")) else heads // kv_heads
        given = (x.repeat_interleave(same, dim=1) for x in (k, v))
        try:
            call = prepare(q, *given, starts, starts, True, None)
            ms = statistics.median(clock.times(call, 10))
        except (ImportError, RuntimeError) as error:
            libraries[name] = str(error)
        else:
            libraries[name] = ms * config.num_hidden_layers
    fastest = min(ms for ms in libraries.values() if not isinstance(ms, str))
    all_products = statistics.median(clock.times(products, 5))
    return {"products ms": all_products, "attention ms": fastest, "libraries": libraries}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=files.output_path, help="a JSON file")
    parser.add_argument("--skip", help="words in names of ways and libraries that may compile")
    given = parser.parse_args()
    run(given.output, given.skip)
