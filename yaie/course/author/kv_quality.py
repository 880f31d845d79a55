"""What an 8-bit cache changes in a model's answers: `python -m yaie.course.author.kv_quality FILE`.

The model computes the same tokens over caches of several dtypes. Of each position the distribution
of the next token is compared with that over a cache in float32: the Kullback-Leibler divergence, in
nats, and whether the likeliest token is the same. Greedy answers through the engine are compared
token by token.
"""

import argparse
from typing import Any

import torch

from yaie import LLM, SamplingParams
from yaie.bench import files, machine
from yaie.bench.rounding import logits
from yaie.emulator.rewrite import CSRC
from yaie.model.kv_scales import fold_scales
from yaie.model.pull import find_model
from yaie.model.tokenizer import Tokenizer
from yaie.model.weights import load_model
from yaie.ops.kv import FP8

MODEL = "SmolLM2-135M-Instruct"
ROOT = CSRC.parent
TEXTS = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
PIECE, PIECES = 512, 16  # tokens of a text that are computed together, and how many such
ANSWERS = 64  # tokens of a greedy answer
QUESTIONS = (
    "Name three colors.", "What is the capital of France?", "Write a haiku about the sea.",
    "Explain what a cache is.", "Why is the sky blue?", "Write a short story about a fox.",
    "How do I boil an egg?", "What is 12 times 7?", "Translate 'good morning' into French.",
    "List the planets.", "What is photosynthesis?", "Give me a recipe for pancakes.",
    "Who wrote Hamlet?", "Explain recursion to a child.", "Write a limerick.",
    "What is the difference between a list and a tuple in Python?",
)  # fmt: skip


def compare(pieces: list[torch.Tensor]) -> dict[str, dict[str, float]]:
    """For each cache: the mean and the 99th percentile of the divergence, and the agreement."""
    plain = load_model(find_model(MODEL), "float32")
    folded = load_model(find_model(MODEL), "float32")
    fold_scales(folded)
    caches = {
        "float32, scales folded": (folded, torch.float32),
        "bfloat16": (plain, torch.bfloat16),
        "e4m3": (folded, FP8),
        "e4m3, every scale 1": (plain, FP8),
    }
    found: dict[str, list[torch.Tensor]] = {name: [] for name in caches}
    for piece in pieces:
        wanted = logits(plain, piece, torch.float32).double().log_softmax(-1)
        for name, (model, dtype) in caches.items():
            got = logits(model, piece, dtype).double().log_softmax(-1)
            kl = (wanted.exp() * (wanted - got)).sum(-1)
            same = (wanted.argmax(-1) == got.argmax(-1)).double()
            found[name].append(torch.stack([kl, same]))
    results = {}
    for name, parts in found.items():
        kl, same = torch.cat(parts, dim=1)
        results[name] = {
            "kl_mean": float(kl.mean()), "kl_p99": float(kl.quantile(0.99)),
            "same_likeliest": float(same.mean()),
        }  # fmt: skip
    return results


def answers() -> dict[str, Any]:
    """Greedy answers of two engines that differ in the cache: how long they are the same."""
    params, given = SamplingParams(temperature=0.0, max_tokens=ANSWERS), {}
    for kind in ("auto", "fp8"):
        llm = LLM(MODEL, device="cpu", max_model_len=512, kv_cache_dtype=kind)
        asked = [[{"role": "user", "content": question}] for question in QUESTIONS]
        given[kind] = [out.token_ids for out in llm.chat(asked, params)]
        given[kind + " blocks"] = llm.engine.kv.pool.num_blocks
        llm.close()
    first = [
        next((i for i, (a, b) in enumerate(zip(x, y, strict=False)) if a != b), min(len(x), len(y)))
        for x, y in zip(given["auto"], given["fp8"], strict=True)
    ]
    return {
        "answers": len(first), "tokens": [len(x) for x in given["auto"]],
        "same_at_first": first, "same_whole": sum(map(list.__eq__, given["auto"], given["fp8"])),
        "blocks": given["auto blocks"], "blocks_fp8": given["fp8 blocks"],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=files.output_path)
    output = parser.parse_args().output
    tokenizer = Tokenizer(find_model(MODEL))
    text = "\n".join((ROOT / name).read_text(encoding="utf-8") for name in TEXTS)
    tokens = torch.tensor(tokenizer.encode(text)[: PIECE * PIECES])
    pieces = list(tokens.split(PIECE))
    about = machine.head(torch.device("cpu")) | {"model": MODEL, "positions": len(tokens)}
    results = {"caches": compare(pieces), "greedy": answers()}
    files.save(about | results, output)
    for name, result in results["caches"].items():
        print(f"{name:24} " + "  ".join(f"{key} {value:.5f}" for key, value in result.items()))
    print(results["greedy"])


if __name__ == "__main__":
    main()
