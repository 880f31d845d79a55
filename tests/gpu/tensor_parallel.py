"""Tensor parallelism on two GPUs: the same tokens as on one, and what a decode step takes.

    python3 tests/gpu/tensor_parallel.py [--output FILE] [--only tokens,times,dead]

First an engine on one GPU and an engine on two give the same greedy tokens in float32. Then steps
of a model with the sizes of Llama 3.1 8B and random weights, in bfloat16, on one GPU and on two:
launched kernel by kernel, and as a CUDA graph that holds the sends as well; and the all-reduce
alone. Last, a rank that dies is an error within seconds. The status is 1 if anything is wrong.

With `--device cpu` the same runs in processes on a CPU, at sizes that mean nothing.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
import traceback
from contextlib import contextmanager
from pathlib import Path

import tensor_parallel as own  # what the ranks import, so that they find its functions
import torch
from report import Report, arguments, chosen
from torch import distributed as dist

from yaie.engine.llm import LLM
from yaie.engine.ranks import RankFailed, Ranks
from yaie.engine.sampling import SamplingParams
from yaie.model.batch import Batch
from yaie.model.config import ModelConfig
from yaie.model.llama import Llama
from yaie.model.parallel import own_shard

CONFIG = ModelConfig(
    vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32,
    num_attention_heads=32, num_key_value_heads=8, head_dim=128, max_position_embeddings=8192,
    rope_theta=500000.0,
)  # fmt: skip
BLOCK_SIZE = 16
SHAPES = [(1, 1024), (32, 4096)]  # sequences, and tokens of each
TINY = ModelConfig(
    vocab_size=64, hidden_size=64, intermediate_size=64, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, head_dim=16, max_position_embeddings=8192,
)  # fmt: skip
ROUNDS, STEPS = 5, 10
SENT_KIB = [8, 64, 256, 1024, 8192, 65536]


# --------------------------------------------------------------------------- correctness


OPTIONS = {"dtype": "float32", "num_blocks": 512, "max_num_seqs": 16}
PROMPTS = [[5, 6, 7], [9] * 40, [5, 6, 7, 8, 200], [300], list(range(3, 90))] * 3
PARAMS = SamplingParams(temperature=0.0, max_tokens=32, ignore_eos=True)


@contextmanager
def model_folder():
    """A model of a few megabytes."""
    sys.path.append(str(Path(__file__).resolve().parents[1]))
    from tiny import make_tiny_model

    with tempfile.TemporaryDirectory() as folder:
        yield make_tiny_model(
            folder, hidden_size=512, intermediate_size=1024, num_hidden_layers=4,
            num_attention_heads=8, num_key_value_heads=4, head_dim=64, tie_word_embeddings=False,
        )  # fmt: skip


def same_tokens(report: Report, device: str) -> None:
    """Greedy tokens of an engine on one GPU and of one on two, in float32."""
    found = report.content.setdefault("correctness", {})
    with model_folder() as model:
        for name, eager in (("eager", True), ("graphs", False)):
            tokens = {}
            for size in (1, 2):
                llm = LLM(
                    model, device=device, **OPTIONS, enforce_eager=eager, tensor_parallel_size=size
                )
                tokens[size] = [output.token_ids for output in llm.generate(PROMPTS, PARAMS)]
                llm.close()
                report.say(f"{name}, {size} ranks: {tokens[size][0][:8]} ...")
                del llm
            pairs = list(zip(tokens[1], tokens[2], strict=True))
            found[f"same tokens, {name}"] = all(one == two for one, two in pairs)
            report.save()
            for number, (one, two) in enumerate(pairs):
                if one != two:
                    at = next(i for i, (a, b) in enumerate(zip(one, two, strict=True)) if a != b)
                    report.fault(f"{name}: prompt {number} differs from token {at} on")


def dead_rank(report: Report, device: str) -> None:
    """How soon it is noticed that a rank has died."""
    found = report.content.setdefault("correctness", {})
    with model_folder() as model:
        llm = LLM(model, device=device, **OPTIONS, tensor_parallel_size=2)
        llm.generate(PROMPTS[:1], PARAMS)
        llm.engine.ranks.post(os._exit, 9)
        begun = time.perf_counter()
        try:
            llm.generate(PROMPTS, PARAMS)
            report.fault("nobody noticed that a rank had died")
        except RankFailed as failed:
            found["dead rank"] = str(failed).splitlines()[:2]
        found["seconds until a dead rank is noticed"] = round(time.perf_counter() - begun, 2)
        report.say(str(found))
        llm.close()


# --------------------------------------------------------------------------- in each rank


def decode_steps() -> dict:
    """Milliseconds of decode steps on this rank, by shape; the weights are made once."""
    torch.manual_seed(0)
    shard, on_gpu = own_shard(), torch.cuda.is_available()
    device = torch.device("cuda", shard.rank) if on_gpu else torch.device("cpu")
    config = CONFIG if on_gpu else TINY
    model = Llama(config, torch.bfloat16, device, shard=shard)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=weight.shape[-1] ** -0.5)
    weights = sum(w.nbytes for w in model.parameters()) - model.embed.nbytes
    found = {"weights read, bytes": weights, "steps": []}
    for batch_size, context in SHAPES if on_gpu else [(2, 32)]:
        batch, pools = make_batch(model, batch_size, context, device)

        @torch.inference_mode()
        def step(model=model, batch=batch, pools=pools):
            return model(batch, *pools)

        eager, replay = step().clone(), step
        if on_gpu:
            graph = torch.cuda.CUDAGraph()
            with torch.inference_mode():
                with torch.cuda.graph(graph):
                    logits = model(batch, *pools)
                logits.fill_(torch.nan)
            replay = graph.replay
            replay()
            far = (logits - eager).square().mean().sqrt() / eager.std()
            assert far < 0.02, f"a replayed step differs by {far:.3g} standard deviations"
        found["steps"].append(
            {
                "batch": batch_size, "context": context,
                "cache read, bytes": 2 * config.num_hidden_layers * pools[0][0].nbytes,
                "eager_ms": time_of(step), "graph_ms": time_of(replay),
            }
        )  # fmt: skip
        graph = logits = replay = step = pools = batch = None
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
    if not torch.cuda.is_available():
        return 0.0
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


def decode(report: Report, device: str, sizes: tuple[int, ...]) -> None:
    """Steps on one GPU and on two, and the all-reduce between two."""
    found = report.content.setdefault("decode", {})
    for size in sizes:
        with Ranks(size, device=device, timeout=240.0) as ranks:
            found[str(size)] = ranks.run(own.decode_steps)[0]
            report.save()
            report.say(f"{size} ranks: {json.dumps(found[str(size)])}")
            if size == 2 and device == "cuda":
                report.content["all_reduce"] = ranks.run(own.all_reduces)[0]
                report.save()
                report.say(json.dumps(report.content["all_reduce"]))


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    given = parser.parse_args()
    about = {
        "NCCL_NVLS_ENABLE": os.environ.get("NCCL_NVLS_ENABLE"),
        "model": "the sizes of Llama 3.1 8B, random weights, bfloat16",
    }
    report = Report(given.out, torch.device(given.device), given.seconds, **about)
    gpus = torch.cuda.device_count() if given.device == "cuda" else 2
    report.content["machine"]["gpus"] = gpus
    if given.device == "cuda":
        report.content["versions"]["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    sizes = (1, 2) if gpus > 1 else (1,)
    if gpus < 2:
        report.fault("there is one GPU here: nothing is compared")
    parts = {
        "tokens": lambda: same_tokens(report, given.device),
        "times": lambda: decode(report, given.device, sizes),
        "dead": lambda: dead_rank(report, given.device),
    }
    for name, part in parts.items():
        if chosen(name, given.only) and (gpus > 1 or name == "times") and report.has_time(name):
            try:
                part()
            except Exception as error:  # the other parts are worth as much
                traceback.print_exc()
                report.fault(f"{name}: {type(error).__name__}: {error}")
            report.save()
    return report.end()


if __name__ == "__main__":
    sys.exit(own.main())
