"""The sections of `yaie bench engine`: what is run, and which rows it gives."""

import random
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from itertools import product

from yaie.bench.attention import attention
from yaie.bench.bench import Bench, Measured, Subject
from yaie.bench.compare import against_transformers
from yaie.bench.drive import Drive, Run, greedy, run_batch, run_closed
from yaie.bench.load import poisson_arrivals, requests_that_fit
from yaie.bench.record import Row, rounded
from yaie.bench.workloads import (
    different_chats,
    few_shot_chats,
    long_prompts,
    next_turn,
    shared_prompts,
    shared_system_chats,
)
from yaie.engine.llm import LLM


def matrix(bench: Bench) -> None:
    """Throughput and latencies against batch size, prompt length and output length."""
    cases = matrix_cases(asdict(bench.sizes))
    for number, case in enumerate(cases, 1):
        bench.say(f"cell {number} of {len(cases)}")
        tokens = case["batch"] * (case["prompt"] + case["output"])
        bench.measure("matrix", case, partial(_batch, bench, **case), bench.sizes.rounds_of(tokens))


def matrix_cases(sizes: Row) -> list[Row]:
    """The cells of the matrix, from sizes as a record has them."""
    cells = product(sizes["prompts"], sizes["outputs"], sizes["batches"])
    return [
        {"batch": batch, "prompt": prompt, "output": output}
        for prompt, output, batch in cells
        if batch * (prompt + output) <= sizes["most_tokens"]
    ]


def _batch(bench: Bench, batch: int, prompt: int, output: int, **options: object) -> Measured:
    engine = bench.llm(**options).engine
    prompts = long_prompts(batch, prompt, bench.tokenize)
    return engine, lambda: run_batch(engine, prompts, output, bench.clock)


def first_token(bench: Bench) -> None:
    """Time to the first token against the length of a prompt that was never computed before."""
    for prompt in bench.sizes.lengths:
        case = {"prompt": prompt, "output": 4}
        rounds = bench.sizes.rounds_of(prompt)
        bench.measure("first_token", case, partial(_batch, bench, 1, **case), rounds)


def memory(bench: Bench) -> None:
    """KV blocks against the number of requests, in a pool that is too small for all."""
    prompt, output, fit, counts = bench.sizes.memory
    block_size = 16
    blocks = next(
        n for n in range(10**6) if requests_that_fit(n, block_size, prompt, output) == fit
    )
    for count in counts:
        case = {"at_once": count, "prompt": prompt, "output": output, "num_blocks": blocks}

        def make(count: int = count) -> Measured:
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


def at_once(subject: Subject) -> None:
    """Clients that each send the next request when they are answered: a few, and more."""
    prompt, output, count, _ = subject.sizes.arrivals
    for clients in subject.sizes.clients:
        case = {"at_once": clients, "prompt": prompt, "output": output}
        if subject.record.find("at_once", case):
            continue
        requests = subject.sizes.per_client * clients
        requests = min(requests, count) if subject.sizes.capped else requests
        prompts = long_prompts(requests, prompt, subject.tokenize)
        who = "1 client" if clients == 1 else f"{clients} clients"
        subject.say(f"{who}, {requests} requests")
        row = subject.at_once(case, prompts, output, clients)
        subject.record.add("at_once", rounded(row))


def arrivals(subject: Subject) -> None:
    """Clients that do not wait for each other: rates from a quarter of what the engine can do to
    more than it can."""
    prompt, output, count, fractions = subject.sizes.arrivals
    if not subject.record.rows("at_once"):
        at_once(subject)
    capacity = max(row["finished"] for row in subject.record.rows("at_once"))
    prompts = long_prompts(count, prompt, subject.tokenize)
    for fraction in fractions:
        case = {"fraction": fraction, "prompt": prompt, "output": output}
        if subject.record.find("arrivals", case):
            continue
        times = poisson_arrivals(fraction * capacity, count, random.Random(1))
        subject.say(f"{fraction:g} of {capacity:.3g} requests/s: {times[-1]:.2g} s")
        subject.record.add("arrivals", rounded(subject.open(case, prompts, output, times)))


def workloads(bench: Bench) -> None:
    """Four kinds of traffic, with the prefix cache and without."""
    kinds = ("no sharing", "system prompt", "few-shot", "chat of three turns")
    for cache in (True, False):
        for kind in kinds:
            case = {"workload": kind, "prefix_cache": cache, "output": bench.sizes.answer}
            bench.measure("workloads", case, partial(_workload, bench, **case))


