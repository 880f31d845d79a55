"""What the sections of `yaie bench engine` and `serve` share: sizes, and the engine measured."""

import gc
import statistics
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

import torch
from rich.console import Console

from yaie.bench.drive import WALL, Clock, Prompt, Run, greedy, run_batch, run_closed, run_open
from yaie.bench.load import Trace, in_system, summarize, under_way
from yaie.bench.oracle import Oracle, Verdict
from yaie.bench.record import Record, Row, rounded
from yaie.bench.workloads import long_prompts
from yaie.engine.config import EngineConfig
from yaie.engine.device import block_bytes
from yaie.engine.engine import Engine
from yaie.engine.llm import LLM
from yaie.model.pull import find_model
from yaie.model.tokenizer import Tokenizer
from yaie.model.weights import parse_dtype

Measured = tuple[Engine, Callable[[], Run]]  # an engine, and what to run on it


@dataclass(frozen=True)
class Sizes:
    """How much is measured.

    Attributes:
        batches, prompts, outputs: the matrix: requests together, tokens of each, tokens generated.
        most_tokens: a case with more, prompts and outputs of all requests together, is left out.
        once: a case with more tokens than this is long enough to be measured once.
        answer: tokens generated for each request outside the matrix, unless another is said.
        lengths: prompts of which the time to the first token is measured.
        memory: prompt, output, how many such requests fit, and how many arrive together.
        clients: numbers of clients, each of which sends its next request when it is answered.
        per_client: requests of each of them.
        capped: whether they send no more requests together than come in a run of arrivals.
        arrivals: prompt, output, requests per run, and the rates, as fractions of the capacity.
        shared: tokens of the prompt that a prefix cache is tried on.
        long: tokens of the prompt that arrives while others decode.
        system: tokens of the system prompt that chats share.
        askers: conversations of each workload.
        chats: how many share the system prompt, against transformers.
        different: chats that share nothing, against transformers.
        mixed: requests of different lengths against transformers, how many together, and the means
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
    rounds: int = 3
    per_client: int = 8
    capped: bool = True

    def rounds_of(self, tokens: int) -> int:
        """The rounds of a case with this many tokens, prompts and outputs together."""
        return 1 if tokens > self.once else self.rounds


MOST_JUDGED = 64  # answers of a run
POINTS = 80  # of a series that is kept to be drawn
# What `--course` measures.
COURSE_SECTIONS = ("matrix", "first_token", "memory", "attention", "cuda_graphs")
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
)
GPU = replace(
    CPU,
    most_tokens=1_000_000,
    once=1_000_000,
    answer=64,
    lengths=(*CPU.lengths, 8000),
    memory=(512, 256, 64, (8, 16, 32, 48, 64, 80, 96, 128)),
    clients=(*CPU.clients, 64, 128),
    arrivals=(256, 128, 400, FRACTIONS),
    shared=4_000,
    long=4_096,
    askers=16,
    mixed=(512, 64, 256, 96),
)
# On a CPU the course's matrix is smaller, so that all of it takes minutes.
COURSE_CPU = replace(
    CPU,
    prompts=(64, 512, 2048),
    outputs=(32, 128),
    most_tokens=6_144,
    lengths=(128, 256, 512, 1024, 2048),
    rounds=1,
)
COURSE_GPU = replace(GPU, rounds=1)


@dataclass(frozen=True)
class Asked:
    """The requests that the subject of a benchmark and transformers both answer.

    Attributes:
        prompts, outputs: tokens of each request, and how many are wanted.
        at_once: how many requests are computed together.
        static, compiled: whether transformers keeps keys and values in memory of a fixed size, and
            whether it then compiles the decode step.
    """

    prompts: list[Prompt]
    outputs: list[int]
    at_once: int
    static: bool = False
    compiled: bool = False


class Subject(ABC):
    """What is measured, an engine in this process or a server, and where the results go."""

    oracle: Oracle
    clock: Clock = WALL

    def __init__(self, model: str | Path, sizes: Sizes, record: Record) -> None:
        self.tokenizer = Tokenizer(find_model(model))
        self.sizes, self.record = sizes, record
        self.console = Console(stderr=True)

    def tokenize(self, text: str) -> list[int]:
        """Token ids of a text."""
        return self.tokenizer.encode(text)

    def say(self, words: str) -> None:
        """Show progress."""
        self.console.print(words, highlight=False)

    @abstractmethod
    def at_once(self, case: Row, prompts: Sequence[Prompt], output: int, clients: int) -> Row:
        """The row of a run in which each of several clients asks again when it is answered."""

    @abstractmethod
    def open(
        self, case: Row, prompts: Sequence[Prompt], output: int, times: Sequence[float]
    ) -> Row:
        """The row of a run whose requests are sent when they are due."""

    @abstractmethod
    def prepare(self, asked: Asked) -> None:
        """Build what `ask` needs, before a clock runs and transformers takes memory."""

    @abstractmethod
    def ask(self, asked: Asked, name: str) -> object:
        """Answer everything that is asked; `name` differs between any two calls."""

    @abstractmethod
    def judge(self, asked: Asked, name: str, ours: list, theirs: list[list[Prompt]]) -> Row:
        """Compare the results of `ask` with what transformers thinks, and with its answers."""


class Bench(Subject):
    """One run of the benchmark of the engine.

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
        super().__init__(model, sizes, record)
        self.model, self.dtype, self.device = model, dtype, device
        self.torch_dtype = parse_dtype(dtype)
        self.options = options or {}
        self.clock = clock
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
            self._oracle = self.make_oracle()
        return self._oracle

    def make_oracle(self) -> Oracle:
        """transformers with the same model."""
        return Oracle(self.model, self.torch_dtype, self.device.type)

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

    # ------------------------------------------------------------------------ measuring

    def measure(
        self, section: str, case: Row, make: Callable[[], Measured], rounds: int | None = None
    ) -> None:
        """Add the row of a case, unless the record has it.

        Args:
            make: returns the engine and what to run; called only if there is no row yet.
        """
        if self.record.find(section, case):
            self.say(f"{title(section, case)}: kept")
            return
        engine, run = make()
        runs = []
        for number in range(rounds or self.sizes.rounds):
            self.say(f"{title(section, case)}: round {number + 1}")
            runs.append(run())
        self.record.add(section, rounded(self.row(case, engine, runs)))

    def row(self, case: Row, engine: Engine, runs: Sequence[Run]) -> Row:
        """What a case has measured: the figures of the median round, its answers checked."""
        verdict = self.check(words(case), runs)
        latencies = [summarize(run.traces) for run in runs]
        rates = [latency.tokens_per_second for latency in latencies]
        middle = rates.index(statistics.median_low(rates))
        chosen = runs[middle]
        measured = asdict(latencies[middle]) | {
            "rates": rates,
            "num_blocks": engine.kv.pool.num_blocks,
            "kv_bytes": chosen.most_blocks
            * block_bytes(engine.config, self.torch_dtype, engine.kv.block_size),
            "finished": rates[middle] * len(chosen.outputs) / latencies[middle].tokens,
        }
        return case | measured | chosen.counters() | verdict.row()

    def at_once(self, case: Row, prompts: Sequence[Prompt], output: int, clients: int) -> Row:
        engine = self.llm().engine
        engine.reset_prefix_cache()
        params = [greedy(output)] * len(prompts)
        return self.row(case, engine, [run_closed(engine, prompts, params, clients, self.clock)])

    def open(
        self, case: Row, prompts: Sequence[Prompt], output: int, times: Sequence[float]
    ) -> Row:
        engine = self.llm().engine
        engine.reset_prefix_cache()
        run = run_open(engine, prompts, [greedy(output)] * len(prompts), times, self.clock)
        verdict = self.check(words(case), [run])
        return case | open_row(run.traces, times) | run.counters() | verdict.row()

    def prepare(self, asked: Asked) -> None:
        self.llm(max_num_seqs=asked.at_once)

    def ask(self, asked: Asked, name: str) -> Run:
        engine = self.llm(max_num_seqs=asked.at_once).engine
        return run_batch(engine, asked.prompts, asked.outputs, self.clock)

    def judge(self, asked: Asked, name: str, ours: list[Run], theirs: list[list[Prompt]]) -> Row:
        equal = sum(a == b for a, b in zip(ours[-1].answers, theirs[-1], strict=True))
        return {
            "equal_answers": equal,
            "cached_fraction": ours[-1].cached_fraction,
            **self.check(name, ours).row(),
        }

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


# What an engine does unless it is told otherwise: asking for that is asking for nothing.
DEFAULTS = {field.name: field.default for field in fields(EngineConfig)}


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


def title(section: str, case: Row) -> str:
    """A section and its case in words. The case names the section if that is what it varies."""
    about = words(case)
    return about if section.startswith(next(iter(case))) else f"{heading(section)}: {about}"


def heading(section: str) -> str:
    """What a section is called above its table."""
    return "beside transformers" if section == "transformers" else section.replace("_", " ")


def words(case: Row) -> str:
    """A case in words."""
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in case.items())
