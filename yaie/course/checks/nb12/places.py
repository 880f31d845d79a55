"""The check of where rows and keys are: queries of a tile, slots of the cache."""

from __future__ import annotations

import random
from typing import Any

from yaie.course.checks.nb10.common import spaced
from yaie.course.core.expect import equal, fail, given

TWO_RETURNED = {
    ValueError: "It returns two blocks of the shape of `rows`: the queries and the heads.",
    TypeError: "It returns two blocks of the shape of `rows`: the queries and the heads.",
}
ONE_RETURNED = {
    TypeError: "A pointer is added to: `table + entries`. What is returned is one block, the "
    "slots, of the shape of `keys`.",
    AttributeError: "It returns one block, the slots, of the shape of `keys`.",
}


def check_places(kernels: Any) -> None:
    for group, kv_heads, kv_head, first_row in (
        (4, 2, 1, 0), (3, 3, 1, 0), (3, 3, 2, 16), (1, 4, 2, 0), (8, 2, 0, 8)
    ):  # fmt: skip
        one_tile(kernels, group, kv_heads, kv_head, first_row)
    one_part(kernels, 10, 0, 10, block_size=4, num_keys=8)
    for context, start, end in ((40, 0, 40), (40, 32, 40), (37, 0, 16), (33, 32, 33), (5, 0, 5)):
        one_part(kernels, context, start, end, block_size=16, num_keys=32)
    far_away(kernels)


