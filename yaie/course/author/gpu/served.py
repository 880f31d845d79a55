"""What a server costs: its tokens per second beside those of an engine in this process, and what
independent clients see of it.

Closed loops first: both answer the same prompts, alternately, and their answers are compared. Two
texts may differ where two tokens are equally likely, so the record says how many are equal. Where
all answers are equally long, the requests that began together end in the same step, and the next
ones come together: the server has to read many while the engine waits. So further rows
(`--spread`) have answers of half as many to one and a half times as many tokens. Then open loops
(`--arrivals`): requests arrive at parts of the highest rate at which the closed loops
were answered, for a given time, in several runs with other arrivals. The clients are divided among
several processes, since one process would be slower than the server. With `--apart` the clients
run on half of the processor's cores, and the engine and the server on the other half, as if on two
machines: processes that share a core slow each other down.

    python -m yaie.course.author.gpu.served --arrivals 0.5 0.7 0.9 --output served.json
"""

import argparse
import os
import random
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from yaie.bench import files
from yaie.bench.client import Answer, Client, closed_loop, open_loop
from yaie.bench.drive import greedy, run_closed
from yaie.bench.load import figures, in_system, percentile, poisson_arrivals
from yaie.bench.machine import head
from yaie.bench.process import Server, serving
from yaie.bench.workloads import long_prompts
from yaie.course.lessons.load import goodput
from yaie.engine.device import choose_device
from yaie.engine.llm import LLM
from yaie.model.pull import model_name

PROMPT, OUTPUT = 256, 64
SPREAD = OUTPUT // 2, OUTPUT * 3 // 2
EACH = 16  # requests of a client of a closed loop, at most
POOL = 512  # different prompts of the open loops
LIMITS = [(ttft, tpot) for ttft in (0.05, 0.1, 0.2, 0.5, 1.0) for tpot in (0.003, 0.005, 0.01)]


def ask(
    url: str, name: str, prompts: Sequence[list[int]], outputs: Sequence[int], clients: int,
    salt: str,
) -> list[Answer]:  # fmt: skip
    """The answers to prompts, each of a number of tokens, of a process with some of the clients."""
    return closed_loop(Client(url, name), prompts, outputs, clients, salt)


def ask_at(
    url: str, name: str, requests: Sequence[tuple[float, list[int], str]]
) -> list[tuple[Answer, float]]:
    """The answers to requests (time on this machine's clock, prompt, cache salt) of independent
    clients, each with the seconds by which it was sent late. A refused one has an empty answer."""
    return open_loop(Client(url, name), requests, OUTPUT, refuse=True)


@dataclass(frozen=True)
class Clients:
    """Many clients of one server, divided among processes."""

    server: Server
    pool: ProcessPoolExecutor
    workers: int

    def closed(
        self, prompts: Sequence[list[int]], outputs: Sequence[int], at_once: int, salt: str
    ) -> list[Answer]:
        """The answers to prompts, each of a number of tokens, `at_once` of them under way."""
        each = min(self.workers, at_once)
        shares = [
            (prompts[i::each], outputs[i::each], len(range(i, at_once, each)), salt)
            for i in range(each)
        ]
        return merged(self._all(ask, shares))

    def independent(
        self, requests: Sequence[tuple[float, list[int], str]]
    ) -> list[tuple[Answer, float]]:
        """The answers to requests, each sent at its time, with the seconds by which it was late."""
        start = time.perf_counter() + 1.0  # until all processes have their requests
        due = [(start + at, prompt, salt) for at, prompt, salt in requests]
        return merged(self._all(ask_at, [(due[i :: self.workers],) for i in range(self.workers)]))

    def _all(self, function: Callable, shares: Sequence[tuple]) -> list[list]:
        own = (self.server.url, self.server.name)
        return [
            future.result() for future in [self.pool.submit(function, *own, *s) for s in shares]
        ]


