"""The engine, or a server, against transformers' `generate`: the same prompts, as many tokens."""

import statistics
from dataclasses import replace

from yaie.bench.bench import Asked, Bench, Subject
from yaie.bench.drive import Prompt
from yaie.bench.record import rounded
from yaie.bench.workloads import (
    different_chats,
    long_prompts,
    mixed_lengths,
    shared_system_chats,
)

# What is added to a workload's name, and how transformers keeps keys and values then.
ON_CPU: dict[str, dict[str, bool]] = {"": {}}
ON_GPU = {
    ", static cache": {"static": True},
    ", static cache, compiled": {"static": True, "compiled": True},
}


def against_transformers(bench: Bench) -> None:
    """Against transformers' `generate`, in rounds of alternating order."""
    sizes = bench.sizes
    workloads = equal_prompts(bench) if bench.on_gpu else chats(bench, sizes.answer)
    for name, asked in (workloads | mixed(bench)).items():
        for way, options in (ON_GPU if bench.on_gpu else ON_CPU).items():
            compare(bench, name + way, replace(asked, **options))


def equal_prompts(bench: Bench) -> dict[str, Asked]:
    """Prompts of one length that share nothing."""
    batch, prompt, output = bench.sizes.batches[-1], bench.sizes.prompts[0], bench.sizes.answer
    prompts = long_prompts(batch, prompt, bench.tokenize)
    return {f"{batch} prompts of {prompt} tokens": Asked(prompts, [output] * batch, batch)}


def chats(subject: Subject, output: int) -> dict[str, Asked]:
    """Chats that share nothing, and chats that share a system prompt."""
    few, many, system = subject.sizes.different, subject.sizes.chats, subject.sizes.system
    asked = {
        f"{few} different prompts": different_chats(few),
        f"{many} chats, {system}-token system prompt": shared_system_chats(
            many, system, subject.tokenize
        ),
    }
    render = subject.tokenizer.apply_chat_template
    return {
        name: Asked([render(chat) for chat in chats], [output] * len(chats), len(chats))
        for name, chats in asked.items()
    }


def mixed(bench: Bench) -> dict[str, Asked]:
    """Requests of very different lengths: transformers' batches are as long as their longest prompt
    and their longest answer."""
    count, at_once, prompt, output = bench.sizes.mixed
    lengths = mixed_lengths(count, at_once, prompt, seed=0)
    longest = long_prompts(count, max(lengths), bench.tokenize)
    prompts = [tokens[:length] for tokens, length in zip(longest, lengths, strict=True)]
    outputs = mixed_lengths(count, at_once, output, seed=1)
    name = f"{count} requests of 1 to {max(lengths)} tokens, {at_once} at once"
    return {name: Asked(prompts, outputs, at_once)}


def compare(subject: Subject, name: str, asked: Asked) -> None:
    """Add the row of a workload, unless the record has it."""
    case = {"workload": name, "output": max(asked.outputs)}
    if subject.record.find("transformers", case):
        return
    subject.prepare(asked)
    ours, theirs = [], []
    seconds: dict[str, list[float]] = {"yaie": [], "transformers": []}
    for number in range(subject.sizes.rounds + 1):  # the first warms up
        subject.say(f"transformers, {name}: round {number}")
        for who in ("yaie", "transformers") if number % 2 else ("transformers", "yaie"):
            start = subject.clock.now()
            if who == "yaie":
                ours.append(subject.ask(asked, f"{name} {number}"))
            else:
                theirs.append(generate(subject, asked))
            seconds[who].append(subject.clock.now() - start)
    total = sum(asked.outputs)
    rates = {who: total / statistics.median(times[1:]) for who, times in seconds.items()}
    row = {
        "requests": len(asked.prompts),
        "tokens": total,
        "prompt_tokens": sum(map(len, asked.prompts)),
        **rates,
        "ratio": rates["yaie"] / rates["transformers"],
        "seconds": [seconds["yaie"][1:], seconds["transformers"][1:]],
        **subject.judge(asked, name, ours, theirs),
    }
    subject.record.add("transformers", case | rounded(row))


def generate(subject: Subject, asked: Asked) -> list[Prompt]:
    """transformers' answers: one batch after the other, each until its longest is complete."""
    answers = []
    for start in range(0, len(asked.prompts), asked.at_once):
        batch = slice(start, start + asked.at_once)
        outputs = asked.outputs[batch]
        found = subject.oracle.generate(
            asked.prompts[batch], max(outputs), asked.static, asked.compiled
        )
        answers += [tokens[:wanted] for tokens, wanted in zip(found, outputs, strict=True)]
    return answers
