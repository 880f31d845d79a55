"""Cases of draft-extend's metadata and of the lookup in a flat radix tree, with their peers."""

import torch

from yaie.bench.cases import Case, Draw
from yaie.bench.protocol import Call
from yaie.course.lessons.flat_tree import flatten
from yaie.engine.radix import RadixTree

TOPK = 2048  # keys that the sparse attention keeps
DRAFTS = 5  # a request extends by 0 to DRAFTS - 1 tokens
BATCHES = (4, 8, 16, 32, 64, 128, 256, 512, 1024)
SEARCHED = (2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128, 256, 1024)
CHUNK = 256  # times as many tokens: chunks of prompts in place of drafts


def draft_extend(batch: int, times: int = 1) -> Case:
    """Metadata of `batch` requests that each extend by 0 to 4 tokens, or `times` as many, of up to
    65,536 keys."""
    lengths = [i * 7 % DRAFTS * times for i in range(batch)]
    num_tokens = sum(lengths)

    def arguments(draw: Draw) -> tuple:
        extend = torch.tensor(lengths, dtype=torch.int32, device=draw.device)
        keys = extend + (draw.permutation(1 << 16)[:batch]).int()
        outputs = (torch.empty(num_tokens, dtype=torch.int32, device=draw.device) for _ in "ab")
        return extend[draw.permutation(batch)], keys, TOPK, *outputs, num_tokens

    def written(extend, keys, topk, expanded, cached, num_tokens) -> tuple:
        return expanded, cached

    def spoil(extend, keys, topk, expanded, cached, num_tokens) -> None:
        expanded.fill_(-(2**31))
        cached.fill_(-(2**31))

    def wanted(extend, keys, topk, expanded, cached, num_tokens) -> tuple:
        seen = [
            max(kv - q + 1 + i, 0)
            for q, kv in zip(extend.tolist(), keys.tolist(), strict=True)
            for i in range(q)
        ]
        both = (seen, [min(v, topk) for v in seen])
        return tuple(torch.tensor(x, dtype=torch.float64, device=extend.device) for x in both)

    return Case(
        "fill_draft_extend_metadata", f"batch {batch}", arguments,
        4 * (2 * batch + 2 * num_tokens), 0,
        oracle=wanted, compiled=False,
        calls_reference="torch, vectorized", changes=written, spoil=spoil,
        peers={"Python, a loop over requests": _loop},
    )  # fmt: skip


def _loop(extend, keys, topk, expanded, cached, num_tokens) -> Call:
    """As it is written first: the lengths go to the host, and each request gets its own range."""

    def call() -> tuple:
        parts = [
            torch.arange(kv - q + 1, kv + 1, dtype=torch.int32, device=extend.device)
            for q, kv in zip(extend.tolist(), keys.tolist(), strict=True)
        ]
        seen = torch.cat(parts).clamp(min=0)
        expanded.copy_(seen)
        cached.copy_(seen.clamp(max=topk))
        return expanded, cached

    return call


def prefix_lookup(batch: int, tokens: int, shared: int, block_size: int) -> Case:
    """Prompts of `tokens` tokens that all begin alike, then part; all of them are cached."""
    generator = torch.Generator().manual_seed(0)
    prompts = torch.randint(49152, (batch, tokens), generator=generator, dtype=torch.int32)
    prompts[:, :shared] = prompts[0, :shared]
    blocks = tokens // block_size
    rows = prompts.tolist()
    tree = RadixTree(block_size)
    for i, row in enumerate(rows):
        tree.insert(row, range(i * blocks, (i + 1) * blocks))
    flat = flatten(tree)

    def arguments(draw: Draw) -> tuple:
        bounds = torch.arange(batch + 1, dtype=torch.int32, device=draw.device) * tokens
        on_device = flat.to(draw.device)
        return prompts.flatten().to(draw.device), bounds, *on_device.arrays, block_size, blocks

    def wanted(*_: object) -> tuple:
        found = [tree.match(row) for row in rows]
        lasts = {node: number for number, node in enumerate(flat.nodes)}
        columns = (
            [match.length for match in found],
            [lasts[match.node] for match in found],
            [match.values for match in found],
        )
        return tuple(torch.tensor(x, dtype=torch.float64, device=_[0].device) for x in columns)

    read = len(flat.starts) + len(flat.children) + len(flat.tokens) + len(flat.values)
    written = batch * (2 + blocks)
    return Case(
        "match_prefixes", f"{batch} prompts of {tokens} tokens", arguments,
        4 * (batch * tokens + batch + 1 + read + written), 0,
        oracle=wanted, compiled=False, writes=False,
        peers={"RadixTree.match, one by one": lambda *_: lambda: _matches(tree, rows, _[0])},
    )  # fmt: skip


def _matches(tree: RadixTree, rows: list[list[int]], like: torch.Tensor) -> torch.Tensor:
    return torch.tensor([tree.match(row).length for row in rows], device=like.device)
