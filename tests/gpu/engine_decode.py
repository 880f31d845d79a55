"""Decode steps of the engine: eager and from a CUDA graph, and what a graph's time is made of; and
the time to the first token with and without a cached prefix, where steps with parts of prompts are
launched kernel by kernel, and where they are graphs.

Random weights. Those who decode have prompts that are in the prefix cache already. A decode step is
compared with the time to read all weights and all keys and values once, at the rate of a copy on
the same device.

    python tests/gpu/engine_decode.py results.json [small] [large]
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections import Counter
from pathlib import Path
from unittest import mock

import torch
from torch.profiler import ProfilerActivity, profile

from yaie.bench.machine import code, describe, versions
from yaie.engine import graphs
from yaie.engine.config import EngineConfig
from yaie.engine.engine import Engine
from yaie.engine.sampling import SamplingParams
from yaie.model.config import ModelConfig
from yaie.model.weights import random_model

SMALL = ModelConfig(
    vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30,
    num_attention_heads=9, num_key_value_heads=3, head_dim=64, max_position_embeddings=8192,
    rope_theta=100000.0, tie_word_embeddings=True,
)  # fmt: skip
LARGE = ModelConfig(
    vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32,
    num_attention_heads=32, num_key_value_heads=8, head_dim=128, max_position_embeddings=8192,
    rope_theta=500000.0,
)  # fmt: skip
CASES = {
    "small": (SMALL, [(1, 512), (8, 512), (64, 512), (64, 2048)]),
    "large": (LARGE, [(1, 4096), (8, 4096), (32, 4096)]),
}
STEPS = 40


class Wordless:
    """A tokenizer of a model that says nothing."""

    eos_token_id = None

    def decode(self, token_ids, **_) -> str:
        return "x" * len(token_ids)

    def leaves_out(self, *_, **__) -> bool:
        return False


def main(path: str, *sizes: str) -> None:
    device = torch.device("cuda")
    rate = copy_rate(device)
    record = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": describe(device),
        "versions": versions(),
        "code": code(),
        "steps": [],
        "first token": [],
    }
    for name in sizes or CASES:
        config, cases = CASES[name]
        model = random_model(config, "bfloat16", device)
        for batch, context in cases:
            row = {"model": name, "batch": batch, "context": context}
            row |= measure(model, batch, context, rate)
            record["steps"].append(row)
            print({key: value for key, value in row.items() if key != "kernels"})
            for kernel in row["kernels"][:14]:
                print("   ", kernel)
            Path(path).write_text(json.dumps(record, indent=1))
        for sizes_of_prompts in ((1,), graphs.PROMPT_TOKENS):
            row = {"model": name, "graphs of prompts": sizes_of_prompts}
            with mock.patch.object(graphs, "PROMPT_TOKENS", sizes_of_prompts):
                row |= first_token(model)
            record["first token"].append(row)
            print(row, flush=True)
            Path(path).write_text(json.dumps(record, indent=1))
        del model


def measure(model, batch: int, context: int, rate: float) -> dict:
    row = {}
    for way, options in {
        "graph": {},
        "eager": {"enforce_eager": True},
        "eager, one after the other": {"enforce_eager": True, "overlap": False},
    }.items():
        engine = decoding(model, batch, context, **options)
        row[f"{way} ms"] = round(step_ms(engine), 4)
        if way == "graph":
            sizes = {g.shape.tokens: g for g in engine.runner.graphs if g.shape.is_decode}
            graph = sizes[batch]
            row["gpu ms"] = round(graph_ms(graph), 4)
            row["kernels"] = kernels(graph)
        del engine
        torch.cuda.empty_cache()
    num_bytes = bytes_of_a_step(model, batch, context)
    row["copy GB/s"] = rate
    row["GB"] = round(num_bytes / 1e9, 3)
    row["floor ms"] = round(num_bytes / rate / 1e6, 4)
    row["gpu over floor"] = round(row["gpu ms"] / row["floor ms"], 3)
    row["step over floor"] = round(row["graph ms"] / row["floor ms"], 3)
    row["eager over graph"] = round(row["eager ms"] / row["graph ms"], 2)
    return row


def decoding(model, batch: int, context: int, **options) -> Engine:
    """An engine with `batch` requests that have `context` tokens each, and decode."""
    block_size = 16
    per_request = context // block_size + 8
    engine = Engine(
        *(model, Wordless()),
        EngineConfig(
            num_blocks=batch * per_request,
            block_size=block_size,
            max_num_seqs=batch,
            max_model_len=context + 8 * block_size,
            **options,
        ),
    )
    for pool in (*engine.kv.key_pools, *engine.kv.value_pools):
        pool.normal_()
    params = SamplingParams(temperature=0.0, max_tokens=10**6, ignore_eos=True)
    for i in range(batch):
        prompt = [(i + n) % 1000 for n in range(context)]
        blocks = engine.kv.pool.allocate(context // block_size)
        engine.cache.insert(prompt, blocks)
        engine.kv.pool.release(blocks)
        engine.add_request([*prompt, 7], params)
    for _ in range(4):
        engine.step()
    assert len(engine.scheduler.running) == batch
    assert all(request.is_decoding for request in engine.scheduler.running)
    return engine


def first_token(model, length: int = 4000, own: int = 16) -> dict:
    """Milliseconds to the first token of a prompt: alone, and behind one that shares all but its
    last `own` tokens."""
    engine = Engine(
        model, Wordless(), EngineConfig(num_blocks=1024, max_num_seqs=8, max_model_len=8192)
    )
    shared = [n % 997 for n in range(length - own)]
    times = {"cold": [], "cached": []}
    for n in range(6):
        for name in times:
            if name == "cold":
                engine.reset_prefix_cache()
            tail = [(n * 31 + i * (1 + (name == "cold"))) % 997 for i in range(own)]
            request_id = engine.add_request(shared + tail, SamplingParams(max_tokens=1))
            output = None
            while output is None:
                output = next((o for o in engine.step() if o.request_id == request_id), None)
            metrics = output.request.metrics
            times[name].append((metrics.first_token_time - metrics.arrival_time) * 1e3)
            assert (metrics.num_cached_tokens > 0) == (name == "cached")
    found = {f"{name} ms": round(statistics.median(ms[2:]), 3) for name, ms in times.items()}
    ratio = round(found["cold ms"] / found["cached ms"], 2)
    return {"prompt": length, "own": own} | found | {"cold over cached": ratio}


def step_ms(engine: Engine) -> float:
    """Milliseconds of a step in a row of steps, the host's work included."""
    rounds = []
    for _ in range(2):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(STEPS):
            engine.step()
        torch.cuda.synchronize()
        rounds.append((time.perf_counter() - start) / STEPS * 1e3)
    return min(rounds)


