"""17.1: each row in its slot, none of the padding, 16 bytes at a time where that is allowed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from yaie.course.core import cuda
from yaie.course.core.cuda import KernelCase
from yaie.course.core.observe import Observer
from yaie.course.exercises.nb17.pools import pool_of, rows_of
from yaie.ops.cuda.launching import memory

NAME = "reshape_and_cache_simple"
fit = cuda.operator_by("yaie.ops.cuda.kv:reshape_and_cache", name=NAME)
FAR = 2**19  # a slot of rows of LONG bytes that begins beyond byte 2**31
LONG = 4097
APART = 2**31  # bytes, more than an int can count
PADDING = "A negative slot marks a row of padding, for which there is nothing to write."
STRIDE = "A slot holds a whole row, `size` units, and slot s begins at unit s * size."
EXPLAIN = {
    "out_of_bounds": (
        f"{STRIDE} Token t begins key_stride (or value_stride) units after token t - 1, and its "
        "row has `size` units."
    ),
    "misaligned": "The unit has to divide four addresses, row_bytes and both strides.",
    "race": f"Two threads write the same place, so one row lands on another's. {STRIDE}",
}


def cases() -> Iterator[KernelCase]:
    yield tokens("3 tokens, 2 heads of 4", (3, 2, 4, 4))
    yield tokens("2 tokens, 3 heads of 200, more units than threads", (2, 3, 200, 2))
    yield tokens("4 tokens, of which 2 are padding", (4, 2, 8, 3), padding=(1, 3))
    yield tokens("4 tokens in a fused product", (4, 2, 8, 3), fused=True)
    yield from cuda.in_every_order(tokens("5 tokens, 3 heads of 8", (5, 3, 8, 4)))
    for dim in (1, 5, 6, 33):
        yield tokens(f"3 tokens, 1 head of {dim}", (3, 1, dim, 4))
    for moved in ("keys", "values", "key_pool", "value_pool"):
        words = f"3 tokens, 2 heads of 8, {moved} at a multiple of 4"
        yield tokens(words, (3, 2, 8, 4), moved=moved)
    yield tokens("rows of 96 bytes in float16", (4, 3, 16, 4), half=True)
    yield tokens("rows of 22 bytes in float16", (4, 1, 11, 4), half=True)
    yield tokens("odd strides, 3 heads of 16 of 49", (4, 3, 16, 4), odd=True)
    words = "3 tokens, 2 heads of 64, every address a multiple of 16"
    yield tokens(words, (3, 2, 64, 4), costs=True)
    far = {"how": {"checked": False, "most_blocks": 2}}
    yield KernelCase(f"a row of {LONG:,} bytes for slot {FAR:,}", shape=None, **far)
    words = f"2 tokens whose rows begin {APART:,} bytes apart"
    yield KernelCase(words, shape=None, apart=True, **far)


def tokens(words: str, shape: tuple, costs: bool = False, **layout: Any) -> KernelCase:
    return KernelCase(words, shape=shape, costs=costs, layout=layout)


def inputs(
    shape: tuple[int, int, int, int], padding: tuple[int, ...] = (), fused: bool = False,
    odd: bool = False, moved: str = "", half: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """The tensors of a launch; numbers of new rows are above 0."""
    tokens, heads, dim, block_size = shape
    new = 1.0 + torch.arange(2 * tokens * heads * dim).view(tokens, 2 * heads, dim)
    keys, values = new[:, :heads], new[:, heads:] + 0.5
    if odd:  # a row of a token is one element longer than its heads
        room = torch.zeros(tokens, heads * dim + 1)
        room[:, : heads * dim] = keys.flatten(1)
        keys = room[:, : heads * dim].view(tokens, heads, dim)
    elif not fused:
        keys = keys.contiguous()
    blocks = -(-tokens // block_size) + 2
    found = {
        "keys": keys,
        "values": new[:, heads:] if fused else values.contiguous(),
        "key_pool": pool_of(blocks, block_size, heads, dim),
        "value_pool": pool_of(blocks, block_size, heads, dim, seed=1),
    }
    if half:
        found = {name: (tensor % 1000).half() for name, tensor in found.items()}
    if moved:
        room = torch.zeros(found[moved].numel() + 1)
        found[moved] = room[1:].view(found[moved].shape).copy_(found[moved])
    order = torch.randperm(blocks * block_size, generator=torch.Generator().manual_seed(tokens))
    slots = order[:tokens].clone()
    if padding:
        slots[list(padding)] = -1 - torch.arange(len(padding))
    return {**found, "slots": slots}


def arguments(given: dict[str, Any]) -> tuple[Any, ...]:
    keys, values = given["keys"], given["values"]
    size = keys.element_size()
    return (
        *(memory(keys), memory(values), given["key_pool"], given["value_pool"], given["slots"]),
        *(len(keys), keys[0].numel() * size, keys.stride(0) * size, values.stride(0) * size),
    )


def observe(path: Path, case: KernelCase, see: Observer) -> None:
    if case.shape is None:
        (observe_apart if hasattr(case, "apart") else observe_far)(path, case, see)
        return
    tensors = inputs(case.shape, **case.layout)
    slots = tensors["slots"]
    real = slots >= 0
    wanted = {}
    for name, source in (("key_pool", "keys"), ("value_pool", "values")):
        wanted[name] = rows_of(tensors[name]).clone()
        wanted[name][slots[real]] = tensors[source].flatten(1)[real]
    report = cuda.run(see, path, NAME, *arguments(tensors), explain=EXPLAIN, **case.how)
    for name, want in wanted.items():
        because = f"Row t belongs at slots[t], here {slots.tolist()}. {STRIDE}"
        if not bool(real.all()):
            because = f"{because} {PADDING}"
        see.equal(f"{name}, slot by slot", rows_of(tensors[name]), want, because)
    if case.costs:
        sizes = sorted({access.size for access in report.accesses if access.name != "slots"})
        unit = "Every address, the row and both strides are multiples of 16 here."
        see.equal("the bytes per load and store", sizes, [16], unit)
        neighbors = "Neighboring threads take neighboring units."
        cuda.cheap(see, report, dict.fromkeys(("global load", "global store"), neighbors))


def observe_far(path: Path, case: KernelCase, see: Observer) -> None:
    """One row, to a slot that begins beyond what an int can count; the pools take no memory."""
    new = torch.arange(2 * LONG).to(torch.uint8).view(2, 1, LONG)
    pools = [cuda.reserved((FAR + 1) * LONG, torch.uint8) for _ in range(2)]
    slots = torch.tensor([FAR])
    cuda.run(see, path, NAME, *new, *pools, slots, 1, LONG, LONG, LONG, explain=EXPLAIN, **case.how)
    for name, pool, row in zip(("key_pool", "value_pool"), pools, new, strict=True):
        past = f"Slot {FAR:,} begins at byte {FAR * LONG:,}, beyond what an int can hold."
        see.equal(f"the slot in {name}", pool[-LONG:], row[0], past)


def observe_apart(path: Path, case: KernelCase, see: Observer) -> None:
    """Two short rows of keys, and of values, far from each other."""
    size = 5
    new = [cuda.reserved(APART + size, torch.uint8) for _ in range(2)]
    pools = [torch.zeros(2, 1, 1, size, dtype=torch.uint8) for _ in range(2)]
    for number, rows in enumerate(new):
        for token, start in enumerate((0, APART)):
            rows[start : start + size] = 1 + 2 * number + token
    sizes = (2, size, APART, APART)
    cuda.run(see, path, NAME, *new, *pools, torch.tensor([0, 1]), *sizes, **case.how)
    for name, pool, first in zip(("key_pool", "value_pool"), pools, (1, 3), strict=True):
        past = f"Token 1 begins at byte {APART:,}, beyond what an int can hold."
        want = torch.tensor([[first], [first + 1]], dtype=torch.uint8).expand(2, size)
        see.equal(f"{name}, slot by slot", rows_of(pool), want, past)


def draw(path: Path) -> Any:
    """Which token lies in which slot, as the kernel left it."""
    from yaie.course.viz.paged import draw_slots

    case = inputs((9, 2, 4, 4))
    before = rows_of(case["key_pool"]).clone()
    cuda.report_of(path, NAME, *arguments(case))
    rows, keys = rows_of(case["key_pool"]), case["keys"].flatten(1)
    slots = [int((rows == key).all(1).nonzero()[0]) for key in keys]
    assert int((rows != before).any(1).sum()) == len(slots)
    return draw_slots([f"t{t}" for t in range(len(slots))], slots, len(case["key_pool"]), 4)
