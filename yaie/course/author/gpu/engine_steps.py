"""Decode steps of the engine, and the time to its first token.

A step is launched kernel by kernel and as a CUDA graph, and compared with the time to read all
weights and all keys and values once, at the rate of a copy on the same device. The first token
comes with and without a cached prefix, where steps with parts of prompts are launched and where
they are graphs. Weights are random; the prompts of decoding requests are in the cache already.
"""

import argparse
import statistics
from collections import Counter
from pathlib import Path
from unittest import mock

import torch
from torch.profiler import ProfilerActivity, profile

from yaie.bench import ceilings, files
from yaie.bench.drawn import LLAMA_8B, random_model
from yaie.bench.machine import head
from yaie.bench.protocol import CudaClock, InARow, clock_for
from yaie.course.lessons.costs import kv_bytes_per_token
from yaie.engine import graphs
from yaie.engine.config import EngineConfig
from yaie.engine.engine import Engine
from yaie.engine.params import SamplingParams
from yaie.model.batch import Batch
from yaie.model.config import ModelConfig
from yaie.model.llama import Llama

SMALL = ModelConfig(
    vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30,
    num_attention_heads=9, num_key_value_heads=3, head_dim=64, max_position_embeddings=8192,
    rope_theta=100000.0, tie_word_embeddings=True,
)  # fmt: skip
LARGE = ModelConfig.from_dict(LLAMA_8B)
CASES = {  # requests, and tokens of each
    "small": (SMALL, [(1, 512), (8, 512), (64, 512), (64, 2048)]),
    "large": (LARGE, [(1, 512), (1, 4096), (8, 4096), (32, 4096)]),
}
WAYS = {
    "graph": {},
    "eager": {"enforce_eager": True},
    "eager, one after the other": {"enforce_eager": True, "overlap": False},
}
BLOCK_SIZE, STEPS = 16, 40


class Wordless:
    """Stands in for a tokenizer: every token is an x."""

    eos_token_id = None
    joins_bytes = False

    def decode(self, token_ids, **_) -> str:
        return "x" * len(token_ids)

    def leaves_out(self, *_, **__) -> bool:
        return False


def decode_batch(model: Llama, size: int, context: int) -> tuple[Batch, list[list[torch.Tensor]]]:
    """A decode step of `size` sequences without an engine, its caches full of random numbers."""
    blocks, config, device = context // BLOCK_SIZE, model.config, model.embed.device
    shape = (size * blocks, BLOCK_SIZE, config.num_key_value_heads, config.head_dim)
    pools = [
        [torch.randn(shape, device=device, dtype=model.dtype) for _ in model.layers] for _ in "kv"
    ]
    tables = torch.randperm(size * blocks, device=device).view(size, blocks)
    whole = torch.full((size,), context, device=device)
    batch = Batch(
        token_ids=torch.arange(size, device=device), positions=whole - 1,
        slot_mapping=tables[:, -1] * BLOCK_SIZE + BLOCK_SIZE - 1, block_tables=tables.int(),
        context_lens=whole.int(), cu_seqlens=torch.arange(size + 1, device=device).int(),
        logit_rows=torch.arange(size, device=device),
    )  # fmt: skip
    return batch, pools


def run(names: list[str], output: Path | None, only: int | None = None) -> dict:
    """Measure models of these names; what is known is saved after each row.

    Args:
        only: measure decode steps of this many requests, and nothing else.
    """
    device = torch.device("cuda")
    record = head(device) | {"steps": [], "first token": []}
    copy = ceilings.measure(device, torch.bfloat16, clock_for(device), quick=False).copy

    def add(section: str, row: dict) -> None:
        record[section].append(row)
        print(row, flush=True)
        if output is not None:
            files.save(record, output)

    for name in names:
        config, cases = CASES[name]
        model = random_model(config, "bfloat16", device)
        for batch, context in cases:
            if only not in (None, batch):
                continue
            row = {"model": name, "batch": batch, "context": context}
            add("steps", row | measure(model, batch, context, round(copy, 1)))
        for sizes in ((1,), graphs.PROMPT_TOKENS) if only is None else ():
            with mock.patch.object(graphs, "PROMPT_TOKENS", sizes):
                add("first token", {"model": name, "graphs of prompts": sizes} | first_token(model))
        del model
    return record


