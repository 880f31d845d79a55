"""The engine against transformers' `generate`: the same model, prompts, threads and process.

Both generate greedily in float32, a fixed number of tokens a request, and the tokens are compared
before any rate is believed. Rounds alternate in order (A B, B A), after one warm-up of each, and
the median counts. transformers gets its prompts as one batch, padded on the left, as its
documentation advises; every round begins with an empty prefix cache.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from yaie.bench.machine import processor
from yaie.bench.workloads import different_chats, shared_system_chats
from yaie.engine.llm import LLM
from yaie.sampling import SamplingParams

Answers = list[list[int]]
SYSTEM_TOKENS = 600


@dataclass
class Result:
    """One workload, measured.

    Attributes:
        yaie, transformers: output tokens a second, the median of the rounds.
        ratio: yaie over transformers.
        same_answers: how many of the requests got the same tokens from both.
        cached_fraction: prompt tokens that the engine took from its prefix cache.
    """

    workload: str
    requests: int
    prompt_tokens: int
    output_tokens: int
    yaie: float
    transformers: float
    ratio: float
    same_answers: int
    cached_fraction: float


def run(model: str | Path, max_tokens: int = 64, rounds: int = 3) -> list[Result]:
    """Measure both workloads.

    Args:
        model: name or folder.
        max_tokens: tokens to generate for each request.
        rounds: timed rounds of each engine.
    """
    console = Console(stderr=True)
    console.print("Loading the model twice: into YAIE and into transformers")
    llm = LLM(model)
    peer = TransformersPeer(model)
    encode = llm.tokenizer.encode
    workloads = {
        "16 different prompts": different_chats(16),
        f"32 chats, {SYSTEM_TOKENS}-token system prompt": shared_system_chats(
            32, SYSTEM_TOKENS, encode
        ),
    }
    results = []
    for name, chats in workloads.items():
        prompts = [llm.tokenizer.apply_chat_template(messages) for messages in chats]
        results.append(_compare(name, llm, peer, prompts, max_tokens, rounds, console))
    return results


class TransformersPeer:
    """transformers' `generate` on the CPU, with its default attention."""

    def __init__(self, model: str | Path) -> None:
        from transformers import AutoModelForCausalLM

        from yaie.model.pull import find_model

        self.model = AutoModelForCausalLM.from_pretrained(find_model(model), dtype=torch.float32)
        self.model.eval()
        # Both go on after the end token, so that both compute the same number of tokens.
        self.model.generation_config.eos_token_id = None

    def generate(self, prompts: Answers, max_tokens: int) -> Answers:
        """Greedy tokens for each prompt, as one batch padded on the left."""
        longest = max(map(len, prompts))
        padding = [longest - len(prompt) for prompt in prompts]
        token_ids = torch.tensor([[0] * n + p for n, p in zip(padding, prompts, strict=True)])
        mask = torch.arange(longest) >= torch.tensor(padding).unsqueeze(1)
        with torch.inference_mode():
            out = self.model.generate(
                token_ids,
                attention_mask=mask.long(),
                max_new_tokens=max_tokens,
                do_sample=False,
                pad_token_id=0,
            )
        return out[:, longest:].tolist()


def _compare(
    name: str,
    llm: LLM,
    peer: TransformersPeer,
    prompts: Answers,
    max_tokens: int,
    rounds: int,
    console: Console,
) -> Result:
    params = SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True)
    cached = []

    def ours() -> Answers:
        llm.engine.reset_prefix_cache()
        outputs = llm.generate(prompts, params)
        cached[:] = [output.metrics.num_cached_tokens for output in outputs]
        return [output.token_ids for output in outputs]

    def theirs() -> Answers:
        return peer.generate(prompts, max_tokens)

    console.print(f"{name}: warming up")
    answers, peer_answers = ours(), theirs()
    seconds: dict[Callable, list[float]] = {ours: [], theirs: []}
    for i in range(rounds):
        console.print(f"{name}: round {i + 1} of {rounds}")
        for engine in (ours, theirs) if i % 2 == 0 else (theirs, ours):
            start = time.perf_counter()
            engine()
            seconds[engine].append(time.perf_counter() - start)
    total = len(prompts) * max_tokens
    rates = [total / statistics.median(seconds[engine]) for engine in (ours, theirs)]
    return Result(
        workload=name,
        requests=len(prompts),
        prompt_tokens=sum(map(len, prompts)),
        output_tokens=total,
        yaie=round(rates[0], 1),
        transformers=round(rates[1], 1),
        ratio=round(rates[0] / rates[1], 2),
        same_answers=sum(a == b for a, b in zip(answers, peer_answers, strict=True)),
        cached_fraction=round(sum(cached) / sum(map(len, prompts)), 3),
    )


def show(results: list[Result]) -> None:
    """Print the results as a table."""
    table = Table(title="Output tokens a second, float32, greedy")
    for column in ("workload", "YAIE", "transformers", "ratio", "same answers", "prompt cached"):
        table.add_column(column, justify="left" if column == "workload" else "right")
    for result in results:
        table.add_row(
            result.workload,
            f"{result.yaie:.1f}",
            f"{result.transformers:.1f}",
            f"{result.ratio:.2f}×",
            f"{result.same_answers} of {result.requests}",
            f"{result.cached_fraction:.0%}",
        )
    Console().print(table)


def save(results: list[Result], path: str | Path) -> None:
    """Write results as JSON, with the machine, the versions and the date."""
    import transformers

    record = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": {
            "processor": processor(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
        },
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
        "results": [asdict(result) for result in results],
    }
    Path(path).write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n")
