"""`yaie bench serve`: what the clients of a server see.

The server is a process of its own; this one is its clients. Times are taken when a piece of an
answer has come through the connection. An answer that is not the model's, as transformers has it,
ends the benchmark. Prompts are token ids, and each case has a cache salt of its own: nothing is
found in the prefix cache that another case, or an earlier benchmark of this server, left there.
"""

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path

from yaie.bench.bench import CPU, FRACTIONS, GPU, QUICK, Asked, Sizes, Subject, open_row
from yaie.bench.client import Answer, Client, ClientError, closed_loop, open_loop
from yaie.bench.compare import chats, compare
from yaie.bench.drive import Prompt
from yaie.bench.engine import explain, sections, show
from yaie.bench.load import figures
from yaie.bench.oracle import Oracle
from yaie.bench.process import Server
from yaie.bench.process import serving as start_server
from yaie.bench.record import Record, Row, whose
from yaie.bench.right import Right
from yaie.bench.sections import arrivals, at_once
from yaie.engine.checks import check_count
from yaie.engine.device import choose_device, choose_dtype
from yaie.model.pull import model_name

CLIENTS = (1, 8, 32, 64)
QUICK_LOAD = replace(QUICK, arrivals=(32, 8, 8, (0.5, 1.5)), per_client=2, capped=False)
CPU_LOAD = replace(
    CPU, clients=CLIENTS, arrivals=(64, 32, 60, FRACTIONS), per_client=2, capped=False
)
GPU_LOAD = replace(
    GPU, clients=CLIENTS, arrivals=(256, 128, 300, FRACTIONS), per_client=4, capped=False,
    chats=64, different=64,
)  # fmt: skip


class Clients(Subject):
    """The clients of a server.

    Args:
        client: how to reach the server.
        model, oracle: what the answers are compared with.
    """

    def __init__(
        self, client: Client, model: str | Path, oracle: Oracle, sizes: Sizes, record: Record
    ) -> None:
        super().__init__(model, sizes, record)
        self.client, self.oracle = client, oracle
        self.right = Right(oracle, self.tokenizer)
        self.begun = time.time()  # each of its cache salts begins with it

    def at_once(self, case: Row, prompts: Sequence[Prompt], output: int, clients: int) -> Row:
        outputs, salt = [output] * len(prompts), f"{self.begun} at once {clients}"
        answers = closed_loop(self.client, prompts, outputs, clients, salt)
        row = self.row(case, prompts, answers)
        return row | {"finished": row["tokens_per_second"] / output}

    def open(
        self, case: Row, prompts: Sequence[Prompt], output: int, times: Sequence[float]
    ) -> Row:
        salt = f"{self.begun} arrivals {case['fraction']}"
        start = time.perf_counter() + 0.1
        requests = [(start + at, prompt, salt) for at, prompt in zip(times, prompts, strict=True)]
        answers = [answer for answer, _ in open_loop(self.client, requests, output)]
        row = self.row(case, prompts, answers)
        seen = open_row([answer.trace for answer in answers], times)
        rate = seen["finished"] * output
        return row | seen | {"tokens": row["tokens"], "tokens_per_second": rate}

    def prepare(self, asked: Asked) -> None:
        """The server is there already."""

    def ask(self, asked: Asked, name: str) -> list[Answer]:
        salt = f"{self.begun} {name}"
        return closed_loop(self.client, asked.prompts, asked.outputs, asked.at_once, salt)

    def judge(
        self, asked: Asked, name: str, ours: list[list[Answer]], theirs: list[list[Prompt]]
    ) -> Row:
        prompts = asked.prompts * len(ours)
        texts = [answer.text for answers in ours for answer in answers]
        cached = sum(a.usage["prompt_tokens_details"]["cached_tokens"] for a in ours[-1])
        return {
            "cached_fraction": cached / sum(map(len, asked.prompts)),
            **self.right.check(prompts, texts, max(asked.outputs)),
        }

    def row(self, case: Row, prompts: Sequence[Prompt], answers: Sequence[Answer]) -> Row:
        """What a run measured, its answers compared. A piece of text may be several tokens."""
        texts = [answer.text for answer in answers]
        counts = self.right.check(prompts, texts, case["output"])
        tokens = sum(answer.usage["completion_tokens"] for answer in answers)
        return case | figures([answer.trace for answer in answers], tokens) | counts


def transformers(clients: Clients) -> None:
    """Through the server, against transformers' `generate` in this process, in turns."""
    for name, asked in chats(clients, clients.sizes.arrivals[1]).items():
        compare(clients, name, replace(asked, static=clients.oracle.on_gpu))


SECTIONS: dict[str, Callable[[Clients], None]] = {
    "transformers": transformers,
    "at_once": at_once,
    "arrivals": arrivals,
}


def served_name(url: str, api_key: str | None) -> str:
    """What a server calls its model. Raises ClientError if none answers, or one of another kind."""
    page = asyncio.run(Client(url, "", api_key).get("/v1/models"))
    try:
        return json.loads(page)["data"][0]["id"]
    except (ValueError, LookupError, TypeError) as error:
        raise ClientError(f"the server at {url} names no model at /v1/models") from error


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
    """Measure a server, print a table per section, and return the record.

    Args:
        model, device, dtype: of the server that is started, and of transformers beside it.
        url: of a server that runs already, with this model, by whatever name.
        only, quick, rounds, output: as for `yaie bench engine`.
        options: further ones of `yaie serve`.

    Raises:
        ValueError: a section is not known, `output` has the results of something else, or a
            server that runs already is given options.
        ClientError: a request was not answered.
        WrongAnswer: an answer is not the model's.
    """
    names = sections(only, SECTIONS)
    if url is not None and options:
        raise ValueError(f"options are for a server that is started, not for one at {url}")
    running = None if url is None else Server(url, served_name(url, api_key))
    where = choose_device(device)
    chosen = choose_dtype(dtype, where)
    load = QUICK_LOAD if quick else GPU_LOAD if where.type == "cuda" else CPU_LOAD
    if rounds is not None:
        check_count("rounds", rounds)
        load = replace(load, rounds=rounds)
    name, numbers = model_name(model), str(chosen).removeprefix("torch.")
    subject = {"benchmark": "serve", "model": name, "dtype": numbers, "quick": quick}
    subject |= {"options": list(options), "sizes": asdict(load)}
    subject |= whose(where) if url is None else {"url": url}
    record = Record(output, subject, where, model)
    own = ("--device", str(where), "--dtype", numbers, *options)
    oracle = Oracle(model, chosen, str(where))
    with start_server(model, own) if running is None else nullcontext(running) as server:
        client = Client(server.url, server.name, api_key)
        clients = Clients(client, model, oracle, load, record)
        for section in names:
            SECTIONS[section](clients)
            show(section, record.rows(section))
    explain(names)
    return record.content
