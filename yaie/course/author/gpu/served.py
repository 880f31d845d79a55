"""What a server costs: its tokens per second beside those of an engine in this process.

Both answer the same prompts, alternately, and their answers are compared. Two texts may differ
where two tokens are equally likely, so the record says how many are equal. The clients are divided
among several processes, since one process would be slower than the server.

    python -m yaie.course.author.gpu.served --output served.json
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from yaie.bench import files
from yaie.bench.client import Answer, Client, closed_loop
from yaie.bench.drive import greedy, run_closed
from yaie.bench.load import figures
from yaie.bench.machine import head
from yaie.bench.process import serving
from yaie.bench.workloads import long_prompts
from yaie.engine.device import choose_device
from yaie.engine.llm import LLM
from yaie.model.pull import model_name

PROMPT, OUTPUT = 256, 64


def ask(url: str, name: str, prompts: Sequence[list[int]], clients: int, salt: str) -> list[Answer]:
    """The answers to prompts, of a process with some of the clients."""
    return closed_loop(Client(url, name), prompts, [OUTPUT] * len(prompts), clients, salt)


def run(
    model: str, clients: Sequence[int], requests: int, rounds: int, device: str, workers: int,
    output: Path | None = None,
) -> dict:  # fmt: skip
    """Measure engine and server alternately; the record is saved after each number of clients.

    Args:
        requests: per client.
        workers: the processes among which the clients are divided.
    """
    where = choose_device(device)
    options = ["--gpu-memory-utilization", "0.8"] if where.type == "cuda" else []
    record = head(where) | {"model": model_name(model), "prompt": PROMPT, "output": OUTPUT}
    record |= {"workers": workers, "rows": []}
    llm = LLM(model, device=str(where), **({"gpu_memory_utilization": 0.4} if options else {}))
    with (
        serving(model, ["--device", str(where), *options]) as server,
        ProcessPoolExecutor(workers, get_context("spawn")) as pool,
    ):
        for at_once in clients:
            prompts = long_prompts(requests * at_once, PROMPT, llm.tokenizer.encode)
            each = min(workers, at_once)
            shares = [(prompts[i::each], len(range(i, at_once, each))) for i in range(each)]
            row = {"clients": at_once, "requests": len(prompts), "engine": [], "server": []}
            for number in range(rounds + 1):  # the first is not counted
                llm.engine.reset_prefix_cache()
                params = [greedy(OUTPUT)] * len(prompts)
                own = run_closed(llm.engine, prompts, params, at_once)
                salt = f"{at_once} {number} {time.time()}"
                asked = [
                    pool.submit(ask, server.url, server.name, *share, salt) for share in shares
                ]
                parts = [future.result() for future in asked]
                answers = [parts[i % each][i // each] for i in range(len(prompts))]
                texts = [output.text for output in own.outputs]
                same = sum(text == a.text for text, a in zip(texts, answers, strict=True))
                if number == 0:
                    continue
                row["engine"].append(figures(own.traces, sum(map(len, own.answers))))
                counted = sum(answer.usage["completion_tokens"] for answer in answers)
                traces = [answer.trace for answer in answers]
                row["server"].append(figures(traces, counted) | {"same answers": same})
            ratios = compared(row)
            record["rows"].append(row | ratios)
            print({name: row[name] for name in ("clients", "requests")} | ratios, flush=True)
            if output is not None:
                files.save(record, output)
    return record


def compared(row: dict) -> dict[str, float]:
    """The medians of both over the rounds, and the server's divided by the engine's."""

    def median(who: str, figure: str) -> float:
        return statistics.median(one[figure] for one in row[who])

    names = ("tokens_per_second", "itl_p99", "itl_p50", "ttft_p50")
    shown = {f"{who} {name}": median(who, name) for name in names for who in ("engine", "server")}
    return shown | {f"{n} ratio": shown[f"server {n}"] / shown[f"engine {n}"] for n in names}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="SmolLM2-135M-Instruct")
    parser.add_argument("--clients", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--requests", type=int, default=8, help="per client")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--output", type=files.output_path)
    run(**vars(parser.parse_args()))
