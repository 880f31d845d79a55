"""What the sections of `yaie bench engine` share: engines, sizes, checked measurements."""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from rich.console import Console

from yaie.bench.drive import WALL, Clock, Prompt, Run, run_batch
from yaie.bench.load import Trace, in_system, summarize, under_way
from yaie.bench.oracle import Oracle, Verdict
from yaie.bench.record import Record, Row, rounded
from yaie.bench.workloads import long_prompts
from yaie.engine.engine import Engine
from yaie.engine.llm import LLM
from yaie.model.pull import find_model
from yaie.model.tokenizer import Tokenizer
from yaie.model.weights import parse_dtype


@dataclass(frozen=True)
class Sizes:
    """How much is measured.

    Attributes:
        batches, prompts, outputs: the matrix: requests at once, tokens of each, tokens generated.
        most_tokens: a case with more, prompts and outputs of all requests together, is left out.
        once: a case with more than so many is measured once: it is long enough.
        answer: tokens generated for each request outside the matrix, unless another is said.
        lengths: prompts of which the time to the first token is measured.
        memory: prompt, output, how many of such requests fit, and how many come at once.
        clients: numbers of those who ask again when they are answered.
        arrivals: prompt, output, requests a run, and the rates, as fractions of the capacity.
        shared: tokens of the prompt that a prefix cache is tried on.
        long: tokens of the prompt that arrives while others decode.
        system: tokens of the system prompt that chats share.
        askers: conversations of each workload.
        chats: how many share the system prompt, against transformers.
        different: chats that share nothing, against transformers.
        mixed: requests of different lengths against transformers, how many at once, and the means
            of their prompts and answers.
        rounds: of which the median counts.
    """

    batches: tuple[int, ...]
    prompts: tuple[int, ...]
    outputs: tuple[int, ...]
    most_tokens: int
    once: int
    answer: int
    lengths: tuple[int, ...]
    memory: tuple[int, int, int, tuple[int, ...]]
    clients: tuple[int, ...]
    arrivals: tuple[int, int, int, tuple[float, ...]]
    shared: int
    long: int
    system: int
    askers: int
    chats: int
    different: int
    mixed: tuple[int, int, int, int]
    rounds: int

    def with_rounds(self, rounds: int) -> Sizes:
        """The same with other rounds."""
        return replace(self, rounds=rounds)

    def rounds_of(self, tokens: int) -> int:
        """The rounds of a case with so many tokens, prompts and outputs together."""
        return 1 if tokens > self.once else self.rounds


MOST_JUDGED = 64  # answers of a run
POINTS = 80  # of a series that is kept to be drawn
FRACTIONS = (0.25, 0.5, 0.7, 0.85, 1.0, 1.2, 1.5)
QUICK = Sizes(
    batches=(1, 8),
    prompts=(64,),
    outputs=(16,),
    most_tokens=2_000,
    once=2_000,
    answer=16,
    lengths=(64, 256),
    memory=(32, 16, 4, (2, 4, 6, 8)),
    clients=(1, 4),
    arrivals=(32, 8, 12, (0.5, 1.5)),
    shared=256,
    long=256,
    system=200,
    askers=2,
    chats=4,
    different=4,
    mixed=(8, 4, 24, 8),
    rounds=1,
)
CPU = Sizes(
    batches=(1, 8, 32, 64),
    prompts=(128, 1024, 4096),
    outputs=(64, 256),
    most_tokens=12_288,
    once=1_000,
    answer=32,
    lengths=(128, 256, 512, 1024, 2048, 4096),
    memory=(48, 32, 8, (2, 4, 8, 12, 16)),
    clients=(1, 2, 4, 8, 16, 32),
    arrivals=(32, 16, 32, FRACTIONS),
    shared=1_000,
    long=512,
    system=600,
    askers=4,
    chats=32,
    different=16,
    mixed=(64, 16, 64, 24),
    rounds=3,
)
GPU = Sizes(
    batches=(1, 8, 32, 64),
    prompts=(128, 1024, 4096),
    outputs=(64, 256),
    most_tokens=1_000_000,
    once=1_000_000,
    answer=64,
    lengths=(128, 256, 512, 1024, 2048, 4096, 8000),
    memory=(512, 256, 64, (8, 16, 32, 48, 64, 80, 96, 128)),
    clients=(1, 2, 4, 8, 16, 32, 64, 128),
    arrivals=(256, 128, 400, FRACTIONS),
    shared=4_000,
    long=4_096,
    system=600,
    askers=16,
    chats=32,
    different=16,
    mixed=(512, 64, 256, 96),
    rounds=3,
)


# What `LLM` does unless it is told otherwise: asking for that is asking for nothing.
DEFAULTS = {
    "enable_prefix_caching": True,
    "enable_chunked_prefill": True,
    "enforce_eager": False,
    "block_size": 16,
    "max_num_seqs": 64,
    "backend": "auto",
}


