"""The check of apply_rotary."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from yaie.course.checks.nb01.oracle import (
    NO_RETURN,
    random_tensor,
    rotate,
    rotate_interleaved,
    tables,
)
from yaie.course.core.expect import close, equal, fail, given

BASE = 10000.0

# positions, heads, head_dim
CASES = [
    ([0, 1, 2], 1, 4),
    ([0, 1, 2], 3, 4),  # as many heads as tokens: a wrong broadcast does not even raise
    ([5, 6, 7, 8], 2, 8),  # a past of five tokens
    ([7], 9, 64),  # a decode step
    ([3, 0, 11, 3], 3, 6),  # a batch of several sequences, flattened
    ([0, 0], 1, 2),
]


def check_apply_rotary(apply_rotary: Callable[..., Any]) -> None:
    import torch

    generator = torch.Generator().manual_seed(0)
    new = partial(random_tensor, generator)
    for positions, heads, dim in CASES:
        compare(apply_rotary, new(len(positions), heads, dim), positions)
    check_far_positions(apply_rotary, new)
    check_dtypes(apply_rotary, new)
    drawn = random.Random(0)
    for _ in range(60):
        positions = [drawn.randrange(200) for _ in range(drawn.randint(1, 7))]
        heads, dim = drawn.randint(1, 5), 2 * drawn.randint(1, 9)
        compare(apply_rotary, new(len(positions), heads, dim), positions)


def compare(apply_rotary: Callable[..., Any], x: Any, positions: Sequence[int]) -> None:
    import torch

    heads = f"{x.shape[1]} {'head' if x.shape[1] == 1 else 'heads'} of {x.shape[2]}"
    call = f"apply_rotary at positions {list(positions)}, {heads}"
    cos, sin = tables(x.shape[2], max(positions) + 8, BASE)
    kept = x.clone()
    broadcast = (
        "cos[positions] is [tokens, head_dim / 2] and x is [tokens, heads, head_dim]: give the "
        "angles an axis for the heads."
    )
    with given(call, errors={RuntimeError: broadcast}):
        got = apply_rotary(x, torch.tensor(positions), cos, sin)
        equal(x, kept, "after the call, x", because="Leave the argument as it is.")
        if got is None:
            fail(f"it returned None. {NO_RETURN}")
        close(
            got,
            rotate(x, positions, BASE).float(),
            "the result",
            because=(
                "Component i and component i + head_dim / 2 are the coordinates of a point, which "
                "turns by the angle of the token's position."
            ),
            mistakes=wrong_results(x, positions, cos, sin, broadcast),
        )


def wrong_results(
    x: Any, positions: Sequence[int], cos: Any, sin: Any, broadcast: str
) -> Iterator[tuple[Any, str]]:
    """What known mistakes give here, and what to tell."""
    import torch

    half = x.shape[2] // 2
    first, second = x[..., :half], x[..., half:]
    c, s = cos[list(positions)].unsqueeze(1), sin[list(positions)].unsqueeze(1)

    def joined(a: Any, b: Any) -> Any:
        return torch.cat((a, b), dim=-1)

    restart = list(range(len(positions)))
    yield from [
        (
            rotate_interleaved(x, positions, BASE).float(),
            "This pairs neighbors (2i with 2i + 1), the interleaved layout. Llama's weights expect "
            "the half-split one: component i with component i + head_dim / 2.",
        ),
        (
            rotate(x, positions, BASE, sign=-1).float(),
            "This turns backwards. A turn by a is (x cos a - y sin a, y cos a + x sin a).",
        ),
        (
            rotate(x, restart, BASE).float(),
            "The angles are those of positions 0, 1, 2, …: look the tables up at `positions`. With "
            "a cache, the new tokens do not begin at 0.",
        ),
        (
            joined(first * c + second * s, second * c + first * s),
            "The minus is missing: a turn by a is (x cos a - y sin a, y cos a + x sin a).",
        ),
        (
            joined(first * c - second * s, first * c + second * s),
            "The second half should be second * cos + first * sin.",
        ),
        (
            joined(first * s - second * c, second * s + first * c),
            "Sine and cosine are exchanged: position 0 must leave x as it is.",
        ),
        (x, "Nothing was turned."),
        (
            joined(first * c - second * s, second),
            "The second half of each head was left as it is.",
        ),
        (
            torch.stack((first * c - second * s, second * c + first * s), dim=-1).flatten(-2),
            "The right numbers in the wrong order: put the first halves together, and the second "
            "halves after them.",
        ),
    ]
    halves = [t.half().float()[list(positions)].unsqueeze(1) for t in (cos, sin)]
    yield (
        joined(first * halves[0] - second * halves[1], second * halves[0] + first * halves[1]),
        "The tables were rounded to float16, which keeps about three digits. Use them in float32.",
    )
    if len(positions) > 1 and x.shape[1] in (1, len(positions)):
        c, s = cos[list(positions)], sin[list(positions)]
        by_head = joined(first * c - second * s, second * c + first * s)
        yield by_head, f"All heads of a token turn alike. {broadcast}"


def check_far_positions(apply_rotary: Callable[..., Any], new: Callable[..., Any]) -> None:
    """Far out, where only float32 tables know the angle."""
    import torch

    positions = [0, 4000, 8190, 8191]
    x = new(len(positions), 3, 64)
    cos, sin = tables(64, 8192, 100000.0)
    with given(f"apply_rotary at positions {positions}, with the tables of SmolLM2-135M"):
        got = apply_rotary(x, torch.tensor(positions), cos, sin)
        close(
            got,
            rotate(x, positions, 100000.0).float(),
            "the result",
            because="Are the tables used in float32, and positions as integers?",
        )


def check_dtypes(apply_rotary: Callable[..., Any], new: Callable[..., Any]) -> None:
    """Half precision in and out, float32 between: only the last rounding may be seen."""
    import torch

    positions = list(range(90, 130))
    for dtype in (torch.float16, torch.bfloat16):
        x = new(len(positions), 2, 16).to(dtype)
        cos, sin = tables(16, 200, BASE)
        name = str(dtype).removeprefix("torch.")
        with given(f"apply_rotary of {name} at positions 90 to 129, tables in float32"):
            got = apply_rotary(x, torch.tensor(positions), cos, sin)
            equal(got.dtype, dtype, "the dtype", because="It is that of x.")
            close(
                got.double(),
                rotate(x, positions, BASE),
                "the result",
                because=f"The tables are rounded to {name} before the products. Keep them in "
                "float32 and round once, at the end.",
                rtol=0.6 * torch.finfo(dtype).eps,
                atol=1e-6,
            )


def draw_angles(apply_rotary: Callable[..., Any]) -> Any:
    """The learner's rotation of a vector whose pairs all lie at (1, 0): cosines and sines."""
    import torch

    from yaie.course.viz import draw_rotary

    dim, count = 64, 64
    x = torch.zeros(count, 1, dim)
    x[..., : dim // 2] = 1.0
    turned = apply_rotary(x, torch.arange(count), *tables(dim, count, 100000.0))[:, 0]
    return draw_rotary(turned[:, : dim // 2], turned[:, dim // 2 :])
