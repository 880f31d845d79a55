"""17.3: divided by the right scale, rounded to the nearest, never past the end."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from yaie.course.core import cuda
from yaie.course.core.cuda import KernelCase
from yaie.course.core.observe import Observer
from yaie.course.exercises.nb17.pools import pool_of
from yaie.ops.cuda.launching import memory

NAME = "reshape_and_cache_fp8"
APART = 2, 5  # elements between the rows of two tokens, of keys and of values
FAR, LONG = 2**19, 4097  # a slot of rows of LONG codes that begins beyond byte 2**31
LARGEST = 448.0
EXPLAIN = {
    "out_of_bounds": (
        "A row has `size` elements, a byte each in the pool, and a head one scale. Rows of keys "
        "begin key_stride elements apart, those of values value_stride."
    ),
    "race": "Each element of a row belongs to one thread.",
}


def cases() -> Iterator[KernelCase]:
    yield numbers([1.0, -2.0, 0.5, 3.5, 0.0, 240.0], "numbers that e4m3 has")
    yield numbers([4.0, -8.0, 96.0, 0.75], "scale 4", 4.0)
    yield numbers([1.05, 1.10, 1.19, -1.07, 0.0105, 300.0, -0.001], "between two codes")
    yield numbers([448.0, 449.0, 1000.0, -1e6, 30000.0, -464.0], "numbers too large for e4m3")
    yield numbers([175.0, 203.0, -175.0, 406.0], "quotients halfway between two codes", 7.0)
    inf = float("inf")
    yield numbers([float("nan"), 2.0, inf, -inf], "NaN, 2, infinity, -infinity")
    words = "3 heads with scales 2, 1 and 0.5 for keys, 4, 1 and 2 for values"
    rising = torch.arange(12.0).view(1, 3, 4)
    scales = torch.tensor([2.0, 1.0, 0.5]), torch.tensor([4.0, 1.0, 2.0])
    yield stores(words, (1.0 + rising, 32.0 - 2 * rising), scales, torch.tensor([2]))
    yield from cuda.in_every_order(drawn((5, 3, 8, 4), "f32", per_head=True))
    yield spread(drawn((4, 2, 8, 4), "f32", per_head=True))
    for suffix in cuda.SUFFIXES.values():
        yield drawn((3, 2, 33, 4), suffix, per_head=False)
        yield drawn((2, 3, 100, 2), suffix, per_head=True)
    words = f"a row of {LONG:,} elements for slot {FAR:,}"
    new, ones = (torch.ones(1, 1, LONG),) * 2, (torch.ones(1),) * 2
    how = {"checked": False, "most_blocks": 2}
    yield stores(words, new, ones, torch.tensor([FAR]), how=how)


def stores(
    words: str, new: tuple[Any, Any], scales: tuple[Any, Any], slots: Any, block_size: int = 4,
    suffix: str = "f32", **data: Any,
) -> KernelCase:  # fmt: skip
    """`new` are keys and values, `[tokens, heads, dim]`; `scales` has one or one per head of
    each."""
    given = {"new": new, "scales": scales, "slots": slots, "block_size": block_size}
    return KernelCase(words, **given, **data, suffix=suffix)


def spread(case: KernelCase) -> KernelCase:
    """The same with room between the rows of two tokens, more of it for values than for keys."""
    new = []
    for rows, more in zip(case.new, APART, strict=True):
        tokens, heads, dim = rows.shape
        room = torch.zeros(tokens, heads * dim + more, dtype=rows.dtype)
        room[:, : heads * dim] = rows.flatten(1)
        new.append(room[:, : heads * dim].view(rows.shape))
    words = "{}, rows {} elements apart in keys and {} in values".format(case, *APART)
    return KernelCase(**{**vars(case), "name": words, "new": tuple(new)})


def numbers(listed: list[float], words: str, scale: float = 1.0) -> KernelCase:
    """One token, one head; the values are half the keys."""
    keys, scales = torch.tensor(listed).view(1, 1, -1), torch.tensor([scale])
    return stores(words, (keys, keys / 2), (scales, scales), torch.tensor([5]))


def drawn(shape: tuple[int, int, int, int], suffix: str, per_head: bool) -> KernelCase:
    tokens, heads, dim, block_size = shape
    words = f"{tokens} tokens, {heads} heads of {dim}, {suffix}, "
    words += "a scale per head" if per_head else "one scale"
    dtype, generator = cuda.dtype_of(suffix), torch.Generator().manual_seed(dim)
    new = [(torch.randn(tokens, heads, dim, generator=generator) * 40).to(dtype) for _ in "kv"]
    count = heads if per_head else 1
    scales = [torch.rand(count, generator=generator) * 0.5 + 0.1 for _ in "kv"]
    slots = torch.randperm(4 * block_size, generator=generator)[:tokens]
    return stores(words, tuple(new), tuple(scales), slots, block_size, suffix)


def stored(x: Any, scale: Any) -> Any:
    """x / scale as e4m3 numbers, in float32; x [tokens, heads, dim]."""
    scaled = x.float() / scale.view(1, -1, 1)
    return scaled.clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn).float()


def observe(path: Path, case: KernelCase, see: Observer) -> None:
    if int(case.slots.max()) == FAR:
        observe_far(path, case, see)
        return
    (keys, values), scales, slots, block_size = case.new, case.scales, case.slots, case.block_size
    tokens, heads, dim = keys.shape
    blocks = int(slots.max()) // block_size + 2
    pools = [
        (pool_of(blocks, block_size, heads, dim, seed) % 7 + 0.25).to(torch.float8_e4m3fn)
        for seed in (0, 1)
    ]
    others = torch.ones(blocks * block_size, dtype=torch.bool)
    others[slots] = False
    before = [pool.view(torch.uint8).flatten(0, 1)[others].clone() for pool in pools]
    cuda.run(
        see, path, f"{NAME}_{case.suffix}", memory(keys), memory(values), *pools, slots, *scales,
        tokens, heads, dim, int(len(scales[0]) > 1), keys.stride(0), values.stride(0),
        explain=EXPLAIN, **case.how,
    )  # fmt: skip
    for number, (name, new) in enumerate((("key_pool", keys), ("value_pool", values))):
        codes, scale = pools[number].flatten(0, 1), scales[number]
        nearest = f"What is stored is the e4m3 number nearest to x / scale, scale {scale.tolist()}."
        got, want = codes[slots].float(), stored(new, scale)
        see.equal(f"{name} at the tokens' slots, decoded", got, want, nearest)
        kept = codes.view(torch.uint8)[others]
        see.equal(f"{name} at the other slots", kept, before[number], "No token has these slots.")


def observe_far(path: Path, case: KernelCase, see: Observer) -> None:
    """One row, to a slot that begins beyond what an int can count; the pools take no memory."""
    pools = [cuda.reserved((FAR + 1) * LONG, torch.uint8) for _ in range(2)]
    codes = [pool.view(torch.float8_e4m3fn) for pool in pools]
    sizes = (1, 1, LONG, 0, LONG, LONG)
    given = (*case.new, *codes, case.slots, *case.scales, *sizes)
    cuda.run(see, path, f"{NAME}_{case.suffix}", *given, explain=EXPLAIN, **case.how)
    one = torch.ones(LONG).to(torch.float8_e4m3fn).view(torch.uint8)
    for name, pool in zip(("key_pool", "value_pool"), pools, strict=True):
        past = f"Slot {FAR:,} begins at code {FAR * LONG:,}, beyond what an int can hold."
        see.equal(f"the slot in {name}", pool[-LONG:], one, past)


def draw(path: Path) -> Any:
    """What each line costs a warp."""
    keys, ones = torch.randn(2, 2, 64, generator=torch.Generator().manual_seed(0)), torch.ones(1)
    pools = [torch.zeros(2, 4, 2, 64).to(torch.float8_e4m3fn) for _ in range(2)]
    sizes = (2, 2, 64, 0, 128, 128)
    return cuda.draw_lines(
        path, f"{NAME}_f32", keys, keys, *pools, torch.tensor([5, 2]), ones, ones, *sizes
    )