def halves() -> tuple[set[int], set[int]]:
    """The numbers of this process's logical processors, in two sets that share no core."""
    cores: dict[str, set[int]] = {}
    for cpu in sorted(os.sched_getaffinity(0)):
        topology = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology")
        cores.setdefault((topology / "thread_siblings_list").read_text(), set()).add(cpu)
    if len(cores) < 2:
        raise ValueError("--apart needs two cores, got one")
    parts = list(cores.values())
    return set().union(*parts[: len(parts) // 2]), set().union(*parts[len(parts) // 2 :])


def merged(parts: Sequence[list]) -> list:
    """What was dealt out one by one, in its order again."""
    count, each = sum(map(len, parts)), len(parts)
    return [parts[i % each][i // each] for i in range(count)]


def run(
    model: str, clients: Sequence[int], spread: Sequence[int], requests: int, rounds: int,
    arrivals: Sequence[float], seconds: float, runs: int, device: str, workers: int,
    apart: bool = False, output: Path | None = None,
) -> dict:  # fmt: skip
    """Measure engine and server alternately, then the server under independent clients; the record
    is saved after each number of clients and each rate.

    Args:
        clients: of closed loops whose answers have `OUTPUT` tokens.
        spread: of further closed loops, whose answers have a number of tokens from `SPREAD`.
        requests: of a closed loop, or `EACH` of every client if that is less.
        arrivals: rates of open loops, as parts of the highest rate of the closed ones.
        seconds, runs: how long requests arrive in one run of an open loop, and runs at each rate.
        workers: the processes among which the clients are divided.
        apart: whether the clients run on other cores than the engine and the server.
    """
    on_cores = {}
    if apart:
        own, theirs = halves()
        os.sched_setaffinity(0, own)  # the server's processes inherit it
        on_cores = {"initializer": os.sched_setaffinity, "initargs": (0, theirs)}
    where = choose_device(device)
    options = ["--gpu-memory-utilization", "0.8"] if where.type == "cuda" else []
    record = head(where) | {"model": model_name(model), "prompt": PROMPT, "output": OUTPUT}
    record |= {"spread": [*SPREAD], "workers": workers, "apart": apart}
    record |= {"rows": [], "spread rows": [], "arrivals": []}
    llm = LLM(model, device=str(where), **({"gpu_memory_utilization": 0.4} if options else {}))
    encode = llm.tokenizer.encode

    def keep(part: str, row: dict) -> None:
        record[part].append(row)
        if output is not None:
            files.save(record, output)

    with (
        serving(model, ["--device", str(where), *options]) as server,
        ProcessPoolExecutor(workers, get_context("spawn"), **on_cores) as pool,
    ):
        everyone = Clients(server, pool, workers)
        equal, differing = ("rows", clients, (OUTPUT, OUTPUT)), ("spread rows", spread, SPREAD)
        for part, numbers, bounds in (equal, differing):
            for at_once in numbers:
                prompts = long_prompts(min(requests, EACH * at_once), PROMPT, encode)
                draw = random.Random(0)
                outputs = [draw.randint(*bounds) for _ in prompts]
                keep(part, closed_loops(llm, everyone, prompts, outputs, at_once, rounds))
        llm.close()
        most = max(row["server tokens_per_second"] for row in record["rows"]) / OUTPUT
        prompts = long_prompts(POOL, PROMPT, encode)
        for fraction in arrivals:
            keep("arrivals", open_loops(everyone, prompts, fraction * most, seconds, runs))
    return record


def closed_loops(
    llm: LLM, clients: Clients, prompts: Sequence[list[int]], outputs: Sequence[int], at_once: int,
    rounds: int,
) -> dict:  # fmt: skip
    """A row: engine and server with `at_once` requests under way, alternately."""
    row = {"clients": at_once, "requests": len(prompts), "engine": [], "server": []}
    for number in range(rounds + 1):  # the first is not counted
        llm.engine.reset_prefix_cache()
        own = run_closed(llm.engine, prompts, [*map(greedy, outputs)], at_once)
        answers = clients.closed(prompts, outputs, at_once, f"{at_once} {number} {time.time()}")
        texts = [output.text for output in own.outputs]
        same = sum(text == a.text for text, a in zip(texts, answers, strict=True))
        if number == 0:
            continue
        row["engine"].append(figures(own.traces, sum(map(len, own.answers))))
        traces = [answer.trace for answer in answers]
        row["server"].append(figures(traces, tokens_of(answers)) | {"same answers": same})
    row |= compared(row)
    print({n: v for n, v in row.items() if n not in ("engine", "server")}, flush=True)
    return row


def open_loops(
    clients: Clients, prompts: Sequence[list[int]], rate: float, seconds: float, runs: int
) -> dict:
    """A row: the server while requests arrive at a rate, with other arrivals in each run. A prompt
    that is sent again has another cache salt: it is computed again."""
    row = {"rate": rate, "seconds": seconds, "runs": []}
    for number in range(runs):
        times = poisson_arrivals(rate, max(1, round(rate * seconds)), random.Random(number))
        salt, size = f"{rate} {number} {time.time()}", len(prompts)
        requests = [(at, prompts[i % size], f"{salt} {i // size}") for i, at in enumerate(times)]
        answers, late = zip(*clients.independent(requests), strict=True)
        traces = [answer.trace for answer in answers]
        answered = [answer for answer in answers if answer.trace.tokens]
        served = [answer.trace for answer in answered]
        row["runs"].append(
            figures(served, tokens_of(answered))
            | {
                "offered": len(times) / times[-1],
                "refused": len(answers) - len(answered),
                "in_system": in_system(served),
                "late_p99": percentile(late, 99),
                "goodput": [[*limit, goodput(traces, *limit)] for limit in LIMITS],
            }
        )
        print(f"{rate:.0f} requests/s:", row["runs"][-1], flush=True)
    return row


def tokens_of(answers: Sequence[Answer]) -> int:
    """The tokens of all answers, as the server counted them."""
    return sum(answer.usage["completion_tokens"] for answer in answers)


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
    parser.add_argument("--spread", type=int, nargs="*", default=[], help="clients, too")
    parser.add_argument("--requests", type=int, default=2048, help="of a closed loop, at most")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--arrivals", type=float, nargs="*", default=[])
    parser.add_argument("--seconds", type=float, default=60.0, help="of arrivals, in one run")
    parser.add_argument("--runs", type=int, default=3, help="at each rate")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--apart", action="store_true", help="clients on other cores (Linux)")
    parser.add_argument("--output", type=files.output_path)
    run(**vars(parser.parse_args()))
