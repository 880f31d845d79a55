"""A decode step of a small model, launched kernel by kernel and as one CUDA graph.

The model has the sizes of SmolLM2-135M and random weights: what is measured is launches and time.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from yaie.bench.drawn import random_model
from yaie.bench.protocol import Call, InARow
from yaie.course.author.gpu.engine_steps import SMALL, decode_batch

CONTEXT = 512
BATCHES = (1, 8, 64)
DEVICE = torch.device("cuda")


class Decode:
    """A batch that decodes: each step feeds the token it found to the next."""

    def __init__(self, size: int) -> None:
        self.model = random_model(SMALL, torch.bfloat16, DEVICE)
        self.batch, self.pools = decode_batch(self.model, size, CONTEXT)

    @torch.inference_mode()
    def step(self) -> None:
        logits = self.model(self.batch, *self.pools)
        self.batch.token_ids.copy_(logits.argmax(dim=-1))

    def tokens_of(self, steps: int, step) -> list[list[int]]:
        self.batch.token_ids.copy_(torch.arange(len(self.batch.token_ids)))
        found = []
        for _ in range(steps):
            step()
            found.append(self.batch.token_ids.tolist())
        return found


def time_of(step: Call) -> dict[str, float]:
    """Milliseconds a step takes, and those that the CPU is busy with asking for it."""
    clock = InARow(DEVICE, each=30)
    whole = clock.times(step, 7)
    return {"ms": statistics.median(whole), "cpu_ms": statistics.median(clock.asking)}


def trace(step) -> tuple[list[dict], list[dict]]:
    """The profiler's events of three steps, and its operators by the time that they cost."""
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as found:
        for _ in range(3):
            step()
            torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as home:
        path = Path(home, "trace.json")
        found.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    averages = [e for e in found.key_averages() if e.key.startswith(("aten::", "yaie::"))]
    averages.sort(key=lambda e: -e.self_cpu_time_total)
    operators = [
        {"name": e.key, "calls": e.count // 3, "cpu_us": round(e.self_cpu_time_total / 3, 1),
         "gpu_us": round(e.device_time_total / 3, 1)}
        for e in averages[:14]
    ]  # fmt: skip
    return events, operators


def summarize(events: list[dict]) -> dict:
    """Of the last step: its kernels and their time, what the CPU asked for, all on a time axis."""
    work = [e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    work = sorted(work, key=lambda e: e["ts"])[-len(work) // 3 :]
    asked = [e for e in events if e.get("cat") in ("cuda_runtime", "cuda_driver")]
    asked = {e["args"]["correlation"]: e for e in asked if "correlation" in e.get("args", {})}
    asked = [asked[e["args"]["correlation"]] for e in work]
    zero = asked[0]["ts"]
    kernels, times = Counter(), Counter()
    for event in work:
        kernels[event["name"]] += 1
        times[event["name"]] += event["dur"]
    return {
        "kernels": len(work), "launches": len({call["ts"] for call in asked}),
        "calls": dict(Counter(name for name, _ in {(call["name"], call["ts"]) for call in asked})),
        "busy_us": round(sum(times.values()), 1),
        "from_first_to_last_us": round(work[-1]["ts"] + work[-1]["dur"] - work[0]["ts"], 1),
        "most": [{"name": name[:100], "count": kernels[name], "us": round(us, 1)}
                 for name, us in times.most_common(12)],
        "names": [event["name"].removeprefix("void ")[:40] for event in work[:14]],
        "events": [  # begins, takes, was asked for at, which took
            [round(x, 1) for x in (e["ts"] - zero, e["dur"], call["ts"] - zero, call["dur"])]
            for e, call in zip(work, asked, strict=True)
        ],
    }  # fmt: skip


def measure() -> dict:
    """Counts and times of both ways, for several batches; a timeline and a table for the first."""
    warnings.simplefilter("ignore")
    found = {"context": CONTEXT, "model": "SmolLM2-135M's sizes, bfloat16, random weights",
             "batches": {}}  # fmt: skip
    for size in BATCHES:
        decode = Decode(size)
        for _ in range(3):
            decode.step()
        torch.cuda.synchronize()
        begun = time.perf_counter()
        graph = torch.cuda.CUDAGraph()
        with torch.inference_mode(), torch.cuda.graph(graph):
            decode.step()
        torch.cuda.synchronize()
        capturing = time.perf_counter() - begun
        held = sum(part["total_size"] for part in torch.cuda.memory_snapshot()
                   if part["segment_pool_id"] == graph.pool())  # fmt: skip
        same = decode.tokens_of(20, decode.step) == decode.tokens_of(20, graph.replay)
        assert same, "the graph finds other tokens"
        row = {"capture_ms": round(1e3 * capturing, 1), "capture_MiB": held >> 20}
        for way, step in (("eager", decode.step), ("graph", graph.replay)):
            events, operators = trace(step)
            summary = summarize(events)
            if size != BATCHES[0]:
                for key in ("events", "names", "most"):
                    del summary[key]
            elif way == "eager":
                found["operators"] = operators
            row[way] = time_of(step) | summary
        found["batches"][str(size)] = row
        print(size, {way: round(row[way]["ms"], 3) for way in ("eager", "graph")}, flush=True)
        del decode, graph
    decode = Decode(8)
    decode.step()
    counted = {"tensors": "allocation.all.allocated", "cudaMalloc": "num_device_alloc"}
    before = torch.cuda.memory_stats()
    for _ in range(100):
        decode.step()
    after = torch.cuda.memory_stats()
    found["allocations of 100 steps"] = {
        name: after[key] - before[key] for name, key in counted.items()
    }
    return found


# ---------------------------------------------------------------- what may not be captured

LINES = [
    "total = x.sum()",
    "total = x.sum().item()",
    "if x[0] > 0: x = x + 1",
    "positive = x[x > 0]",
    "copy = x.cpu()",
    "y = torch.tensor([1.0, 2.0], device='cuda')",
    "x.copy_(host, non_blocking=True)",
    "x.copy_(pinned, non_blocking=True)",
    "torch.cuda.synchronize()",
    "y = torch.empty(1 << 20, device='cuda')",
    "y = torch.rand(8, device='cuda')",
    "print(x)",
    "y = x * length",
]
PROGRAM = """
import json, sys, torch
x, length = torch.randn(8, device="cuda"), 2
host, pinned = torch.zeros(8), torch.zeros(8).pin_memory()
torch.rand(8, device="cuda")
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
try:
    with torch.cuda.graph(graph):
        exec(sys.argv[1])
    graph.replay()
    torch.cuda.synchronize()
    said = None
except Exception as error:
    context = error.__context__ or error
    said = [f"{type(e).__name__}: {str(e).splitlines()[0]}" for e in (context, error)]
print("RESULT", json.dumps(said))
"""


def measure_lines() -> list[dict]:
    """What torch says of each line under capture; None where it may be captured."""

    def attempt(line: str) -> dict:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, line], capture_output=True, text=True, timeout=120
        )
        result = done.stdout.partition("RESULT ")[2]
        said = json.loads(result) if result else [f"died: {done.stderr.strip()[-300:]}"]
        return {"line": line, "said": said}

    with ThreadPoolExecutor(6) as pool:
        return list(pool.map(attempt, LINES))
