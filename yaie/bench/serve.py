"""`yaie bench serve`: what the clients of a server see.

The server is a process of its own; this one is its clients. Times are taken when a piece of an
answer has come through the connection. An answer that is not the model's, as transformers has it,
ends the benchmark. Prompts are token ids, and each case has a cache salt of its own: nothing is
found in the prefix cache that another case left there.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console

from yaie.bench.bench import CPU, FRACTIONS, GPU, open_row
from yaie.bench.client import Answer, Client
from yaie.bench.engine import sections, show
from yaie.bench.load import poisson_arrivals, summarize
from yaie.bench.oracle import Oracle
from yaie.bench.process import Server
from yaie.bench.process import serving as start_server
from yaie.bench.record import Record, Row, rounded, whose
from yaie.bench.right import Right
from yaie.bench.workloads import different_chats, long_prompts, shared_system_chats
from yaie.engine.checks import check_count
from yaie.engine.device import choose_device, choose_dtype
from yaie.model.pull import find_model, model_name
from yaie.model.tokenizer import Tokenizer

Prompt = list[int]


@dataclass(frozen=True)
class Load:
    """How much is asked of the server.

    Attributes:
        prompt, output: tokens of each request.
        at_once: numbers of clients, each of whom asks again when he is answered.
        a_client: requests of each of them.
        requests: of a run with arrivals.
        fractions: of the capacity, the rates of arrivals.
        system, chats, different, rounds: of the comparison with transformers.
    """

    prompt: int
    output: int
    at_once: tuple[int, ...]
    a_client: int
    requests: int
    fractions: tuple[float, ...]
    system: int
    chats: int
    different: int
    rounds: int


QUICK_LOAD = Load(32, 8, (1, 4), 2, 8, (0.5, 1.5), 200, 4, 4, 1)
CPU_LOAD = Load(64, 32, (1, 8, 32, 64), 2, 60, FRACTIONS, CPU.system, CPU.chats, CPU.different, 3)
GPU_LOAD = Load(256, 128, (1, 8, 32, 64), 4, 300, FRACTIONS, GPU.system, 64, 64, 3)


class Clients:
    """Everybody who asks.

    Args:
        client: how to reach the server.
        right: what the answers are compared with.
    """

    def __init__(
        self, client: Client, tokenizer: Tokenizer, right: Right, load: Load, record: Record
    ) -> None:
        self.client, self.tokenizer, self.right = client, tokenizer, right
        self.load, self.record = load, record
        self.console = Console(stderr=True)

    def say(self, words: str) -> None:
        """Show progress."""
        self.console.print(words, highlight=False)

    def closed(
        self, prompts: Sequence[Prompt], output: int, at_once: int, salt: str
    ) -> list[Answer]:
        """Keep so many requests under way."""

        async def run() -> list[Answer]:
            limit = asyncio.Semaphore(at_once)

            async def ask(prompt: Prompt) -> Answer:
                async with limit:
                    return await self._ask(prompt, output, salt)

            async with self.client:
                return await asyncio.gather(*map(ask, prompts))

        return asyncio.run(run())

    def open(
        self, prompts: Sequence[Prompt], output: int, times: Sequence[float], salt: str
    ) -> list[Answer]:
        """Send each request when it is due."""

        async def run() -> list[Answer]:
            start = time.perf_counter() + 0.1

            async def ask(prompt: Prompt, at: float) -> Answer:
                await asyncio.sleep(max(0.0, start + at - time.perf_counter()))
                return await self._ask(prompt, output, salt, start + at)

            async with self.client:
                return await asyncio.gather(*map(ask, prompts, times))

        return asyncio.run(run())

    def _ask(
        self, prompt: Prompt, output: int, salt: str, due: float | None = None
    ) -> Awaitable[Answer]:
        return self.client.stream(prompt, output, due, ignore_eos=True, cache_salt=salt)

    def row(self, case: Row, prompts: Sequence[Prompt], answers: Sequence[Answer]) -> Row:
        """What a run measured, its answers compared."""
        counts = self.right.check(prompts, [answer.text for answer in answers], self.load.output)
        latency = summarize([answer.trace for answer in answers])
        pieces, tokens = latency.tokens, _tokens(answers)
        rate = latency.tokens_per_second * tokens / pieces
        measured = asdict(latency) | {"tokens": tokens, "tokens_per_second": rate, "pieces": pieces}
        return case | measured | counts


def _tokens(answers: Sequence[Answer]) -> int:
    return sum(answer.usage["completion_tokens"] for answer in answers)


# ---------------------------------------------------------------------------- sections


def at_once(clients: Clients) -> None:
    """Clients who ask again when they are answered: 1, 8, 32, 64 of them."""
    load, record = clients.load, clients.record
    for count in load.at_once:
        case = {"at_once": count, "prompt": load.prompt, "output": load.output}
        if record.find("at_once", case):
            continue
        prompts = long_prompts(load.a_client * count, load.prompt, clients.tokenizer.encode)
        clients.say(f"{count} clients, {len(prompts)} requests")
        answers = clients.closed(prompts, load.output, count, f"at once {count}")
        row = clients.row(case, prompts, answers)
        row["finished"] = row["tokens_per_second"] / load.output
        record.add("at_once", rounded(row))


def arrivals(clients: Clients) -> None:
    """Clients who do not wait for each other, at rising rates."""
    load, record = clients.load, clients.record
    if not record.rows("at_once"):
        at_once(clients)
    capacity = max(row["finished"] for row in record.rows("at_once"))
    prompts = long_prompts(load.requests, load.prompt, clients.tokenizer.encode)
    for fraction in load.fractions:
        case = {"fraction": fraction, "prompt": load.prompt, "output": load.output}
        if record.find("arrivals", case):
            continue
        times = poisson_arrivals(fraction * capacity, load.requests, random.Random(1))
        clients.say(f"{fraction:g} of {capacity:.3g} requests/s: {times[-1]:.0f} s")
        answers = clients.open(prompts, load.output, times, f"arrivals {fraction}")
        row = clients.row(case, prompts, answers)
        row |= open_row([answer.trace for answer in answers], times)
        row["tokens"] = _tokens(answers)
        row["tokens_per_second"] = row["finished"] * load.output
        record.add("arrivals", rounded(row))


def transformers(clients: Clients) -> None:
    """Through the server, against transformers' `generate` in this process, in turns."""
    load = clients.load
    render, encode = clients.tokenizer.apply_chat_template, clients.tokenizer.encode
    chats = {
        f"{load.different} different prompts": different_chats(load.different),
        f"{load.chats} chats, {load.system}-token system prompt": shared_system_chats(
            load.chats, load.system, encode
        ),
    }
    for name, asked in chats.items():
        case = {"workload": name, "output": load.output}
        if not clients.record.find("transformers", case):
            prompts = [render(messages) for messages in asked]
            clients.record.add("transformers", _compare(clients, case, prompts))


