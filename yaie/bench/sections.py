"""The sections of `yaie bench engine`: what is run, and which rows it gives."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from yaie.bench.bench import Bench
from yaie.bench.compare import against_transformers
from yaie.bench.drive import Drive, Prompt, Run, greedy, run_batch, run_closed, run_open
from yaie.bench.load import poisson_arrivals, requests_that_fit
from yaie.bench.workloads import (
    different_chats,
    few_shot_chats,
    long_prompts,
    next_turn,
    shared_prompts,
    shared_system_chats,
)
from yaie.engine.engine import Engine
from yaie.engine.llm import LLM


def matrix(bench: Bench) -> None:
    """Throughput and latencies against batch size, prompt length and output length."""
    sizes = bench.sizes
    for prompt in sizes.prompts:
        for output in sizes.outputs:
            for batch in sizes.batches:
                tokens = batch * (prompt + output)
                if tokens > sizes.most_tokens:
                    continue
                case = {"batch": batch, "prompt": prompt, "output": output}
                rounds = sizes.rounds_of(tokens)
                bench.measure("matrix", case, lambda c=case: _batch(bench, **c), rounds)


def _batch(bench: Bench, batch: int, prompt: int, output: int) -> tuple[Engine, Callable]:
    engine = bench.llm().engine
    prompts = long_prompts(batch, prompt, bench.tokenize)
    return engine, lambda: run_batch(engine, prompts, output, bench.clock)


def first_token(bench: Bench) -> None:
    """Time to the first token against the length of a prompt that nobody asked before."""
    for prompt in bench.sizes.lengths:
        case = {"prompt": prompt, "output": 4}
        rounds = bench.sizes.rounds_of(prompt)
        bench.measure("first_token", case, lambda c=case: _batch(bench, 1, **c), rounds)


def memory(bench: Bench) -> None:
    """KV blocks against the number of requests at once, in a pool that is too small for all."""
    prompt, output, fit, counts = bench.sizes.memory
    block_size = 16
    blocks = next(
        n for n in range(10**6) if requests_that_fit(n, block_size, prompt, output) == fit
    )
    for count in counts:
        case = {"at_once": count, "prompt": prompt, "output": output, "num_blocks": blocks}

        def make(count: int = count) -> tuple[Engine, Callable[[], Run]]:
            engine = bench.llm(
                num_blocks=blocks, block_size=block_size, enable_prefix_caching=False,
                max_num_seqs=max(counts),
            ).engine  # fmt: skip
            prompts = long_prompts(2 * max(counts), prompt, bench.tokenize)
            rng = random.Random(0)
            # Answers of different lengths, so that requests do not end all in one step.
            params = [greedy(rng.randint(output // 2, output)) for _ in prompts]
            return engine, lambda: run_closed(engine, prompts, params, count, bench.clock)

        bench.measure("memory", case, make, rounds=1)


def at_once(bench: Bench) -> None:
    """Clients who ask again when they are answered: some, and more."""
    prompt, output, count, _ = bench.sizes.arrivals
    for clients in bench.sizes.clients:
        case = {"at_once": clients, "prompt": prompt, "output": output}

        def make(clients: int = clients) -> tuple[Engine, Callable[[], Run]]:
            engine = bench.llm().engine
            number = min(count, 8 * clients)
            prompts = long_prompts(number, prompt, bench.tokenize)

            def run() -> Run:
                engine.reset_prefix_cache()
                return run_closed(engine, prompts, [greedy(output)] * number, clients, bench.clock)

            return engine, run

        bench.measure("at_once", case, make, rounds=1)


def arrivals(bench: Bench) -> None:
    """Requests of people who do not wait for each other: rates from a quarter of what the engine
    can do to more than it can."""
    prompt, output, count, fractions = bench.sizes.arrivals
    if not bench.record.rows("at_once"):
        at_once(bench)
    capacity = max(row["finished"] for row in bench.record.rows("at_once"))
    for fraction in fractions:
        case = {"fraction": fraction, "prompt": prompt, "output": output}
        if bench.record.find("arrivals", case):
            continue
        engine = bench.llm().engine
        prompts = long_prompts(count, prompt, bench.tokenize)
        times = poisson_arrivals(fraction * capacity, count, random.Random(1))
        bench.say(f"arrivals, {fraction:g} of {capacity:.3g} requests/s: {times[-1]:.0f} s")
        engine.reset_prefix_cache()
        run = run_open(engine, prompts, [greedy(output)] * count, times, bench.clock)
        bench.add_open("arrivals", case, run, times)


def workloads(bench: Bench) -> None:
    """Four kinds of traffic, with the prefix cache and without."""
    kinds = ("no sharing", "system prompt", "few-shot", "chat of three turns")
    for cache in (True, False):
        for kind in kinds:
            case = {"workload": kind, "prefix_cache": cache, "output": bench.sizes.answer}
            bench.measure("workloads", case, lambda c=case: _workload(bench, **c))


def _workload(
    bench: Bench, workload: str, prefix_cache: bool, output: int
) -> tuple[Engine, Callable[[], Run]]:
    llm = bench.llm(enable_prefix_caching=prefix_cache)
    count, system = bench.sizes.askers, bench.sizes.system
    render = llm.tokenizer.apply_chat_template
    if workload == "chat of three turns":
        return llm.engine, lambda: _three_turns(bench, llm, different_chats(count), output)
    if workload == "no sharing":
        prompts = long_prompts(count, system, bench.tokenize)
    elif workload == "few-shot":
        prompts = [render(chat) for chat in few_shot_chats(count)]
    else:
        chats = shared_system_chats(count, system, bench.tokenize)
        prompts = [render(chat) for chat in chats]
    return llm.engine, lambda: run_batch(llm.engine, prompts, output, bench.clock)


def _three_turns(bench: Bench, llm: LLM, chats: list, output: int) -> Run:
    """Everybody asks, is answered, and asks again; three times."""
    llm.engine.reset_prefix_cache()
    whole, shift = Run([], []), 0.0
    for turn in range(3):
        prompts = [llm.tokenizer.apply_chat_template(chat) for chat in chats]
        run = run_closed(
            llm.engine, prompts, [greedy(output)] * len(prompts), len(prompts), bench.clock
        )
        # The turns follow each other at once, whatever lies between them here.
        begin = min(trace.due for trace in run.traces)
        for trace in run.traces:
            trace.due += shift - begin
            trace.tokens = [token + shift - begin for token in trace.tokens]
        shift = max(trace.tokens[-1] for trace in run.traces)
        whole = replace(
            whole,
            traces=whole.traces + run.traces,
            outputs=whole.outputs + run.outputs,
            most_blocks=max(whole.most_blocks, run.most_blocks),
            most_running=max(whole.most_running, run.most_running),
        )
        texts = [output.text for output in run.outputs]
        chats = [next_turn(c, text, turn) for c, text in zip(chats, texts, strict=True)]
    return whole


# ---------------------------------------------------------------------------- ablations


def prefix_cache(bench: Bench) -> None:
    """A long prompt that was computed before, for somebody else."""
    for cache in (True, False):
        case = {"prefix_cache": _on(cache), "shared": bench.sizes.shared}
        bench.measure("prefix_cache", case, lambda cache=cache: _shared(bench, cache))


def chunked_prefill(bench: Bench) -> None:
    """Those who decode, when a long prompt arrives."""
    for chunked in (True, False):
        case = {"chunked_prefill": _on(chunked), "long": bench.sizes.long}
        bench.measure("chunked_prefill", case, lambda chunked=chunked: _interrupted(bench, chunked))


def block_size(bench: Bench) -> None:
    """Small blocks waste less memory, large ones need shorter tables."""
    for size in (4, 16, 64):
        case = {"block_size": size, "batch": 8}
        bench.measure("block_size", case, lambda size=size: _plain(bench, 8, block_size=size))


def cuda_graphs(bench: Bench) -> None:
    """Kernels of a decode step launched one by one, or all at once."""
    if not bench.on_gpu:
        bench.say("cuda_graphs: there is no GPU")
        return
    for graphs in (True, False):
        for batch in (1, 8, 32):
            case = {"cuda_graphs": _on(graphs), "batch": batch}
            bench.measure(
                "cuda_graphs", case,
                lambda b=batch, g=graphs: _plain(bench, b, enforce_eager=not g),
            )  # fmt: skip


def back_ends(bench: Bench) -> None:
    """Who computes the operators."""
    if not bench.on_gpu:
        bench.say("back_ends: on a CPU only the reference is fast enough to serve")
        return
    for backend in ("auto", "cuda", "triton", "reference"):
        case = {"back_end": backend, "batch": 8}
        options = {"backend": backend, "enforce_eager": backend == "reference"}
        bench.measure("back_ends", case, lambda o=options: _plain(bench, 8, **o))


def _on(switch: bool) -> str:
    return "on" if switch else "off"


def _plain(bench: Bench, batch: int, **options: object) -> tuple[Engine, Callable[[], Run]]:
    engine = bench.llm(**options).engine
    prompts = long_prompts(batch, bench.sizes.prompts[0], bench.tokenize)
    return engine, lambda: run_batch(engine, prompts, bench.sizes.answer, bench.clock)


def _shared(bench: Bench, cache: bool) -> tuple[Engine, Callable[[], Run]]:
    """Somebody asks first; of the four who then ask one after the other, all share his prefix."""
    engine = bench.llm(enable_prefix_caching=cache).engine
    shared = bench.sizes.shared
    first, *others = shared_prompts(5, shared, shared + 32, bench.tokenize)

    def run() -> Run:
        run_batch(engine, [first], 1)
        return run_closed(engine, others, [greedy(4)] * len(others), 1, bench.clock)

    return engine, run


def _interrupted(bench: Bench, chunked: bool) -> tuple[Engine, Callable[[], Run]]:
    """Eight decode, and after a while a long prompt arrives; the traces of the eight count."""
    engine = bench.llm(enable_chunked_prefill=chunked, max_num_batched_tokens=256).engine
    output = 3 * bench.sizes.answer // 2
    short = long_prompts(8, 32, bench.tokenize)
    late = long_prompts(9, bench.sizes.long, bench.tokenize)[-1]

    def run() -> Run:
        engine.reset_prefix_cache()
        return _with_a_late_one(bench, engine, short, late, output)

    return engine, run


def _with_a_late_one(
    bench: Bench, engine: Engine, short: Sequence[Prompt], late: Prompt, output: int
) -> Run:
    params = [greedy(output)] * len(short) + [greedy(2)]
    drive = Drive(engine, [*short, late], params, bench.clock)
    for number in range(len(short)):
        drive.send(number, bench.clock.now())
    while len(drive.run.traces[0].tokens) < output // 3:
        drive.step()
    drive.send(len(short), bench.clock.now())
    while engine.has_work:
        drive.step()
    run = drive.run
    return replace(run, traces=run.traces[:-1], outputs=run.outputs[:-1])


SECTIONS: dict[str, Callable[[Bench], None]] = {
    "transformers": against_transformers,
    "matrix": matrix,
    "first_token": first_token,
    "memory": memory,
    "at_once": at_once,
    "arrivals": arrivals,
    "workloads": workloads,
    "prefix_cache": prefix_cache,
    "chunked_prefill": chunked_prefill,
    "block_size": block_size,
    "cuda_graphs": cuda_graphs,
    "back_ends": back_ends,
}
