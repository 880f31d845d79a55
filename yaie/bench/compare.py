"""The engine against transformers' `generate`: the same prompts, as many tokens."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, replace

from yaie.bench.bench import Bench
from yaie.bench.drive import Prompt, Run, run_batch
from yaie.bench.record import rounded
from yaie.bench.workloads import (
    different_chats,
    long_prompts,
    mixed_lengths,
    shared_system_chats,
)


@dataclass(frozen=True)
class Asked:
    """What both are asked.

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


# What a workload's name goes on with, and how transformers keeps keys and values then.
ON_CPU: dict[str, dict[str, bool]] = {"": {}}
ON_GPU = {
    ", static cache": {"static": True},
    ", static cache, compiled": {"static": True, "compiled": True},
}


def against_transformers(bench: Bench) -> None:
    """Against transformers' `generate`, in rounds of alternating order."""
    workloads = (_equal_prompts if bench.on_gpu else _chats)(bench) | _mixed(bench)
    for name, asked in workloads.items():
        for way, options in (ON_GPU if bench.on_gpu else ON_CPU).items():
            compare(bench, name + way, replace(asked, **options))


def _equal_prompts(bench: Bench) -> dict[str, Asked]:
    batch, prompt, output = bench.sizes.batches[-1], bench.sizes.prompts[0], bench.sizes.answer
    prompts = long_prompts(batch, prompt, bench.tokenize)
    return {f"{batch} prompts of {prompt} tokens": Asked(prompts, [output] * batch, batch)}


def _chats(bench: Bench) -> dict[str, Asked]:
    few, many, system = bench.sizes.different, bench.sizes.chats, bench.sizes.system
    chats = {
        f"{few} different prompts": different_chats(few),
        f"{many} chats, {system}-token system prompt": shared_system_chats(
            many, system, bench.tokenize
        ),
    }
    render = bench.tokenizer.apply_chat_template
    output = bench.sizes.answer
    return {
        name: Asked([render(chat) for chat in asked], [output] * len(asked), len(asked))
        for name, asked in chats.items()
    }


def _mixed(bench: Bench) -> dict[str, Asked]:
    """Requests of very different lengths: transformers' batches are as long as their longest prompt
    and their longest answer."""
    count, at_once, prompt, output = bench.sizes.mixed
    lengths = mixed_lengths(count, at_once, prompt, seed=0)
    longest = long_prompts(count, max(lengths), bench.tokenize)
    prompts = [tokens[:length] for tokens, length in zip(longest, lengths, strict=True)]
    outputs = mixed_lengths(count, at_once, output, seed=1)
    name = f"{count} requests of 1 to {max(lengths)} tokens, {at_once} at once"
    return {name: Asked(prompts, outputs, at_once)}


def compare(bench: Bench, name: str, asked: Asked) -> None:
    """The row of a workload, unless the record has it."""
    case = {"workload": name, "output": max(asked.outputs)}
    if bench.record.find("transformers", case):
        return
    engine = bench.llm(max_num_seqs=asked.at_once).engine
    runs: list[Run] = []
    theirs: list[list[Prompt]] = []
    seconds: dict[str, list[float]] = {"yaie": [], "transformers": []}

    def once(who: str) -> None:
        start = bench.clock.now()
        if who == "yaie":
            runs.append(run_batch(engine, asked.prompts, asked.outputs, bench.clock))
        else:
            theirs.append(_theirs(bench, asked))
        seconds[who].append(bench.clock.now() - start)

    for number in range(bench.sizes.rounds + 1):  # the first warms up
        bench.say(f"transformers, {name}: round {number}")
        for who in ("yaie", "transformers") if number % 2 else ("transformers", "yaie"):
            once(who)
    verdict = bench.check(name, runs)
    total = sum(asked.outputs)
    rates = {who: total / statistics.median(times[1:]) for who, times in seconds.items()}
    row = {
        "requests": len(asked.prompts),
        "tokens": total,
        "prompt_tokens": sum(map(len, asked.prompts)),
        **rates,
        "ratio": rates["yaie"] / rates["transformers"],
        "seconds": [seconds["yaie"][1:], seconds["transformers"][1:]],
        "equal_answers": sum(a == b for a, b in zip(runs[-1].answers, theirs[-1], strict=True)),
        "cached_fraction": runs[-1].cached_fraction,
        "checked_answers": verdict.answers,
        "same_answers": verdict.same,
        "worst_gap": verdict.worst,
    }
    bench.record.add("transformers", case | rounded(row))


def _theirs(bench: Bench, asked: Asked) -> list[Prompt]:
    """One batch after the other, each until its longest answer is complete."""
    answers = []
    for start in range(0, len(asked.prompts), asked.at_once):
        batch = slice(start, start + asked.at_once)
        outputs = asked.outputs[batch]
        found = bench.oracle.generate(
            asked.prompts[batch], max(outputs), asked.static, asked.compiled
        )
        answers += [tokens[:wanted] for tokens, wanted in zip(found, outputs, strict=True)]
    return answers
