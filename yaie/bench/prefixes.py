"""Prefix caches side by side: this engine's, and those of other engines that can be imported.

Each gets a prompt in the form in which its engine holds it from the request's arrival: a key here,
an array in SGLang, a tensor in mini-sglang, a list in nano-vLLM, hashes of blocks in vLLM. Making
that form is measured by itself, as `hold`. Whatever a prefix cache does with reference counts
belongs to `insert` in `cache`, nano-vLLM and vLLM; the trees leave them to other parts.

    python -m yaie.bench.prefixes --output prefixes.json

CPU time of one thread, the garbage collector off, the caches in turns; the least of the rounds.
"""

import argparse
import gc
import random
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import torch

from yaie.bench.files import output_path, save
from yaie.bench.machine import describe
from yaie.engine.kv_cache import BlockPool
from yaie.engine.prefix_cache import RadixCache
from yaie.engine.radix import RadixTree
from yaie.engine.radix_node import as_key

LENGTHS = (64, 512, 2048, 8192, 32768)
BLOCK_SIZES = (1, 16)
PROMPTS = 4  # that a cache holds; each is looked up once per round
VOCABULARY = 128_256
WORK = ("hold", "insert", "hit", "parts", "misses", "insert again")


class Tree:
    """This engine's tree, without a pool."""

    def __init__(self, size: int, num_blocks: int) -> None:
        self.size, self.cache = size, self.make(size, num_blocks)

    def make(self, size: int, num_blocks: int) -> Any:
        return RadixTree(size)

    def blocks(self, first: int, number: int) -> Any:
        """What the engine holds of a request's blocks."""
        return list(range(first, first + number))

    def hold(self, tokens: list[int]) -> Any:
        return as_key(tokens)

    def match(self, held: Any) -> int:
        return self.cache.match(held).length

    def insert(self, held: Any, blocks: Any) -> None:
        self.cache.insert(held, blocks)


class Cache(Tree):
    """This engine's cache: the tree, and the users of each block."""

    def make(self, size: int, num_blocks: int) -> Any:
        pool = BlockPool(num_blocks)
        pool.allocate(num_blocks)
        return RadixCache(pool, size)

    def match(self, held: Any) -> int:
        return self.cache.tree.match(held).length  # the last token, too, as the others


class SGLang(Tree):
    def make(self, size: int, num_blocks: int) -> Any:
        from sglang.srt.mem_cache import radix_cache

        self.module = radix_cache
        return radix_cache.RadixCache.create_simulated(page_size=size)

    def blocks(self, first: int, number: int) -> Any:
        return torch.arange(first * self.size, (first + number) * self.size)

    def hold(self, tokens: list[int]) -> Any:
        return array("q", tokens)

    def match(self, held: Any) -> int:
        key = self.module.RadixKey(held)
        return self.cache.match_prefix(self.module.MatchPrefixParams(key=key)).device_prefix_len

    def insert(self, held: Any, blocks: Any) -> None:
        key = self.module.RadixKey(held)
        self.cache.insert(self.module.InsertParams(key=key, value=blocks))


class MiniSGLang(Tree):
    def make(self, size: int, num_blocks: int) -> Any:
        from minisgl.kvcache import radix_cache

        radix_cache.get_global_ctx = lambda: type("Context", (), {"page_size": size})
        return radix_cache.RadixPrefixCache(torch.device("cpu"))

    def blocks(self, first: int, number: int) -> Any:
        numbers = torch.arange(first * self.size, (first + number) * self.size)
        return numbers.to(torch.int32)

    def hold(self, tokens: list[int]) -> Any:
        return torch.tensor(tokens, dtype=torch.int32)

    def match(self, held: Any) -> int:
        return self.cache.match_prefix(held).cuda_handle.cached_len

    def insert(self, held: Any, blocks: Any) -> None:
        self.cache.insert_prefix(held, blocks)


class NanoVLLM(Tree):
    def make(self, size: int, num_blocks: int) -> Any:
        from nanovllm.engine import block_manager, sequence

        sequence.Sequence.block_size = size
        self.sequence = sequence.Sequence
        return block_manager.BlockManager(4 * num_blocks + 8, size)

    def hold(self, tokens: list[int]) -> Any:
        return self.sequence([*tokens, 0])  # its last block is never looked up

    def match(self, held: Any) -> int:
        return self.cache.can_allocate(held) * self.size

    def insert(self, held: Any, blocks: Any) -> None:
        held.block_table.clear()
        self.cache.allocate(held, self.cache.can_allocate(held))
        held.num_scheduled_tokens = len(held.token_ids) - held.num_cached_tokens
        self.cache.hash_blocks(held)


