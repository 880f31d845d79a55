"""What a caller waits for the metadata of draft-extend: the call from Python, and the kernel alone.

    python tests/gpu/ratios_metadata.py --out notebooks/data/19_metadata_calls_h200.json

Prints JSON. `call` is the time on the clock of a call among many, one behind the other, so that it
is the processor's or the GPU's, whichever is longer; `kernel` that of a launch among many in a CUDA
graph. The back ends' functions are called, as `yaie.ops` does once it has checked; N is given.
All results are compared with the reference's, into memory that held the least integer.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

from yaie.bench.machine import describe, versions
from yaie.bench.protocol import running_order
from yaie.ops.registry import resolve

OPERATOR = "fill_draft_extend_metadata"
BATCHES = (4, 8, 16, 32, 64, 128, 256, 512, 1024)
TOPK = 2048
LEAST = torch.iinfo(torch.int32).min
Fill = Callable[..., None]


def loop(q, kv, topk, expanded, cached, num_tokens) -> None:
    """A loop over the requests in Python, with its two copies to the host."""
    at = 0
    for new, keys in zip(q.tolist(), kv.tolist(), strict=True):
        seen = torch.arange(keys - new + 1, keys + 1, dtype=torch.int32, device=q.device)
        expanded[at : at + new] = seen.clamp(min=0)
        cached[at : at + new] = seen.clamp(min=0, max=topk)
        at += new


def clock(call: Callable[[], None], count: int) -> float:
    """Microseconds of a call."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(count):
        call()
    torch.cuda.synchronize()
    return 1e6 * (time.perf_counter() - start) / count


def captured(call: Callable[[], None], count: int = 50) -> Callable[[], float]:
    """A function that replays `count` calls, and gives the microseconds of one."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(count):
            call()

    def replay() -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        return 1e3 * start.elapsed_time(end) / count

    return replay


def measure(batch: int, rounds: int) -> dict[str, dict[str, float]]:
    """Medians over rounds of alternating order, by who computed."""
    new = torch.Generator().manual_seed(batch)
    q = torch.randint(1, 9, (batch,), generator=new, dtype=torch.int32)
    kv = q + torch.randint(0, 4096, (batch,), generator=new, dtype=torch.int32)
    total = int(q.sum())
    q, kv = q.cuda(), kv.cuda()
    fills: dict[str, Fill] = {
        "Python, a loop over requests": loop,
        **{who: resolve(OPERATOR, who) for who in ("reference", "triton", "cuda")},
    }
    outputs = [torch.empty(total, dtype=torch.int32, device="cuda") for _ in range(2)]
    wanted = None
    calls = {}
    for who, fill in fills.items():
        for out in outputs:
            out.fill_(LEAST)
        fill(q, kv, TOPK, *outputs, total)
        got = [out.clone() for out in outputs]
        wanted = wanted or got
        if not all(torch.equal(one, other) for one, other in zip(got, wanted, strict=True)):
            raise AssertionError(f"{who} is wrong at batch {batch}")
        calls[who] = lambda fill=fill: fill(q, kv, TOPK, *outputs, total)
    counts = {who: max(5, min(400, int(2e4 / clock(call, 5)))) for who, call in calls.items()}
    graphs = {who: captured(calls[who]) for who in ("triton", "cuda")}
    times: dict[str, dict[str, list[float]]] = {who: {"call": [], "kernel": []} for who in calls}
    for who in running_order(list(calls), rounds):
        times[who]["call"].append(clock(calls[who], counts[who]))
        if who in graphs:
            times[who]["kernel"].append(graphs[who]())
    return {
        who: {kind: statistics.median(values) for kind, values in kinds.items() if values}
        for who, kinds in times.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    device = torch.device("cuda")
    result = {
        "date": datetime.date.today().isoformat(),
        "machine": describe(device),
        "versions": versions(),
        "microseconds": {str(batch): measure(batch, options.rounds) for batch in BATCHES},
    }
    text = json.dumps(result, indent=1)
    print(text)
    if options.out:
        options.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
