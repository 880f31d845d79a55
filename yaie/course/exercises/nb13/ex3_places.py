"""13.3: which rows `find_queries` gives a tile, and which entries `find_slots` looks up."""

import random
from collections.abc import Iterator
from typing import Any

import torch

from yaie.course.core.observe import Case, Observer
from yaie.course.core.triton import Trace, run
from yaie.course.exercises.nb11.tensors import poisoned, spaced
from yaie.course.exercises.nb13.kernels import operator_by, queries_kernel, slots_kernel

fit = operator_by("find_queries", "find_slots")
ANYTHING = -(1 << 20)  # in entries beyond the context
PADDING = (
    "Beyond the context an entry may hold anything, and no entry lies past the last row of the "
    "tables. Mask the load by `keys < end`."
)


def cases() -> Iterator[Case]:
    for group, kv_heads, kv_head, first_row in (
        (4, 2, 1, 0), (3, 3, 1, 0), (3, 3, 2, 16), (1, 4, 2, 0), (8, 2, 0, 8)
    ):  # fmt: skip
        name = (
            f"rows {first_row} to {first_row + 7} of KV head {kv_head}, {group * kv_heads} query "
            f"heads and {kv_heads} KV heads (group {group})"
        )
        yield Case(name, rows=(group, kv_heads, kv_head, first_row))
    yield part(10, 0, 10, block_size=4, num_keys=8)
    yield part(5, 0, 5, block_size=4, num_keys=16)
    for context, start, end in ((40, 0, 40), (40, 32, 40), (37, 0, 16), (33, 32, 33), (5, 0, 5)):
        yield part(context, start, end, block_size=16, num_keys=32)
    name = "a table with the block 150,000,000, blocks of 16"
    yield Case(name, rows=None, blocks=[150_000_000], padding=0, start=0, end=4, block_size=16,
               num_keys=16)  # fmt: skip


def part(context: int, start: int, end: int, block_size: int, num_keys: int) -> Case:
    """Some keys of the second of two sequences, whose blocks lie anywhere."""
    blocks = random.Random(context).sample(range(1, 39), -(-context // block_size))
    name = (
        f"keys {start} to {start + num_keys - 1}, end = {end}, blocks of {block_size}, the table "
        f"{[*blocks, '?', '?']}"
    )
    return Case(name, rows=None, blocks=blocks, padding=2, start=start, end=end,
                block_size=block_size, num_keys=num_keys)  # fmt: skip


def observe(kernels: Any, case: Case, see: Observer) -> None:
    if case.rows:
        observe_queries(kernels, *case.rows, see)
        return
    with see.call("find_slots"):
        slots, trace = find_slots(kernels, case, see)
    keys = range(case.start, min(case.start + case.num_keys, case.end))
    size = case.block_size
    want = [case.blocks[key // size] * size + key % size for key in keys]
    why = f"A slot is block × BLOCK_SIZE + offset, and key j is in entry j // {size}."
    see.equal("the block of slots", slots, want, why)
    needed, width = -(-case.end // size), len(case.blocks) + case.padding
    loaded = [x.elements[x.mask] - width for x in trace.of("tables", "load")]
    beyond = sorted({int(entry) for entries in loaded for entry in entries if entry >= needed})
    problem = f"was loaded, and the wanted keys end in entry {needed - 1}" if beyond else ""
    problem = f"{beyond[0]} of the table {problem}" if beyond else ""
    see.note("entry", beyond, problem, PADDING)


def observe_queries(
    kernels: Any, group: int, kv_heads: int, kv_head: int, first_row: int, see: Observer
) -> None:
    queries, heads = (poisoned(8, dtype=torch.int32, value=-1) for _ in range(2))
    arguments = {
        "queries": queries, "heads": heads, "first_row": first_row, "kv_head": kv_head,
        "group": group,
    }  # fmt: skip
    with see.call("find_queries"):
        run(see, queries_kernel, (1,), arguments, FIND=kernels.find_queries, ROWS=8)
    of_kv_head = [h for h in range(group * kv_heads) if h // group == kv_head]
    want = [(query, head) for query in range(64) for head in of_kv_head][first_row : first_row + 8]
    why = f"{group} successive rows are one query."
    see.equal("the block of queries", queries.tolist(), [query for query, _ in want], why)
    why = f"KV head {kv_head} is read by the query heads {of_kv_head}."
    see.equal("the block of heads", heads.tolist(), [head for _, head in want], why)


def find_slots(kernels: Any, case: Case, see: Observer) -> tuple[list[int], Trace]:
    """The slots of the wanted keys of sequence 1, by the learner's function."""
    row = [*case.blocks, *[ANYTHING] * case.padding]
    tables = spaced(torch.tensor([[39] * len(row), row], dtype=torch.int32))
    slots = poisoned(case.num_keys, dtype=torch.int64, value=-1)
    arguments = {
        "tables": tables, "slots": slots, "sequence": 1, "max_blocks": len(row),
        "start": case.start, "end": case.end,
    }  # fmt: skip
    trace = run(
        see, slots_kernel, (1,), arguments, lambda access: PADDING,
        FIND=kernels.find_slots, BLOCK_SIZE=case.block_size, KEYS=case.num_keys,
    )  # fmt: skip
    return slots.tolist()[: min(case.num_keys, case.end - case.start)], trace


def draw(kernels: Any) -> Any:
    """A context of 76 tokens in a pool of 24 blocks, found by the learner's function."""
    from yaie.course.viz.splits import Part, draw_splits

    parts = []
    for start, end in ((0, 32), (32, 64), (64, 76)):
        case = Case("", blocks=[13, 2, 20, 7, 16], padding=0, start=start, end=end,
                    block_size=16, num_keys=32)  # fmt: skip
        parts.append(Part(start, tuple(find_slots(kernels, case, Observer())[0])))
    return draw_splits(parts, num_blocks=24, block_size=16)