def graph_ms(graph) -> float:
    """Milliseconds of the GPU for one replay."""
    times = []
    for _ in range(20):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in "se")
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def kernels(graph) -> list[list]:
    """[microseconds in one replay, launches, name] of each kernel, the longest first."""
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        graph.replay()
        torch.cuda.synchronize()
    time_of, count_of = Counter(), Counter()
    for event in profiler.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            time_of[event.name[:90]] += event.device_time
            count_of[event.name[:90]] += 1
    return [[round(us, 1), count_of[name], name] for name, us in time_of.most_common(20)]


def bytes_of_a_step(model, batch: int, context: int) -> int:
    """Weights, without the rows of the embedding that nobody looks up, and keys and values."""
    config = model.config
    weights = sum(p.nbytes for p in model.parameters())
    if not config.tie_word_embeddings:
        weights -= model.embed.nbytes
    numbers = 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim
    return weights + batch * context * numbers * model.dtype.itemsize


def copy_rate(device: torch.device) -> float:
    """GB/s of a copy, bytes read and written."""
    source = torch.empty(2**31, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    times = []
    for _ in range(20):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in "se")
        start.record()
        target.copy_(source)
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return round(2 * source.nbytes / statistics.median(times) / 1e6, 1)


if __name__ == "__main__":
    main(*sys.argv[1:])
