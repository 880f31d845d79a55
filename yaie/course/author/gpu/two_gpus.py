"""Tensor parallelism on two GPUs: `python -m yaie.course.author.gpu.two_gpus`.

    python tests/tiny.py build/tiny && python -m yaie.course.author.gpu.two_gpus --model build/tiny

- peers: thousands of all-reduces in each other's memory, of random sizes, with ranks that are late,
  launched one by one and from CUDA graphs, give the same bits as a sum in the order of the ranks;
- sizes: an all-reduce alone, through NCCL and through the memory of peers;
- steps: decode steps and a prompt of a model with the sizes of Llama 3.1 8B and random weights, in
  bfloat16, on one GPU, and on two with NCCL and with the memory of peers: launched kernel by
  kernel, and as a CUDA graph that contains the communication as well;
- tokens: an engine on one GPU and an engine on two give the same greedy tokens in float32;
- dead: when a rank dies, the others raise an error within seconds.

Every row is printed and saved as it comes. The status is 1 if anything is wrong. With
`--device cpu` the same runs in processes on a CPU, at sizes that are too small to time.
"""

import argparse
import os
import subprocess
import sys
import time
import traceback
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch

from yaie.bench import files
from yaie.bench.machine import head
from yaie.course.author.gpu.two_gpus_rank import (
    STEPS,
    WAYS,
    access_of_a_rank,
    count_wrong,
    make_model,
    time_all_reduce,
    time_step,
)
from yaie.engine.llm import LLM
from yaie.engine.params import SamplingParams
from yaie.engine.ranks import RankFailed, Ranks

SENT_KIB = [8, 16, 32, 64, 128, 256, 512, 1024]
OPTIONS = {"dtype": "float32", "num_blocks": 512, "max_num_seqs": 16}
PROMPTS = [[5, 6, 7], [9] * 40, [5, 6, 7, 8, 200], [300], list(range(3, 90))] * 3
PARAMS = SamplingParams(temperature=0.0, max_tokens=32, ignore_eos=True)


class Record:
    """What was found, printed and saved as it comes."""

    def __init__(self, device: str, output: Path | None) -> None:
        self.kept = None if output is None else files.output_path(output)
        self.found: dict[str, Any] = head(torch.device(device)) | {"faults": []}
        self.found["correctness"] = {}

    def add(self, section: str, row: dict) -> None:
        """Add a row to a section."""
        self.found.setdefault(section, []).append(row)
        shown = {name: value for name, value in row.items() if name != "kernels"}
        print(f"{section}: {shown}", flush=True)
        self.save()

    def note(self, name: str, what: Any, fault: bool = False) -> None:
        """Record a fact about correctness, which may be a fault."""
        self.found["correctness"][name] = what
        if fault:
            self.found["faults"].append(f"{name}: {what}")
        print(f"{name}: {what}", flush=True)
        self.save()

    def save(self) -> None:
        """Save all that is known."""
        if self.kept is not None:
            files.save(self.found, self.kept)


def same_tokens(record: Record, device: str, model: str) -> None:
    """Greedy tokens of an engine on one GPU and of one on two, in float32."""
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
        record.note(f"same tokens, {name}", not different, bool(different))


def dead_rank(record: Record, device: str, model: str) -> None:
    """How soon it is noticed that a rank has died."""
    llm = LLM(model, device=device, **OPTIONS, tensor_parallel_size=2)
    llm.generate(PROMPTS[:1], PARAMS)
    llm.engine.ranks.post(os._exit, 9)
    begun = time.perf_counter()
    try:
        llm.generate(PROMPTS, PARAMS)
        record.note("dead rank", "not noticed", fault=True)
    except RankFailed as failed:
        record.note("dead rank", str(failed).splitlines()[:2])
    seconds = round(time.perf_counter() - begun, 2)
    record.note("seconds until a dead rank is noticed", seconds)
    llm.close()