class VLLM(Tree):
    def make(self, size: int, num_blocks: int) -> Any:
        from vllm.utils.hashing import sha256
        from vllm.v1.core import block_pool, kv_cache_utils

        self.utils, self.hash = kv_cache_utils, sha256
        kv_cache_utils.init_none_hash(sha256)
        return block_pool.BlockPool(num_blocks + 1, True, size)

    def blocks(self, first: int, number: int) -> Any:
        return first, number

    def hold(self, tokens: list[int]) -> Any:
        request, parent = type("Request", (), {})(), None
        request.block_hashes = []
        for start in range(0, len(tokens) - self.size + 1, self.size):
            block = tokens[start : start + self.size]
            parent = self.utils.hash_block_tokens(self.hash, parent, block)
            request.block_hashes.append(parent)
        return request

    def match(self, held: Any) -> int:
        found = []
        for block_hash in held.block_hashes:
            if not (blocks := self.cache.get_cached_block(block_hash, [0])):
                break
            found += blocks
        return len(found) * self.size

    def insert(self, held: Any, blocks: Any) -> None:
        cached = self.match(held) // self.size
        taken = self.cache.get_new_blocks(blocks[1] - cached)
        table = [None] * cached + taken
        self.cache.cache_full_blocks(held, table, cached, len(table), self.size, 0)


CACHES: dict[str, type[Tree]] = {
    "tree": Tree,
    "cache": Cache,
    "SGLang": SGLang,
    "mini-sglang": MiniSGLang,
    "nano-vLLM": NanoVLLM,
    "vLLM": VLLM,
}


def run(
    lengths: tuple[int, ...] = LENGTHS, sizes: tuple[int, ...] = BLOCK_SIZES, rounds: int = 7
) -> list[dict[str, Any]]:
    """Measure, print a line per situation, and return the figures in microseconds per prompt.

    Raises RuntimeError if a cache finds something else than it should.
    """
    results = []
    for size in sizes:
        names = [name for name in CACHES if importable(name, size)]
        for length in lengths:
            best: dict[tuple[str, str], float] = {}
            for turn in range(rounds):
                for name in names:
                    for work, seconds in measure(CACHES[name], size, length, turn):
                        best[work, name] = min(seconds, best.get((work, name), seconds))
            for work in WORK:
                us = {name: 1e6 * best[work, name] / PROMPTS for name in names}
                results.append({"block_size": size, "tokens": length, "work": work, "us": us})
                told = ", ".join(f"{name} {t:.1f} ({t / us['tree']:.2f})" for name, t in us.items())
                print(f"{length:6} tokens, block size {size:2}, {work:12}: {told}", flush=True)
    return results


def importable(name: str, size: int) -> bool:
    """Whether a cache can be made; this engine's always can."""
    with suppress(ImportError):
        CACHES[name](size, 1)
        return True
    return False


def measure(kind: type[Tree], size: int, length: int, turn: int) -> Iterator[tuple[str, float]]:
    """The seconds of each kind of work on `PROMPTS` prompts, in a new cache."""
    rng = random.Random(turn)
    number = length // size
    prompts = [rng.choices(range(VOCABULARY), k=length) for _ in range(PROMPTS)]
    cache = kind(size, number * PROMPTS)
    start = length * 3 // 4 // size * size  # where a prompt parts from the one that is held
    parting = [[*p[:start], VOCABULARY, *p[start + 1 :]] for p in prompts]
    others = [[VOCABULARY + 1, *prompt[1:]] for prompt in prompts]
    blocks = [cache.blocks(number * i, number) for i in range(PROMPTS)]
    held: list[Any] = []
    yield "hold", timed(lambda: held.extend(map(cache.hold, prompts)))
    yield "insert", timed(lambda: [*map(cache.insert, held, blocks)])
    again = [cache.hold(list(prompt)) for prompt in prompts]
    misses, parts = ([cache.hold(p) for p in several] for several in (others, parting))
    for work, queries, wanted in (
        ("hit", again, number * size), ("misses", misses, 0), ("parts", parts, start)
    ):  # fmt: skip
        found: list[int] = []
        yield work, timed(lambda q=queries, f=found: f.extend(map(cache.match, q)))
        if found != [wanted] * PROMPTS:
            raise RuntimeError(f"{kind.__name__}: {work} found {found} tokens, not {wanted}")
    yield "insert again", timed(lambda: [*map(cache.insert, again, blocks)])


def timed(work: Callable[[], object]) -> float:
    """CPU seconds, with the garbage collector off."""
    gc.disable()
    begin = time.process_time()
    work()
    seconds = time.process_time() - begin
    gc.enable()
    return seconds


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", type=output_path, help="keep the figures as JSON")
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    rows = run(rounds=arguments.rounds)
    if arguments.output:
        save({"machine": describe(torch.device("cpu")), "results": rows}, arguments.output)