class Bench:
    """One run of the benchmark.

    Args:
        model: name or folder.
        dtype, device: of the engine, and of transformers beside it.
        options: further ones of `LLM`, for every engine.
        clock: what times are taken with.
    """

    def __init__(
        self, model: str | Path, dtype: str, device: torch.device, sizes: Sizes, record: Record,
        options: Row | None = None, clock: Clock = WALL,
    ) -> None:  # fmt: skip
        self.model, self.dtype, self.device = model, dtype, device
        self.torch_dtype = parse_dtype(dtype)
        self.tokenizer = Tokenizer(find_model(model))
        self.sizes, self.record = sizes, record
        self.options = options or {}
        self.clock = clock
        self.console = Console(stderr=True)
        self._engines: dict[str, LLM] = {}
        self._oracle: Oracle | None = None
        self._right: dict[tuple[int, ...], list[tuple[list[int], Verdict]]] = {}

    @property
    def on_gpu(self) -> bool:
        """Whether a GPU computes."""
        return self.device.type == "cuda"

    @property
    def oracle(self) -> Oracle:
        """transformers with the same model, loaded when it is first asked for."""
        if self._oracle is None:
            self.say("loading the model into transformers")
            self._oracle = Oracle(self.model, self.torch_dtype, self.device.type)
        return self._oracle

    def llm(self, **options: object) -> LLM:
        """An engine with these options. One is kept: asking for the same again is free."""
        options = {name: value for name, value in options.items() if DEFAULTS.get(name) != value}
        key = repr(sorted(options.items()))
        if key not in self._engines:
            self._engines.clear()  # its memory goes before that of the next one is asked for
            gc.collect()
            if self.on_gpu:
                torch.cuda.empty_cache()
            self._engines[key] = self.make(**self.options | options)
            self._warm_up(self._engines[key])
        return self._engines[key]

    def _warm_up(self, llm: LLM) -> None:
        """Have everything built and loaded that the first steps of an engine would wait for."""
        lengths = (1000, 40, 40) if self.on_gpu else (40, 40)
        prompts = [long_prompts(1, length, self.tokenize)[0] for length in lengths]
        run_batch(llm.engine, prompts, 3)
        llm.engine.reset_prefix_cache()

    def make(self, **options: object) -> LLM:
        """A new engine."""
        return LLM(self.model, device=str(self.device), dtype=self.dtype, **options)

    def tokenize(self, text: str) -> list[int]:
        """Token ids of a text."""
        return self.tokenizer.encode(text)

    def say(self, words: str) -> None:
        """Show progress."""
        self.console.print(words, highlight=False)

    # ------------------------------------------------------------------------ measuring

    def measure(
        self, section: str, case: Row, make: Callable[[], tuple[Engine, Callable[[], Run]]],
        rounds: int | None = None,
    ) -> Row:  # fmt: skip
        """The row of a case: from the record, or run now, its answers checked.

        Args:
            make: returns the engine and what to run; asked only if the row is not there.
        """
        if found := self.record.find(section, case):
            self.say(f"{section} {words(case)}: kept")
            return found
        engine, run = make()
        runs = []
        for number in range(rounds or self.sizes.rounds):
            self.say(f"{section} {words(case)}: round {number + 1}")
            runs.append(run())
        verdict = self.check(f"{section} {words(case)}", runs)
        latencies = [summarize(run.traces) for run in runs]
        rates = [latency.tokens_per_second for latency in latencies]
        middle = rates.index(statistics.median_low(rates))
        chosen = runs[middle]
        row = case | asdict(latencies[middle]) | {
            "rates": rates,
            "most_blocks": chosen.most_blocks,
            "most_running": chosen.most_running,
            "preemptions": chosen.preemptions,
            "cached_fraction": chosen.cached_fraction,
            "checked_answers": verdict.answers,
            "same_answers": verdict.same,
            "worst_gap": verdict.worst,
            "num_blocks": engine.kv.pool.num_blocks,
            "finished": rates[middle] * len(chosen.outputs) / latencies[middle].tokens,
        }  # fmt: skip
        row = rounded(row)
        self.record.add(section, row)
        return row

    def add_open(self, section: str, case: Row, run: Run, due: Sequence[float]) -> Row:
        """The row of a run whose requests came when they were due; its answers are checked."""
        verdict = self.check(f"{section} {words(case)}", [run])
        row = case | open_row(run.traces, due)
        row |= {
            "most_blocks": run.most_blocks,
            "most_running": run.most_running,
            "preemptions": run.preemptions,
            "checked_answers": verdict.answers,
            "same_answers": verdict.same,
            "worst_gap": verdict.worst,
        }
        self.record.add(section, rounded(row))
        return row

    def check(self, what: str, runs: Sequence[Run]) -> Verdict:
        """Answers of every run against transformers: all, or `MOST_JUDGED` of them, spread over
        the run. One that was judged before, or the beginning of one, is not judged again."""
        total = Verdict()
        for run in runs:
            for output in run.outputs[:: -(-len(run.outputs) // MOST_JUDGED)]:
                total += self._judge(what, output.prompt_token_ids, output.token_ids)
        return total

    def _judge(self, what: str, prompt: Prompt, answer: list[int]) -> Verdict:
        judged = self._right.setdefault(tuple(prompt), [])
        for known, verdict in judged:
            if known[: len(answer)] == answer:
                return verdict
        verdict = self.oracle.demand(what, [prompt], [answer])
        judged.append((answer, verdict))
        return verdict


def open_row(traces: Sequence[Trace], due: Sequence[float]) -> Row:
    """What is kept of an open loop: latencies, the rate, and how many were under way when."""
    waits = [trace.tokens[-1] - trace.due for trace in traces]
    series = under_way(traces)
    every = max(1, len(series) // POINTS)
    return asdict(summarize(traces)) | {
        "offered": len(due) / due[-1],
        "finished": len(due) / (max(trace.tokens[-1] for trace in traces) - traces[0].due),
        "wait_mean": statistics.mean(waits),
        "in_system": in_system(traces),
        "under_way": [list(point) for point in series[::every]],
    }


def words(case: Row) -> str:
    """A case in words."""
    return ", ".join(f"{name} {value}" for name, value in case.items())
