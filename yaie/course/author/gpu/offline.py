"""nano-vLLM's offline workload: 256 requests together, prompts and answers of 100 to 1,024 tokens.

Measures this engine and, with `--beside`, mini-sglang with FlashInfer, on random weights of the
same shape and scale. Each engine runs in a process of its own and answers the same workloads: one
to warm up, then one per round that counts. This engine runs before and after mini-sglang, so its
two results differ if the card slows down as it gets warm.

    python -m yaie.course.author.gpu.offline --shape llama-8b --beside --output offline.json
"""

import argparse
import json
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from yaie.bench import files
from yaie.bench.drawn import SHAPES, draw_weights, random_model, shape_of
from yaie.bench.drive import run_closed
from yaie.bench.machine import head
from yaie.engine.config import CHOICES, EngineConfig
from yaie.engine.engine import Engine
from yaie.engine.params import SamplingParams
from yaie.model.config import ModelConfig
from yaie.model.pull import find_model
from yaie.model.tokenizer import Tokenizer

REQUESTS, LEAST, MOST, WORDS = 256, 100, 1024, 10_000
TEMPERATURE = 0.6
STEP_TOKENS = 16_384  # at most, as in mini-sglang's own benchmark of this workload
LONGEST = 4096  # tokens of a request, at most, in both engines
RESULT = "offline: "  # a process prints its JSON after this

Workload = tuple[list[list[int]], list[int]]
Generate = Callable[[list[list[int]], list[int]], list[int]]


def workload(seed: int) -> Workload:
    """Prompts, and how many tokens to answer each with; seed 0 gives those of nano-vLLM."""
    draw = random.Random(seed)
    prompts = [
        [draw.randint(0, WORDS) for _ in range(draw.randint(LEAST, MOST))] for _ in range(REQUESTS)
    ]
    return prompts, [draw.randint(LEAST, MOST) for _ in prompts]


def own(shape: str, folder: Path, batched: int, policy: str) -> Generate:
    """This engine: a function that answers prompts and returns the length of each answer."""
    model = random_model(ModelConfig.from_dict(shape_of(shape)), "bfloat16", torch.device("cuda"))
    options = EngineConfig(
        max_num_seqs=REQUESTS, max_num_batched_tokens=batched, policy=policy, max_model_len=LONGEST
    )
    engine = Engine(model, Tokenizer(folder), options)

    def generate(prompts: list[list[int]], outputs: list[int]) -> list[int]:
        engine.reset_prefix_cache()
        params = [
            SamplingParams(temperature=TEMPERATURE, max_tokens=n, ignore_eos=True) for n in outputs
        ]
        return [len(a) for a in run_closed(engine, prompts, params, len(prompts)).answers]

    return generate


def mini_sglang(shape: str, folder: Path, batched: int, policy: str) -> Generate:
    """The same for mini-sglang, which admits in order of arrival; its weights are drawn as ours."""
    import minisgl.engine
    from minisgl.core import SamplingParams as Params
    from minisgl.llm import LLM

    def draw(engine: Any, config: Any) -> dict[str, torch.Tensor]:
        places = engine.model.state_dict().items()
        weights = {name: torch.empty_like(place, device=engine.device) for name, place in places}
        draw_weights(weights, engine.device)
        return weights

    minisgl.engine.Engine._load_weight_state_dict = draw  # instead of reading files
    llm = LLM(
        str(folder), max_seq_len_override=LONGEST, max_extend_tokens=batched,
        cuda_graph_max_bs=REQUESTS, attention_backend="fi", page_size=1,
    )  # fmt: skip

    def generate(prompts: list[list[int]], outputs: list[int]) -> list[int]:
        params = [Params(temperature=TEMPERATURE, max_tokens=n, ignore_eos=True) for n in outputs]
        return [len(a["token_ids"]) for a in llm.generate(prompts, params)]

    return generate


ENGINES = {"yaie": own, "mini-sglang": mini_sglang}


def rounds_of(engine: str, shape: str, batched: int, policy: str, rounds: int) -> dict[str, Any]:
    """Seconds of the start, and tokens per second of each round, of an engine in this process."""
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        raw = shape_of(shape) | {"model_type": "llama"}
        (folder / "config.json").write_text(json.dumps(raw), encoding="utf-8")
        for path in find_model("SmolLM2-135M-Instruct").glob("tokenizer*.json"):
            shutil.copy(path, folder)
        generate = ENGINES[engine](shape, folder, batched, policy)
    start, rates = time.perf_counter() - started, []
    for number in (rounds, *range(rounds)):  # the first is not counted
        prompts, outputs = workload(number)
        before = time.perf_counter()
        if (got := generate(prompts, outputs)) != outputs:
            raise RuntimeError(f"{engine} answered with {got} tokens, asked for {outputs}")
        rates.append(round(sum(outputs) / (time.perf_counter() - before), 1))
    how = {"engine": engine, "policy": policy, "batched": batched}
    return how | {"start": round(start, 1), "rates": rates[1:]}


def in_a_process(*arguments: str) -> dict[str, Any]:
    """What a process of this script measures with these arguments."""
    command = [sys.executable, "-m", __spec__.name, *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    (line,) = (line for line in done.stdout.splitlines() if line.startswith(RESULT))
    return json.loads(line.removeprefix(RESULT))


def run(
    shapes: list[str], batched: int, policy: str, rounds: int, beside: bool, output: Path | None
) -> dict[str, Any]:
    """Measure the engines on models of each shape; the record is saved after each process.

    Args:
        batched: the most tokens that a step of this engine computes.
        policy: in which order this engine admits requests.
        beside: whether to measure mini-sglang, too.
    """
    record = head(torch.device("cuda")) | {"requests": REQUESTS, "tokens": [LEAST, MOST]}
    record |= {"temperature": TEMPERATURE, "runs": [], "ratios": {}}
    for shape in shapes:
        runs = []
        turns = ("yaie", "mini-sglang", "yaie") if beside else ("yaie",)
        for turn, engine in enumerate(turns):
            how = (batched, policy) if engine == "yaie" else (STEP_TOKENS, "fcfs")
            options = {"shape": shape, "engine": engine, "rounds": rounds}
            options |= zip(("batched", "policy"), how, strict=True)
            arguments = [f"--{name}={value}" for name, value in options.items()]
            runs.append({"shape": shape} | in_a_process(*arguments))
            print(runs[-1], flush=True)
            record["runs"].append(runs[-1])
            if beside and turn == 2:
                theirs = runs[1]["rates"]
                ours = runs[0]["rates"] + runs[2]["rates"]
                ratio = statistics.median(ours) / statistics.median(theirs)
                record["ratios"][shape] = round(ratio, 3)
            if output is not None:
                files.save(record, output)
    return record


def main() -> None:
    """Measure one engine in this process, or all, each in its own."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--shape", nargs="+", choices=SHAPES, default=["llama-8b"])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument(
        "--batched", type=int, default=STEP_TOKENS, help="most tokens per step of ours"
    )
    parser.add_argument("--policy", choices=CHOICES["policy"], default="fcfs", help="order in ours")
    parser.add_argument("--beside", action="store_true", help="measure mini-sglang, too")
    parser.add_argument("--engine", choices=ENGINES, help="measure this one, in this process")
    parser.add_argument("--output", type=files.output_path)
    given = parser.parse_args()
    how = given.batched, given.policy, given.rounds
    if given.engine is not None:
        found = rounds_of(given.engine, given.shape[0], *how)
        print(RESULT + json.dumps(found), flush=True)
    else:
        run(given.shape, *how, given.beside, given.output)


if __name__ == "__main__":
    main()
