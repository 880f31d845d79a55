"""Tensor parallelism on two GPUs: `python -m yaie.course.author.gpu.two_gpus`.

    python tests/tiny.py build/tiny && python -m yaie.course.author.gpu.two_gpus --model build/tiny

First an engine on one GPU and an engine on two give the same greedy tokens in float32. Then steps
of a model with the sizes of Llama 3.1 8B and random weights, in bfloat16, on one GPU and on two:
launched kernel by kernel, and as a CUDA graph that holds the sends as well; and the all-reduce
alone. Last, a rank that dies is an error within seconds. The status is 1 if anything is wrong.

With `--device cpu` the same runs in processes on a CPU, at sizes that mean nothing.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
import traceback
from pathlib import Path

import torch
from torch import distributed as dist

from yaie.bench import files
from yaie.bench.machine import head
from yaie.bench.protocol import InARow, captured
from yaie.course.author.gpu.engine_steps import LARGE, decode_batch
from yaie.course.lessons.capture import capture_on_gpu
from yaie.engine.llm import LLM
from yaie.engine.ranks import RankFailed, Ranks
from yaie.engine.sampling import SamplingParams
from yaie.model.config import ModelConfig
from yaie.model.llama import Llama
from yaie.model.parallel import own_shard

SHAPES = [(1, 1024), (32, 4096)]  # sequences, and tokens of each
TINY = ModelConfig(
    vocab_size=64, hidden_size=64, intermediate_size=64, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, head_dim=16, max_position_embeddings=8192,
)  # fmt: skip
ROUNDS, STEPS = 5, 10
SENT_KIB = [8, 64, 256, 1024, 8192, 65536]
OPTIONS = {"dtype": "float32", "num_blocks": 512, "max_num_seqs": 16}
PROMPTS = [[5, 6, 7], [9] * 40, [5, 6, 7, 8, 200], [300], list(range(3, 90))] * 3
PARAMS = SamplingParams(temperature=0.0, max_tokens=32, ignore_eos=True)


def same_tokens(record: dict, device: str, model: str) -> None:
    """Greedy tokens of an engine on one GPU and of one on two, in float32."""
    found = record.setdefault("correctness", {})
    for name, eager in (("eager", True), ("graphs", False)):
        tokens = {}
        for size in (1, 2):
            llm = LLM(
                model, device=device, **OPTIONS, enforce_eager=eager, tensor_parallel_size=size
            )
            tokens[size] = [output.token_ids for output in llm.generate(PROMPTS, PARAMS)]
            llm.close()
            del llm
        different = [n for n, (a, b) in enumerate(zip(*tokens.values(), strict=True)) if a != b]
        found[f"same tokens, {name}"] = not different
        record["faults"] += [f"{name}: prompt {number} differs" for number in different]


def dead_rank(record: dict, device: str, model: str) -> None:
    """How soon it is noticed that a rank has died."""
    found = record.setdefault("correctness", {})
    llm = LLM(model, device=device, **OPTIONS, tensor_parallel_size=2)
    llm.generate(PROMPTS[:1], PARAMS)
    llm.engine.ranks.post(os._exit, 9)
    begun = time.perf_counter()
    try:
        llm.generate(PROMPTS, PARAMS)
        record["faults"].append("it was not noticed that a rank had died")
    except RankFailed as failed:
        found["dead rank"] = str(failed).splitlines()[:2]
    found["seconds until a dead rank is noticed"] = round(time.perf_counter() - begun, 2)
    llm.close()


# --------------------------------------------------------------------------- in each rank


def decode_steps() -> dict:
    """Milliseconds of decode steps on this rank, by shape; the weights are made once."""
    torch.manual_seed(0)
    shard, on_gpu = own_shard(), torch.cuda.is_available()
    device = torch.device("cuda", shard.rank) if on_gpu else torch.device("cpu")
    config = LARGE if on_gpu else TINY
    model = Llama(config, torch.bfloat16, device, shard=shard)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=weight.shape[-1] ** -0.5)
    weights = sum(w.nbytes for w in model.parameters()) - model.embed.nbytes
    found = {"weights read, bytes": weights, "steps": []}
    for batch_size, context in SHAPES if on_gpu else [(2, 32)]:
        batch, pools = decode_batch(model, batch_size, context)

        @torch.inference_mode()
        def step(model=model, batch=batch, pools=pools):
            return model(batch, *pools)

        eager, replay, logits = step().clone(), step, None
        if on_gpu:
            logits, replay = capture_on_gpu(step)
            with torch.inference_mode():
                logits.fill_(torch.nan)
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
        logits = replay = step = pools = batch = None
        if on_gpu:
            torch.cuda.empty_cache()
    return found


def time_of(step) -> float:
    """Milliseconds a step, the median of some rounds that all ranks begin together."""
    for _ in range(3):
        step()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    clock = InARow(device, STEPS, before=dist.barrier)
    return round(statistics.median(clock.times(step, ROUNDS)), 4)


def all_reduces() -> list[dict]:
    """Microseconds of an all-reduce by its size, alone and within a graph of 64."""
    found, device = [], torch.device("cuda", torch.cuda.current_device())
    for kib in SENT_KIB:
        x = torch.zeros(kib * 512, dtype=torch.bfloat16, device=device)
        dist.all_reduce(x)
        replay = captured(lambda x=x: dist.all_reduce(x), device, 64)
        alone, together = time_of(lambda x=x: dist.all_reduce(x)), time_of(replay) / 64
        found.append({"KiB": kib, "us": round(alone * 1e3, 2), "in_graph_us": together * 1e3})
    return found


# --------------------------------------------------------------------------- all of it


def decode(record: dict, device: str, model: str) -> None:
    """Steps on one GPU and on two, and the all-reduce between two."""
    found = record.setdefault("decode", {})
    for size in (1, 2) if record["machine"]["gpus"] > 1 else (1,):
        with Ranks(size, device=device, timeout=240.0) as ranks:
            found[str(size)] = ranks.run(decode_steps)[0]
            if size == 2 and device == "cuda":
                record["all_reduce"] = ranks.run(all_reduces)[0]


PARTS = {"tokens": same_tokens, "times": decode, "dead": dead_rank}


def run(model: str | None, device: str, only: str | None, output: Path | None) -> dict:
    """Measure these parts, saved after each; `faults` in the record are what is wrong."""
    kept = None if output is None else files.output_path(output)
    gpus = torch.cuda.device_count() if device == "cuda" else 2
    record = head(torch.device(device)) | {"faults": []}
    record["machine"]["gpus"] = gpus
    if device == "cuda":
        record["versions"]["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    record["NCCL_NVLS_ENABLE"] = os.environ.get("NCCL_NVLS_ENABLE")
    record["model"] = "the sizes of Llama 3.1 8B, random weights, bfloat16"
    if gpus < 2:
        record["faults"].append("there is one GPU here: nothing is compared")
    for name in (only or ",".join(PARTS)).split(","):
        if name != "times" and model is None:
            record["faults"].append(f"{name}: a model is wanted")
        elif gpus > 1 or name == "times":
            begun = time.monotonic()
            try:
                PARTS[name](record, device, model)
            except Exception as error:  # the other parts are worth as much
                traceback.print_exc()
                record["faults"].append(f"{name}: {type(error).__name__}: {error}")
            if kept is not None:
                files.save(record, kept)
            print(f"{name}: {time.monotonic() - begun:.0f} s", flush=True)
    return record


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", help="a folder, for tokens and dead: tests/tiny.py makes one")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--only", help=f"some of {','.join(PARTS)}")
    parser.add_argument("--output", type=Path, help="a JSON file")
    given = parser.parse_args()
    # What the ranks import, so that they find its functions.
    from yaie.course.author.gpu import two_gpus as own

    found = own.run(given.model, given.device, given.only, given.output)
    print("\n".join(f"FAULT: {fault}" for fault in found["faults"]))
    sys.exit(1 if found["faults"] else 0)