def _workload(bench: Bench, workload: str, prefix_cache: bool, output: int) -> Measured:
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
    """Three turns of several conversations, each turn of all of them together."""
    llm.engine.reset_prefix_cache()
    whole, shift = Run([], []), 0.0
    for turn in range(3):
        prompts = [llm.tokenizer.apply_chat_template(chat) for chat in chats]
        run = run_closed(
            llm.engine, prompts, [greedy(output)] * len(prompts), len(prompts), bench.clock
        )
        # As if each turn followed the last one immediately.
        begin = min(trace.due for trace in run.traces)
        for trace in run.traces:
            trace.due += shift - begin
            trace.tokens = [token + shift - begin for token in trace.tokens]
        shift = max(trace.tokens[-1] for trace in run.traces)
        whole.traces += run.traces
        whole.outputs += run.outputs
        whole.most_blocks = max(whole.most_blocks, run.most_blocks)
        whole.most_running = max(whole.most_running, run.most_running)
        texts = [output.text for output in run.outputs]
        chats = [next_turn(c, text, turn) for c, text in zip(chats, texts, strict=True)]
    return whole


# ---------------------------------------------------------------------------- ablations


def prefix_cache(bench: Bench) -> None:
    """A long prompt that was computed before, for another request."""
    for cache in (True, False):
        case = {"prefix_cache": _on(cache), "shared": bench.sizes.shared}
        bench.measure("prefix_cache", case, partial(_shared, bench, cache))


def chunked_prefill(bench: Bench) -> None:
    """Requests that decode while a long prompt arrives."""
    for chunked in (True, False):
        case = {"chunked_prefill": _on(chunked), "long": bench.sizes.long}
        bench.measure("chunked_prefill", case, partial(_interrupted, bench, chunked))


def block_size(bench: Bench) -> None:
    """Small blocks waste less memory, large ones need shorter tables."""
    for size in (4, 16, 64):
        _plain("block_size", bench, {"block_size": size}, 8, block_size=size)


def cuda_graphs(bench: Bench) -> None:
    """Kernels of a decode step launched one by one, or as one graph."""
    if not bench.on_gpu:
        bench.say("cuda_graphs: there is no GPU")
        return
    for graphs, batch in product((True, False), (1, 8, 32)):
        _plain("cuda_graphs", bench, {"cuda_graphs": _on(graphs)}, batch, enforce_eager=not graphs)


def back_ends(bench: Bench) -> None:
    """The operators computed by one back end or another."""
    if not bench.on_gpu:
        bench.say("back_ends: there is no GPU")
        return
    for backend in ("auto", "cuda", "triton", "reference"):
        options = {"backend": backend, "enforce_eager": backend == "reference"}
        _plain("back_ends", bench, {"back_end": backend}, 8, **options)


def _on(switch: bool) -> str:
    return "on" if switch else "off"


def _plain(section: str, bench: Bench, case: Row, batch: int, **options: object) -> None:
    """A batch of prompts that share nothing, on an engine with some options."""
    make = partial(_batch, bench, batch, bench.sizes.prompts[0], bench.sizes.answer, **options)
    bench.measure(section, case | {"batch": batch}, make)


def _shared(bench: Bench, cache: bool) -> Measured:
    """One request, then four that share its prefix, one after the other; those four count."""
    engine = bench.llm(enable_prefix_caching=cache).engine
    shared = bench.sizes.shared
    first, *others = shared_prompts(5, shared, shared + 32, bench.tokenize)

    def run() -> Run:
        run_batch(engine, [first], 1)
        return run_closed(engine, others, [greedy(4)] * len(others), 1, bench.clock)

    return engine, run


def _interrupted(bench: Bench, chunked: bool) -> Measured:
    """Eight requests decode, and after a while a long prompt arrives; the eight count."""
    engine = bench.llm(enable_chunked_prefill=chunked, max_num_batched_tokens=256).engine
    output = 3 * bench.sizes.answer // 2
    short = long_prompts(8, 32, bench.tokenize)
    late = long_prompts(9, bench.sizes.long, bench.tokenize)[-1]
    params = [greedy(output)] * len(short) + [greedy(2)]

    def run() -> Run:
        engine.reset_prefix_cache()
        drive = Drive(engine, [*short, late], params, bench.clock)
        for number in range(len(short)):
            drive.send(number, bench.clock.now())
        while len(drive.run.traces[0].tokens) < output // 3:
            drive.step()
        drive.send(len(short), bench.clock.now())
        while engine.has_work:
            drive.step()
        return replace(drive.run, traces=drive.run.traces[:-1], outputs=drive.run.outputs[:-1])

    return engine, run


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
    "attention": attention,
    "block_size": block_size,
    "cuda_graphs": cuda_graphs,
    "back_ends": back_ends,
}