def measure(model: Llama, batch: int, context: int, rate: float) -> dict:
    """A decode step in every way, the graph's kernels, and the floor."""
    device, row = model.embed.device, {}
    for way, options in WAYS.items():
        engine = decoding(model, batch, context, **options)
        row[f"{way} ms"] = round(min(InARow(device, STEPS).times(engine.step, 2)), 4)
        if way == "graph":
            row |= replayed(engine, batch)
        del engine
        torch.cuda.empty_cache()
    num_bytes = bytes_of_a_step(model, batch, context)
    floor = num_bytes / rate / 1e6
    if batch == 1:
        for name, by_gemv in (("operator by operator", True), ("torch's products", False)):
            row[name] = one_by_one(model, context, by_gemv)
    return row | {
        "copy GB/s": rate,
        "GB": round(num_bytes / 1e9, 3),
        "floor ms": round(floor, 4),
        "gpu over floor": round(row["gpu ms"] / floor, 3),
        "step over floor": round(row["graph ms"] / floor, 3),
        "eager over graph": round(row["eager ms"] / row["graph ms"], 2),
    }


def one_by_one(model: Llama, context: int, by_gemv: bool) -> dict:
    """Time a decode step of one request in which no kernel computes several operators, and list its
    kernels. Torch computes the products unless `by_gemv`."""
    linears = [linear for linear in model.linears() if linear.by_gemv]
    for linear in linears:
        linear.by_gemv = by_gemv
    with mock.patch.object(Llama, "_is_own", lambda *_: False):
        found = replayed(decoding(model, 1, context), 1)
    for linear in linears:
        linear.by_gemv = True
    torch.cuda.empty_cache()
    return found


def replayed(engine: Engine, batch: int) -> dict:
    """Time the graph of a decode step of `batch` requests, and list its kernels."""
    sizes = {g.shape.tokens: g for g in engine.runner.graphs if g.shape.is_decode}
    times = CudaClock(engine.device, warm=True).times(sizes[batch].replay, 20)
    return {"gpu ms": round(statistics.median(times), 4), "kernels": launches(sizes[batch])}


def decoding(model: Llama, batch: int, context: int, **options) -> Engine:
    """An engine with `batch` requests that have `context` tokens each, and decode."""
    engine = Engine(
        *(model, Wordless()),
        EngineConfig(
            num_blocks=batch * (context // BLOCK_SIZE + 8),
            block_size=BLOCK_SIZE,
            max_num_seqs=batch,
            max_model_len=context + 8 * BLOCK_SIZE,
            **options,
        ),
    )
    for pool in (*engine.kv.key_pools, *engine.kv.value_pools):
        pool.normal_()
    params = SamplingParams(temperature=0.0, max_tokens=10**6, ignore_eos=True)
    for i in range(batch):
        prompt = [(i + n) % 1000 for n in range(context)]
        blocks = engine.kv.pool.allocate(context // BLOCK_SIZE)
        engine.cache.insert(prompt, blocks)
        engine.kv.pool.release(blocks)
        engine.add_request([*prompt, 7], params)
    for _ in range(4):
        engine.step()
    assert len(engine.scheduler.running) == batch
    assert all(request.is_decoding for request in engine.scheduler.running)
    return engine


def first_token(model: Llama, length: int = 4000, own: int = 16) -> dict:
    """Milliseconds to the first token of a prompt: alone, and after one that shares all but its
    last `own` tokens."""
    engine = Engine(model, Wordless(), EngineConfig(num_blocks=1024, max_num_seqs=8))
    shared = [n % 997 for n in range(length - own)]
    times: dict[str, list[float]] = {"cold": [], "cached": []}
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


def launches(graph) -> list[list]:
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


def bytes_of_a_step(model: Llama, batch: int, context: int) -> int:
    """Weights, without the rows of the embedding that are not looked up, and keys and values."""
    config = model.config
    weights = sum(p.nbytes for p in model.parameters())
    if not config.tie_word_embeddings:
        weights -= model.embed.nbytes
    return weights + batch * context * kv_bytes_per_token(config, model.dtype.itemsize)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="*", choices=[*CASES, []], help="default: all")
    parser.add_argument("--output", type=files.output_path, help="a JSON file")
    parser.add_argument("--only", type=int, help="only decode steps of this many requests")
    given = parser.parse_args()
    run(given.models or [*CASES], given.output, given.only)
