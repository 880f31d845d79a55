"""`yaie bench serve --soak MINUTES`: does the server's memory grow, or its cache leak?

Eight clients ask without a pause, a tenth of them leave in the middle of an answer, and every
whole answer is compared with transformers'. The memory of the server's processes is noted all the
while; at the end no request may be left, and no block that the prefix cache does not hold.
"""

import asyncio
import random
import re
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from yaie.bench.client import Client
from yaie.bench.oracle import Oracle
from yaie.bench.process import Server, resident_bytes, serving
from yaie.bench.record import Record, Row
from yaie.bench.right import Right
from yaie.bench.workloads import long_prompts, shared_prompts
from yaie.engine.device import choose_device, choose_dtype
from yaie.model.pull import find_model, model_name
from yaie.model.tokenizer import Tokenizer

CLIENTS, OUTPUT = 8, 16
BLOCKS = 96  # few, so that the cache is soon full and evicts from then on
POINTS = 120  # of the series that is kept
GAUGES = ("num_requests_running", "num_requests_waiting", "kv_blocks_in_use", "kv_blocks_cached")


class Leak(RuntimeError):
    """Something was left behind."""


def run(
    model: str | Path,
    minutes: float,
    *,
    device: str = "auto",
    dtype: str = "auto",
    output: str | Path | None = None,
) -> Row:
    """Keep a server busy, and return the record: its memory over time, and what was asked.

    Raises:
        Leak: requests or blocks were left.
        ClientError, WrongAnswer: a request was not answered, or not rightly.
    """
    where = choose_device(device)
    chosen = choose_dtype(dtype, where)
    name = str(chosen).removeprefix("torch.")
    options = ["--num-blocks", str(BLOCKS), "--device", str(where), "--dtype", name]
    subject = {"benchmark": "soak", "model": model_name(model), "dtype": name, "minutes": minutes}
    record = Record(output, subject, where, model)
    tokenizer = Tokenizer(find_model(model))
    right = Right(Oracle(model, chosen, where.type), tokenizer)
    prompts = [long_prompts(24, n, tokenizer.encode)[i] for i, n in enumerate(range(10, 130, 5))]
    prompts += shared_prompts(8, 96, 112, tokenizer.encode)
    right.learn(prompts, OUTPUT)
    with serving(str(model), options) as server:
        soak = _Soak(server, Client(server.url, server.name), prompts)
        row = asyncio.run(soak.run(60 * minutes))
    counts = right.check(*zip(*soak.answers, strict=True), OUTPUT)
    record.add("soak", row | counts)
    return record.content


class _Soak:
    def __init__(self, server: Server, client: Client, prompts: Sequence[list[int]]) -> None:
        self.server, self.client, self.prompts = server, client, prompts
        self.rng = random.Random(0)
        # One of each kind is compared: all of them would be this process's leak.
        self.texts: dict[tuple[int, str], int] = {}
        self.left = 0
        self.memory: list[tuple[float, int]] = []

    @property
    def answers(self) -> list[tuple[list[int], str]]:
        """The different answers to each prompt; one, if all is well."""
        return [(self.prompts[number], text) for number, text in self.texts]

    async def run(self, seconds: float) -> Row:
        """Ask for this many seconds."""
        start = time.perf_counter()
        async with self.client:
            asking = (self._ask_until(start + seconds) for _ in range(CLIENTS))
            await asyncio.gather(self._watch(start, seconds), *asking)
            gauges = await self._idle()
        return {
            "requests": sum(self.texts.values()) + self.left,
            "seconds": round(time.perf_counter() - start),
            "answered": sum(self.texts.values()),
            "left": self.left,
            "gauges": gauges,
            "growth": growth(self.memory),
            "memory": [[round(at, 1), bytes_] for at, bytes_ in self.memory],
        }

    async def _ask_until(self, end: float) -> None:
        while time.perf_counter() < end:
            number = self.rng.randrange(len(self.prompts))
            leaves = self.rng.randrange(1, OUTPUT) if self.rng.random() < 0.1 else None
            answer = await self.client.stream(
                self.prompts[number], OUTPUT, leave_after=leaves, ignore_eos=True
            )
            if leaves is not None:
                self.left += 1
            else:
                key = number, answer.text
                self.texts[key] = self.texts.get(key, 0) + 1

    async def _watch(self, start: float, seconds: float) -> None:
        console = Console(stderr=True)
        for point in range(POINTS):
            await asyncio.sleep(
                max(0.0, start + seconds * (point + 1) / POINTS - time.perf_counter())
            )
            at = time.perf_counter() - start
            self.memory.append((at, resident_bytes(self.server.pid)))
            if point % (POINTS // 10) == 0:
                console.print(
                    f"{at / 60:.1f} min: {sum(self.texts.values())} answers, {self.left} left, "
                    f"{self.memory[-1][1] / 2**20:.1f} MiB",
                    highlight=False,
                )

    async def _idle(self) -> dict[str, float]:
        """The server's gauges when nothing is under way."""
        for _ in range(300):
            page = await self.client.get("/metrics")
            gauges = {
                name: float(re.search(rf"^yaie_{name} (\S+)", page, re.MULTILINE)[1])
                for name in GAUGES
            }
            if not gauges["num_requests_running"] and not gauges["num_requests_waiting"]:
                break
            await asyncio.sleep(0.1)
        if any(gauges[name] for name in GAUGES[:2]):
            raise Leak(f"requests are left although no client is waiting: {gauges}")
        if gauges["kv_blocks_in_use"] != gauges["kv_blocks_cached"]:
            raise Leak(f"blocks are in use that the prefix cache does not hold: {gauges}")
        return gauges


def growth(memory: Sequence[tuple[float, int]]) -> float:
    """Bytes per minute over the second half, by a line through its points. In the first half the
    cache fills, and libraries keep what they once needed."""
    half = memory[len(memory) // 2 :]
    if len(half) < 2:
        raise ValueError(f"memory must have at least 3 points, got {len(memory)}")
    slope = statistics.linear_regression([at / 60 for at, _ in half], [size for _, size in half])
    return round(slope.slope, 1)


def told(row: Row) -> str:
    """A soak in two lines."""
    sizes = [size / 2**20 for _, size in row["memory"]]
    return (
        f"{row['seconds'] / 60:.0f} minutes: {row['answered']} answers, all right; {row['left']} "
        f"clients left early; no request and no block is left\n"
        f"memory {sizes[len(sizes) // 2]:.1f} MiB at half time, {sizes[-1]:.1f} MiB at the end, "
        f"{row['growth'] / 2**20:+.3f} MiB per minute over the second half"
    )