def peers(record: Record, device: str, _: str | None) -> None:
    """Whether ranks have access to each other's memory, and whether their sums are right."""
    with Ranks(2, device=device, timeout=60.0) as ranks:
        access = ranks.run(access_of_a_rank)
        refused = device == "cuda" and any(not able for able, _ in access)
        record.note("peers have access", access, refused)
        wrong = ranks.run(count_wrong, *((60, 40) if device == "cuda" else (1, 4)))
        record.note("wrong all-reduces", wrong, any(wrong))


def sizes(record: Record, device: str, _: str | None) -> None:
    """An all-reduce alone, by size and way."""
    with Ranks(2, device=device, timeout=120.0) as ranks:
        for kib in SENT_KIB if device == "cuda" else SENT_KIB[:1]:
            row = {"KiB": kib}
            for way in WAYS:
                alone, in_graph, normed = ranks.run(time_all_reduce, kib, way)[0]
                row |= {f"{way}, us": alone, f"{way}, us in a graph": in_graph}
                row[f"{way}, with add_rms_norm, us in a graph"] = normed
            record.add("all_reduce", row)


def steps(record: Record, device: str, _: str | None) -> None:
    """Steps of the model on one GPU, and on two in each way."""
    times: dict[str, dict[str, float]] = defaultdict(dict)
    for size in (1, 2) if record.found["machine"]["gpus"] > 1 else (1,):
        with Ranks(size, device=device, timeout=240.0) as ranks:
            weights = ranks.run(make_model)[0]
            for name in STEPS:
                for way in WAYS if size > 1 else ("one GPU",):
                    row = ranks.run(time_step, name, way)[0]
                    times[name][way] = row["graph_ms"]
                    about = {"step": name, "gpus": size, "way": way, "weights, bytes": weights}
                    faster = round(times[name]["one GPU"] / row["graph_ms"], 3)
                    record.add("steps", about | {"times as fast as one GPU": faster} | row)
                    if not row["same on all ranks"]:
                        record.note(f"{name}, {way}", "the ranks differ", fault=True)


PARTS = {"peers": peers, "sizes": sizes, "steps": steps, "tokens": same_tokens, "dead": dead_rank}


def run(model: str | None, device: str, only: str | None, output: Path | None) -> dict:
    """Measure these parts; `faults` in the record are what is wrong."""
    record = Record(device, output)
    found, faults = record.found, record.found["faults"]
    found["machine"]["gpus"] = torch.cuda.device_count() if device == "cuda" else 2
    if device == "cuda":
        found["versions"]["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
        done = subprocess.run(["nvidia-smi", "topo", "-m"], capture_output=True, text=True)
        print(done.stdout, flush=True)
    found["NCCL_NVLS_ENABLE"] = os.environ.get("NCCL_NVLS_ENABLE")
    found["model"] = "the sizes of Llama 3.1 8B, random weights, bfloat16"
    if found["machine"]["gpus"] < 2:
        faults.append("there is one GPU here: nothing is compared")
    for name in (only or ",".join(PARTS)).split(","):
        begun = time.monotonic()
        if name in ("tokens", "dead") and model is None:
            faults.append(f"{name}: a model is needed")
        elif found["machine"]["gpus"] > 1 or name == "steps":
            try:
                PARTS[name](record, device, model)
            except Exception as error:  # the other parts are worth as much
                traceback.print_exc()
                faults.append(f"{name}: {type(error).__name__}: {error}")
            record.save()
            print(f"{name}: {time.monotonic() - begun:.0f} s", flush=True)
        if name == "peers" and faults:
            WAYS.pop("peers")  # the other parts would hang, or be wrong
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", help="a folder, for tokens and dead: tests/tiny.py makes one")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--only", help=f"some of {','.join(PARTS)}")
    parser.add_argument("--output", type=files.output_path, help="a JSON file")
    given = parser.parse_args()
    found = run(given.model, given.device, given.only, given.output)
    print("\n".join(f"FAULT: {fault}" for fault in found["faults"]))
    sys.exit(1 if found["faults"] else 0)
