"""Tensor parallelism on two GPUs: the same tokens as on one, and what a decode step takes.

    python3 tests/gpu/tensor_parallel.py [--output FILE]

First an engine on one GPU and an engine on two give the same greedy tokens in float32, and a rank
that dies is an error within seconds. Then steps of a model with the sizes of Llama 3.1 8B and
random weights, in bfloat16, on one GPU and on two: launched kernel by kernel, and as a CUDA graph
that holds the sends as well. Last, the all-reduce alone.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import tensor_parallel as own  # what the ranks import, so that they find its functions
import torch
from torch import distributed as dist

from yaie.engine.llm import LLM
from yaie.model.batch import Batch
from yaie.model.config import ModelConfig
from yaie.model.llama import Llama
from yaie.model.parallel import own_shard
from yaie.ranks import RankFailed, Ranks
from yaie.sampling import SamplingParams

CONFIG = ModelConfig(
    vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32,
    num_attention_heads=32, num_key_value_heads=8, head_dim=128, max_position_embeddings=8192,
    rope_theta=500000.0,
)  # fmt: skip
BLOCK_SIZE = 16
SHAPES = [(1, 1024), (32, 4096)]  # sequences, and tokens of each
ROUNDS, STEPS = 5, 10
SENT_KIB = [8, 64, 256, 1024, 8192, 65536]


# --------------------------------------------------------------------------- correctness


def same_tokens() -> dict:
    """Greedy tokens of an engine on one GPU and of one on two, float32; then a rank that dies."""
    sys.path.append(str(Path(__file__).resolve().parents[1]))
    from tiny import make_tiny_model

    prompts = [[5, 6, 7], [9] * 40, [5, 6, 7, 8, 200], [300], list(range(3, 90))] * 3
    params = SamplingParams(temperature=0.0, max_tokens=32, ignore_eos=True)
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        model = make_tiny_model(
            folder, hidden_size=512, intermediate_size=1024, num_hidden_layers=4,
            num_attention_heads=8, num_key_value_heads=4, head_dim=64,
        )  # fmt: skip
        options = {"device": "cuda", "dtype": "float32", "num_blocks": 512, "max_num_seqs": 16}
        for eager in (True, False):
            tokens = {}
            for size in (1, 2):
                llm = LLM(model, **options, enforce_eager=eager, tensor_parallel_size=size)
                outputs = llm.generate(prompts, params)
                tokens[size] = [output.token_ids for output in outputs]
                llm.close()
            name = "eager" if eager else "graphs"
            found[f"same tokens, {name}"] = tokens[1] == tokens[2]
            assert tokens[1] == tokens[2], f"{name}: two GPUs give other tokens than one"
        llm = LLM(model, **options, tensor_parallel_size=2)
        llm.generate(prompts[:1], params)
        llm.engine.ranks.post(os._exit, 9)
        begun = time.perf_counter()
        try:
            llm.generate(prompts, params)
        except RankFailed as failed:
            found["dead rank"] = str(failed).splitlines()[:2]
        found["seconds until a dead rank is noticed"] = round(time.perf_counter() - begun, 2)
        llm.close()
    return found


# --------------------------------------------------------------------------- in each rank


def decode_steps() -> dict:
    """Milliseconds of decode steps on this rank, by shape; the weights are made once."""
    torch.manual_seed(0)
    shard = own_shard()
    device = torch.device("cuda", shard.rank)
    model = Llama(CONFIG, torch.bfloat16, device, shard=shard)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.02)
    weights = sum(w.nbytes for w in model.parameters()) - model.embed.nbytes
    found = {"weights read, bytes": weights, "steps": []}
    for batch_size, context in SHAPES:
        batch, pools = make_batch(model, batch_size, context, device)

        @torch.inference_mode()
        def step(model=model, batch=batch, pools=pools):
            return model(batch, *pools)

        eager = step().clone()
        graph = torch.cuda.CUDAGraph()
        with torch.inference_mode(), torch.cuda.graph(graph):
            logits = model(batch, *pools)
        graph.replay()
        torch.testing.assert_close(logits, eager, atol=2e-2, rtol=2e-2)
        found["steps"].append(
            {
                "batch": batch_size, "context": context,
                "cache read, bytes": 2 * CONFIG.num_hidden_layers * pools[0][0].nbytes,
                "eager_ms": time_of(step), "graph_ms": time_of(graph.replay),
            }
        )  # fmt: skip
        del graph, pools, batch
        torch.cuda.empty_cache()
    return found


def make_batch(model, batch_size: int, context: int, device) -> tuple[Batch, list]:
    """A decode step of `batch_size` sequences, the caches full of random numbers."""
    blocks = context // BLOCK_SIZE
    config = model.config
    shape = (batch_size * blocks, BLOCK_SIZE, config.num_key_value_heads, config.head_dim)
    pools = [
        [torch.randn(shape, device=device, dtype=torch.bfloat16)
         for _ in range(config.num_hidden_layers)]
        for _ in "kv"
    ]  # fmt: skip
    tables = torch.randperm(batch_size * blocks, device=device).view(batch_size, blocks)
    whole = torch.full((batch_size,), context, device=device)
    batch = Batch(
        token_ids=torch.arange(batch_size, device=device), positions=whole - 1,
        slot_mapping=tables[:, -1] * BLOCK_SIZE + BLOCK_SIZE - 1, block_tables=tables.int(),
        context_lens=whole.int(), cu_seqlens=torch.arange(batch_size + 1, device=device).int(),
        logit_rows=torch.arange(batch_size, device=device),
    )  # fmt: skip
    return batch, pools


def time_of(step) -> float:
    """Milliseconds a step, the median of some rounds."""
    for _ in range(3):
        step()
    times = []
    for _ in range(ROUNDS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        dist.barrier()
        begin.record()
        for _ in range(STEPS):
            step()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / STEPS)
    return round(statistics.median(times), 4)


def all_reduces() -> list[dict]:
    """Microseconds of an all-reduce by its size, alone and within a graph of 64."""
    found = []
    for kib in SENT_KIB:
        x = torch.zeros(kib * 512, dtype=torch.bfloat16, device="cuda")
        graph = torch.cuda.CUDAGraph()
        dist.all_reduce(x)
        with torch.cuda.graph(graph):
            for _ in range(64):
                dist.all_reduce(x)
        alone = time_of(lambda x=x: dist.all_reduce(x))
        together = time_of(graph.replay) / 64
        found.append({"KiB": kib, "us": round(alone * 1e3, 2), "in_graph_us": together * 1e3})
    return found


# --------------------------------------------------------------------------- all of it


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path)
    parser.add_argument("--only", choices=("tokens", "times"))
    chosen = parser.parse_args()
    record = {
        "machine": {"gpu": torch.cuda.get_device_name(0), "gpus": torch.cuda.device_count()},
        "versions": {
            "torch": torch.__version__, "cuda": torch.version.cuda,
            "nccl": ".".join(map(str, torch.cuda.nccl.version())),
        },
        "date": datetime.date.today().isoformat(),
        "NCCL_NVLS_ENABLE": os.environ.get("NCCL_NVLS_ENABLE"),
        "model": "the sizes of Llama 3.1 8B, random weights, bfloat16",
    }  # fmt: skip
    sizes = (1, 2) if torch.cuda.device_count() > 1 else (1,)
    if chosen.only != "times" and len(sizes) > 1:
        record["correctness"] = same_tokens()
        print(record["correctness"], flush=True)
    if chosen.only != "tokens":
        record["decode"] = {}
        for size in sizes:
            with Ranks(size, device="cuda", timeout=240.0) as ranks:
                record["decode"][size] = ranks.run(own.decode_steps)[0]
                print(size, json.dumps(record["decode"][size]), flush=True)
                if size == 2:
                    record["all_reduce"] = ranks.run(own.all_reduces)[0]
                    print(json.dumps(record["all_reduce"]), flush=True)
    if chosen.output:
        chosen.output.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    own.main()
