"""The check of 16.3: divided by the right scale, rounded to the nearest, never past the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from yaie.course.checks.nb14.common import dtypes, on_every_schedule, report_of
from yaie.course.checks.nb16.common import pool_of
from yaie.course.core.cuda import launch
from yaie.course.core.expect import equal, fail, given

NAME = "reshape_and_cache_fp8"
LARGEST = 448.0
THREADS = 128  # of a thread block


def check_fp8(path: Path) -> None:
    numbers(path, [1.0, -2.0, 0.5, 3.5, 0.0, 240.0], "numbers that e4m3 has", 1.0)
    numbers(path, [4.0, -8.0, 96.0, 0.75], "scale 4", 4.0)
    numbers(path, [1.05, 1.10, 1.19, -1.07, 0.0105, 300.0, -0.001], "between two codes", 1.0)
    numbers(path, [448.0, 449.0, 1000.0, -1e6, 30000.0, -464.0], "numbers too large for e4m3", 1.0)
    infinite(path)
    heads(path)

    def values(order: str) -> None:
        random_case(path, (5, 3, 8, 4), "f32", per_head=True, order=order)

    on_every_schedule(values)
    for suffix in dtypes():
        random_case(path, (3, 2, 33, 4), suffix, per_head=False)
        random_case(path, (2, 3, 100, 2), suffix, per_head=True)


def stored(x: Any, scale: Any) -> Any:
    """x / scale as e4m3 numbers, in float32; x [tokens, heads, dim]."""
    import torch

    scaled = x.float() / scale.view(1, -1, 1)
    return scaled.clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn).float()


def truncated(x: Any, scale: Any) -> Any:
    """The same, cut off instead of rounded."""
    nearest = stored(x, scale)
    scaled = x.float() / scale.view(1, -1, 1)
    codes = _codes()
    found = nearest.clone().flatten()
    for i, number in enumerate(scaled.abs().flatten().tolist()):
        below = codes[codes <= number]
        found[i] = below[-1].item() * (1 if scaled.flatten()[i] >= 0 else -1)
    return found.view(x.shape)


def _codes() -> Any:
    import torch

    return torch.arange(0x7F, dtype=torch.uint8).view(torch.float8_e4m3fn).float()


def run(
    path: Path, words: str, keys: Any, values: Any, scales: tuple[Any, Any], slots: Any,
    block_size: int, order: str = "forward", suffix: str = "f32",
) -> tuple[Any, Any]:  # fmt: skip
    """The rows of both pools at the slots, in float32, `[tokens, heads, dim]`."""
    import torch

    tokens, num_heads, dim = keys.shape
    blocks = int(slots.max()) // block_size + 2
    pools = [
        (pool_of(blocks, block_size, num_heads, dim, seed) % 7 + 0.25).to(torch.float8_e4m3fn)
        for seed in (0, 1)
    ]
    before = [pool.view(torch.uint8).clone().flatten(0, 1) for pool in pools]
    per_head = int(scales[0].numel() > 1)
    row = num_heads * dim
    with given(words + ("" if order == "forward" else f", threads in {order} order")):
        launch(
            path, f"{NAME}_{suffix}", keys, values, *pools, slots, *scales, tokens, num_heads, dim,
            per_head, row, row, explain=explanations(per_head), order=order,
        )  # fmt: skip
        found = []
        for name, pool, old in zip(("key_pool", "value_pool"), pools, before, strict=True):
            codes = pool.view(torch.uint8).flatten(0, 1)
            others = torch.ones(len(codes), dtype=torch.bool)
            others[slots] = False
            if bool((codes[others] != old[others]).any()):
                fail(f"{name}: a slot that no token has was changed.")
            if bool((codes[slots] == old[slots]).all()) and row > 2:
                fail(f"{name}: nothing was written.")
            mine, past = codes[slots].flatten(1), old[slots].flatten(1)
            if row > THREADS and bool((mine[:, THREADS:] == past[:, THREADS:]).all()):
                fail(
                    f"{name}: only the first {THREADS} elements of each row were written, and a "
                    f"row has {row}: a thread goes on by blockDim.x until there are no more."
                )
            found.append(pool.flatten(0, 1)[slots].float())
    return found[0], found[1]


def explanations(per_head: int) -> dict[str, Any]:
    return {
        "out_of_bounds": lambda finding: (
            "There is one scale for each head, and element i of a row is of head i / head_dim; if "
            "per_head is 0, there is one for all."
            if finding.name.endswith("scale")
            else "A row has `size` elements, in the pool as well: a byte each."
        ),
        "race": "Each element of a row belongs to one thread.",
    }


def mistakes_of(x: Any, scale: Any) -> list[tuple[Any, str]]:
    """What wrong ways to store x would give."""
    import torch

    one = torch.ones(1)
    scaled = x.float() / scale.view(1, -1, 1)
    beyond = stored(x, scale).clone()
    beyond[scaled.abs() > 464.0] = torch.nan
    found = [
        (stored(x, one), "The scale was not used."),
        (stored(x * scale.view(1, -1, 1) ** 2, scale), "Multiplied by the scale: stored is "
         "x / scale, and who reads multiplies."),
        (truncated(x, scale), "Cut off, not rounded: the nearest code is wanted, and of two as "
         "near the one whose last bit is 0."),
        (beyond, "A number beyond 448 has become NaN. e4m3 has no infinity: without saturation "
         "what is too large is NaN, and one NaN in a key makes all of its head's output NaN. "
         "Saturate: ±448."),
        (scaled.to(torch.uint8).view(torch.float8_e4m3fn).float(), "That is the integer part as a "
         "byte. A byte of the pool is a code of e4m3: a sign, 4 bits of exponent, 3 of fraction."),
    ]  # fmt: skip
    if scale.numel() > 1:
        first, last = scale[:1], scale.flip(0)
        found += [
            (stored(x, first), "Every head was divided by the first head's scale: per_head is 1, "
             "so head h has scale h."),
            (stored(x, last), "The scales are in the wrong order."),
        ]  # fmt: skip
        dim = x.shape[2]
        wrong = scale[torch.arange(x[0].numel()) % len(scale)].view(1, len(scale), dim)
        codes = (x.float() / wrong).clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn).float()
        told = "Element i of a row was given scale i % heads. A head's elements lie together: i / "
        found.append((codes, told + "head_dim is its head."))
    return found


def numbers(path: Path, listed: list[float], words: str, scale: float) -> None:
    """One token, one head; the values are half the keys."""
    import torch

    keys = torch.tensor(listed).view(1, 1, -1)
    values, scales = keys / 2, (torch.tensor([scale]), torch.tensor([scale]))
    got = run(path, words, keys, values, scales, torch.tensor([5]), 4)
    compare(words, got, (keys, values), scales)


def compare(words: str, got: tuple[Any, Any], new: tuple[Any, Any], scales: tuple) -> None:
    with given(words):
        swapped = bool((got[0] == stored(new[1], scales[1])).all())
        for i, (name, other) in enumerate((("key_pool", "values"), ("value_pool", "keys"))):
            mistakes = mistakes_of(new[i], scales[i])
            if swapped:
                mistakes = [(got[i], f"These are the {other}.")]
            wrong = stored(new[i], scales[1 - i])
            if not bool((wrong == stored(new[i], scales[i])).all()):
                mistakes.append((wrong, "The other pool's scale: keys and values have their own."))
            equal(
                got[i], stored(new[i], scales[i]), f"{name}, decoded", mistakes=mistakes,
                because="Stored is the e4m3 number nearest to x / scale.",
            )  # fmt: skip


def infinite(path: Path) -> None:
    import torch

    keys = torch.tensor([torch.nan, 2.0, torch.inf, -torch.inf]).view(1, 1, 4)
    ones = torch.ones(1)
    words = "NaN, 2, infinity, -infinity"
    got, _ = run(path, words, keys, keys, (ones, ones), torch.tensor([1]), 4)
    with given(words):
        if not bool(got[0, 0, 0].isnan()):
            fail(
                f"key_pool, decoded: NaN became {got[0, 0, 0].item():g}. fminf and fmaxf return "
                "the other argument for NaN, and then nobody can see any more that something went "
                "wrong upstream: NaN has to stay NaN."
            )
        wanted = torch.tensor([2.0, LARGEST, -LARGEST])
        equal(got[0, 0, 1:], wanted, "the rest of key_pool, decoded", because="Saturate: ±448.")


def heads(path: Path) -> None:
    import torch

    words = "3 heads with scales 2, 1 and 0.5 for keys, 4, 1 and 2 for values"
    keys = 1.0 + torch.arange(12.0).view(1, 3, 4)
    values = 32.0 - 2 * torch.arange(12.0).view(1, 3, 4)
    scales = torch.tensor([2.0, 1.0, 0.5]), torch.tensor([4.0, 1.0, 2.0])
    got = run(path, words, keys, values, scales, torch.tensor([2]), 4)
    compare(words, got, (keys, values), scales)


def random_case(
    path: Path,
    shape: tuple[int, int, int, int],
    suffix: str,
    per_head: bool,
    order: str = "forward",
) -> None:
    import torch

    tokens, num_heads, dim, block_size = shape
    generator = torch.Generator().manual_seed(dim)
    new = [
        (torch.randn(tokens, num_heads, dim, generator=generator) * 40).to(dtypes()[suffix])
        for _ in range(2)
    ]
    count = num_heads if per_head else 1
    scales = tuple(torch.rand(count, generator=generator) * 0.5 + 0.1 for _ in range(2))
    slots = torch.randperm(4 * block_size, generator=generator)[:tokens]
    words = f"{tokens} tokens, {num_heads} heads of {dim}, {suffix}"
    got = run(path, words, *new, scales, slots, block_size, order, suffix)
    compare(words, got, tuple(new), scales)


def draw_fp8(path: Path) -> Any:
    """What each line costs a warp."""
    import torch

    from yaie.course.viz.memory import draw_costs

    keys, ones = torch.randn(2, 2, 64, generator=torch.Generator().manual_seed(0)), torch.ones(1)
    pools = [torch.zeros(2, 4, 2, 64).to(torch.float8_e4m3fn) for _ in range(2)]
    slots = torch.tensor([5, 2])
    report = report_of(
        path, f"{NAME}_f32", keys, keys, *pools, slots, ones, ones, 2, 2, 64, 0, 128, 128
    )
    return draw_costs(report)
