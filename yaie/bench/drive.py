"""Runs requests through an engine and notes when each token came."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from yaie.bench.load import Trace
from yaie.engine.engine import Engine
from yaie.engine.params import SamplingParams
from yaie.engine.request import RequestOutput

Prompt = list[int]


class WallTime:
    """Seconds of real time."""

    def now(self) -> float:
        """The time."""
        return time.perf_counter()

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        time.sleep(seconds)


class ProcessTime:
    """Seconds that this process has computed; waiting skips them.

    So other programs on the machine hardly matter: with one thread, this is what an idle machine
    would show.
    """

    def __init__(self) -> None:
        self._jumped = 0.0

    def now(self) -> float:
        """The time."""
        return time.process_time() + self._jumped

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self._jumped += seconds


Clock = WallTime | ProcessTime
WALL = WallTime()


@dataclass
class Run:
    """What came of a run.

    Attributes:
        traces, outputs: of each request, in the order of the prompts.
        most_blocks: the most KV blocks that running requests and the prefix cache held together.
        most_running: the most requests that ran together.
    """

    traces: list[Trace]
    outputs: list[RequestOutput]
    most_blocks: int = 0
    most_running: int = 0

    @property
    def answers(self) -> list[list[int]]:
        """The tokens of each request."""
        return [output.token_ids for output in self.outputs]

    @property
    def cached_fraction(self) -> float:
        """The part of all prompt tokens that was found in the prefix cache."""
        cached = sum(output.metrics.num_cached_tokens for output in self.outputs)
        return cached / sum(len(output.prompt_token_ids) for output in self.outputs)

    @property
    def preemptions(self) -> int:
        """How often a request lost its blocks."""
        return sum(output.metrics.num_preemptions for output in self.outputs)

    def counters(self) -> dict[str, float]:
        """What was counted, as part of a row of results."""
        names = ("most_blocks", "most_running", "preemptions", "cached_fraction")
        return {name: getattr(self, name) for name in names}


def greedy(max_tokens: int) -> SamplingParams:
    """Always the likeliest token, and exactly `max_tokens` of them."""
    return SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True)


@dataclass
class Drive:
    """An engine with requests of a list, by their numbers there."""

    engine: Engine
    prompts: Sequence[Prompt]
    params: Sequence[SamplingParams]
    clock: Clock = WALL
    run: Run = field(init=False)
    numbers: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        count = len(self.prompts)
        self.run = Run([Trace(0.0) for _ in range(count)], [None] * count)

    def send(self, number: int, due: float) -> None:
        """Give a request to the engine."""
        name = self.engine.add_request(self.prompts[number], self.params[number])
        self.numbers[name] = number
        self.run.traces[number].due = due

    def step(self) -> int:
        """Compute a step; returns how many requests ended with it."""
        ended = 0
        outputs = self.engine.step()
        now = self.clock.now()
        for output in outputs:
            number = self.numbers[output.request_id]
            tokens = self.run.traces[number].tokens
            tokens += [now] * len(output.new_token_ids)
            if output.finish_reason is not None:
                if output.finish_reason != "length":
                    raise RuntimeError(
                        f"request {number} ended with {output.finish_reason!r} after "
                        f"{len(tokens)} tokens: {output.error}"
                    )
                self.run.outputs[number] = output.request.output()
                ended += 1
        pool, scheduler = self.engine.kv.pool, self.engine.scheduler
        self.run.most_blocks = max(self.run.most_blocks, pool.num_blocks - pool.num_free)
        self.run.most_running = max(self.run.most_running, len(scheduler.running))
        return ended


def run_open(
    engine: Engine,
    prompts: Sequence[Prompt],
    params: Sequence[SamplingParams],
    arrivals: Sequence[float],
    clock: Clock = WALL,
) -> Run:
    """Send each request when it is due, whether or not others have been answered.

    Args:
        arrivals: ascending, in seconds from now.
    """
    drive = Drive(engine, prompts, params, clock)
    start, sent = clock.now(), 0
    while sent < len(prompts) or engine.has_work:
        now = clock.now() - start
        while sent < len(prompts) and arrivals[sent] <= now:
            drive.send(sent, start + arrivals[sent])
            sent += 1
        if engine.has_work:
            drive.step()
        elif sent < len(prompts):
            clock.wait(max(0.0, arrivals[sent] - (clock.now() - start)))
    return drive.run


def run_closed(
    engine: Engine,
    prompts: Sequence[Prompt],
    params: Sequence[SamplingParams],
    at_once: int,
    clock: Clock = WALL,
) -> Run:
    """Keep `at_once` requests under way: when one is answered, the next is sent."""
    drive = Drive(engine, prompts, params, clock)
    under_way = sent = 0
    while sent < len(prompts) or engine.has_work:
        while sent < len(prompts) and under_way < at_once:
            drive.send(sent, clock.now())
            sent += 1
            under_way += 1
        under_way -= drive.step()
    return drive.run


def run_batch(
    engine: Engine, prompts: Sequence[Prompt], max_tokens: int | Sequence[int], clock: Clock = WALL
) -> Run:
    """All requests together, greedily, from an empty prefix cache.

    Args:
        max_tokens: of every answer, or of each.
    """
    wanted = [max_tokens] * len(prompts) if isinstance(max_tokens, int) else max_tokens
    engine.reset_prefix_cache()
    return run_closed(engine, prompts, [greedy(n) for n in wanted], len(prompts), clock)