def one_tile(kernels: Any, group: int, kv_heads: int, kv_head: int, first_row: int) -> None:
    import torch

    from yaie.course.checks.nb12.kernels import queries_kernel
    from yaie.course.core.triton import launch

    queries, heads = (spaced(torch.full((8,), -1, dtype=torch.int32)) for _ in range(2))
    of_kv_head = [h for h in range(group * kv_heads) if h // group == kv_head]
    pairs = [(query, head) for query in range(64) for head in of_kv_head]
    want = pairs[first_row : first_row + 8]
    arguments = {
        "queries": queries, "heads": heads, "first_row": first_row, "kv_head": kv_head,
        "group": group,
    }  # fmt: skip
    call = (
        f"rows {first_row} to {first_row + 7} of KV head {kv_head}, "
        f"{group * kv_heads} query heads and {kv_heads} KV heads (group {group})"
    )
    rows = range(first_row, first_row + 8)
    with given(call, TWO_RETURNED):
        launch(queries_kernel, (1,), arguments, FIND=kernels.find_queries, ROWS=8)
        equal(
            queries.tolist(),
            [query for query, _ in want],
            "the block of queries",
            because=f"{group} rows in turn are one query.",
            mistakes=[
                ([row % group for row in rows], "Division and remainder are exchanged: all heads "
                 "of query 0 come first, then those of query 1."),
                ([*rows], "Every row was taken for a query of its own; each has `group` rows."),
            ],
        )  # fmt: skip
        equal(
            heads.tolist(),
            [head for _, head in want],
            "the block of heads",
            because=f"KV head {kv_head} is read by the query heads {of_kv_head}.",
            mistakes=[
                (
                    [row % group * kv_heads + kv_head for row in rows],
                    "That takes every head h with h % (KV heads) = kv_head. Head h reads KV head "
                    "h // group: those that share one are neighbors.",
                ),
                ([row % group + kv_head for row in rows], "KV head 1 begins at query head "
                 "`group`, not at query head 1."),
                ([row % group for row in rows], "These are the heads of KV head 0, for every KV "
                 "head."),
                ([kv_head * group + row // group for row in rows], "Division and remainder are "
                 "exchanged."),
                ([kv_head for _ in rows], "That is the KV head itself."),
            ],
        )  # fmt: skip


def one_part(
    kernels: Any, context: int, start: int, end: int, block_size: int, num_keys: int
) -> None:
    """The slots of some keys of the second of two sequences, whose blocks lie anywhere."""
    import torch

    from yaie.course.core.triton import launch

    blocks = random.Random(context).sample(range(1, 39), -(-context // block_size))
    tables = torch.full((2, len(blocks) + 2), -(1 << 20), dtype=torch.int32)
    tables[0] = 39  # somebody else's
    tables[1, : len(blocks)] = torch.tensor(blocks, dtype=torch.int32)
    tables = spaced(tables)
    slots = spaced(torch.full((num_keys,), -1, dtype=torch.int64))
    call = (
        f"keys {start} to {start + num_keys - 1}, end = {end}, blocks of {block_size}, the table "
        f"{[*blocks, '?', '?']}"
    )
    from yaie.course.checks.nb12.kernels import slots_kernel

    arguments = {
        "tables": tables, "slots": slots, "sequence": 1, "max_blocks": tables.shape[1],
        "start": start, "end": end,
    }  # fmt: skip
    keys = range(start, min(start + num_keys, end))
    of = [(blocks[key // block_size], key % block_size) for key in keys]
    with given(call, ONE_RETURNED):
        trace = launch(
            slots_kernel, (1,), arguments, told_entry,
            FIND=kernels.find_slots, BLOCK_SIZE=block_size, KEYS=num_keys,
        )  # fmt: skip
        equal(
            slots.tolist()[: len(keys)],
            [block * block_size + offset for block, offset in of],
            "the block of slots",
            because="A slot is block × BLOCK_SIZE + offset.",
            mistakes=[
                ([b * block_size + k for (b, _), k in zip(of, keys, strict=True)],
                 "The offset is the key's place in its block, key % BLOCK_SIZE. The key itself "
                 "was added."),
                ([b + o for b, o in of], "A block has BLOCK_SIZE slots: block × BLOCK_SIZE."),
                ([b * block_size for b, _ in of], "All keys of a block have its first slot here: "
                 "the offset is missing."),
                ([b for b, _ in of], "That is the block. Each has BLOCK_SIZE slots."),
                ([*keys], "That is the key's place in the sequence. Where it lies the table says."),
                ([39 * block_size + o for _, o in of], "These are blocks of the table's first "
                 "row, another sequence."),
            ],
        )  # fmt: skip
        only_needed(trace, -(-end // block_size), tables.shape[1])


def only_needed(trace: Any, needed: int, max_blocks: int) -> None:
    """No entry beyond the wanted keys was loaded, although nothing came of it here."""
    for access in trace.of("tables", "load"):
        entries = access.elements[access.mask] - max_blocks
        if entries.size and entries.max() >= needed:
            fail(
                f"the slots are right, but entry {entries.max()} of the table was loaded, and the "
                f"wanted keys end in entry {needed - 1}.\n    {access.text}\n{PADDING}"
            )


PADDING = (
    "Beyond the context an entry may be anything, and the last row of the tables ends somewhere. "
    "Mask the load by `keys < end`."
)


def told_entry(access: Any) -> str:
    return PADDING


def far_away(kernels: Any) -> None:
    """A pool with more slots than an int32 can count."""
    import torch

    from yaie.course.checks.nb12.kernels import slots_kernel
    from yaie.course.core.triton import launch

    block = 150_000_000
    tables = spaced(torch.tensor([[block]], dtype=torch.int32))
    slots = spaced(torch.full((16,), -1, dtype=torch.int64))
    arguments = {
        "tables": tables, "slots": slots, "sequence": 0, "max_blocks": 1, "start": 0, "end": 4,
    }  # fmt: skip
    want = [block * 16 + offset for offset in range(4)]
    wrapped = [(slot + (1 << 31)) % (1 << 32) - (1 << 31) for slot in want]
    with given(f"a table with the block {block:,}, blocks of 16", ONE_RETURNED):
        launch(
            slots_kernel, (1,), arguments, told_entry,
            FIND=kernels.find_slots, BLOCK_SIZE=16, KEYS=16,
        )  # fmt: skip
        equal(
            slots.tolist()[:4],
            want,
            "the block of slots",
            because="",
            mistakes=[
                (wrapped, "block × BLOCK_SIZE does not fit in 32 bits, and turned negative. Widen "
                 "the block before it is multiplied: `.to(tl.int64)`."),
            ],
        )  # fmt: skip


def draw_places(kernels: Any) -> Any:
    """A context of 76 tokens in a pool of 24 blocks, found by the learner's function."""
    import torch

    from yaie.course.checks.nb12.kernels import slots_kernel
    from yaie.course.core.triton import launch
    from yaie.course.viz.splits import Part, draw_splits

    blocks = [13, 2, 20, 7, 16]
    tables = spaced(torch.tensor([blocks], dtype=torch.int32))
    parts = []
    for start, end in ((0, 32), (32, 64), (64, 76)):
        slots = spaced(torch.full((32,), -1, dtype=torch.int64))
        arguments = {
            "tables": tables, "slots": slots, "sequence": 0, "max_blocks": len(blocks),
            "start": start, "end": end,
        }  # fmt: skip
        launch(
            slots_kernel, (1,), arguments,
            FIND=kernels.find_slots, BLOCK_SIZE=16, KEYS=32,
        )  # fmt: skip
        parts.append(Part(start, tuple(slots.tolist()[: end - start])))
    return draw_splits(parts, num_blocks=24, block_size=16)