def _compare(clients: Clients, case: Row, prompts: list[Prompt]) -> Row:
    load, oracle = clients.load, clients.right.oracle
    seconds: dict[str, list[float]] = {"yaie": [], "transformers": []}
    counts: dict[str, int] = {"checked_answers": 0, "same_answers": 0}
    for number in range(load.rounds + 1):  # the first warms up
        clients.say(f"{case['workload']}: round {number}")
        for who in ("yaie", "transformers") if number % 2 else ("transformers", "yaie"):
            start = time.perf_counter()
            if who == "yaie":
                salt = f"{case['workload']} {number}"
                answers = clients.closed(prompts, load.output, len(prompts), salt)
            else:
                oracle.generate(prompts, load.output, static_cache=oracle.on_gpu)
            seconds[who].append(time.perf_counter() - start)
        found = clients.right.check(prompts, [answer.text for answer in answers], load.output)
        counts = {key: counts[key] + found[key] for key in counts}
    total = len(prompts) * load.output
    rates = {who: total / statistics.median(times[1:]) for who, times in seconds.items()}
    cached = sum(a.usage["prompt_tokens_details"]["cached_tokens"] for a in answers)
    return case | rounded(
        {
            "requests": len(prompts),
            "prompt_tokens": sum(map(len, prompts)),
            **rates,
            "ratio": rates["yaie"] / rates["transformers"],
            "seconds": [seconds["yaie"][1:], seconds["transformers"][1:]],
            "cached_fraction": cached / sum(map(len, prompts)),
            **counts,
        }
    )


SECTIONS: dict[str, Callable[[Clients], None]] = {
    "transformers": transformers,
    "at_once": at_once,
    "arrivals": arrivals,
}


def run(
    model: str | Path,
    *,
    device: str = "auto",
    dtype: str = "auto",
    url: str | None = None,
    api_key: str | None = None,
    only: str | None = None,
    quick: bool = False,
    rounds: int | None = None,
    output: str | Path | None = None,
    options: Sequence[str] = (),
) -> Row:
    """Measure a server, print a table a section, and return the record.

    Args:
        model, device, dtype: of the server that is started, and of transformers beside it.
        url: of a server that runs already, with this model.
        only, quick, rounds, output: as for `yaie bench engine`.
        options: further ones of `yaie serve`.

    Raises:
        ValueError: a section is not known, or `output` has the results of something else.
        ClientError: a request was not answered.
        WrongAnswer: an answer is not the model's.
    """
    names = sections(only, SECTIONS)
    where = choose_device(device)
    chosen = choose_dtype(dtype, where)
    load = QUICK_LOAD if quick else GPU_LOAD if where.type == "cuda" else CPU_LOAD
    if rounds is not None:
        check_count("rounds", rounds)
        load = Load(**asdict(load) | {"rounds": rounds})
    name, numbers = model_name(model), str(chosen).removeprefix("torch.")
    subject = {"benchmark": "serve", "model": name, "dtype": numbers, "quick": quick}
    subject |= {"options": list(options), "sizes": asdict(load)}
    subject |= whose(where) if url is None else {"url": url}
    record = Record(output, subject, where, model)
    tokenizer = Tokenizer(find_model(model))
    own = ("--device", str(where), "--dtype", numbers, *options)
    oracle = Oracle(model, chosen, str(where))
    with start_server(model, own) if url is None else nullcontext(Server(url, name)) as server:
        client = Client(server.url, server.name, api_key)
        clients = Clients(client, tokenizer, Right(oracle, tokenizer), load, record)
        for section in names:
            SECTIONS[section](clients)
            show(section, record.rows(section))
    return record.content
