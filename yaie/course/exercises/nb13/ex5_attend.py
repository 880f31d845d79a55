"""13.5: what the loop over tiles of keys makes of a state, beside float64."""

import math
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from yaie.course.core.observe import Case, Observer
from yaie.course.core.triton import HAS_TRITON, run
from yaie.course.exercises.nb11.tensors import poisoned, spaced
from yaie.course.exercises.nb12.ex1_matmul import precisions
from yaie.course.exercises.nb13.kernels import attend_kernel, operator_by

if HAS_TRITON:
    from triton.tools.tensor_descriptor import TensorDescriptor

fit = operator_by("attend", home="flash")
LOWEST = -3.0e38
FIRST, HEADS = 7, 2  # tokens of another sequence before this one; KV heads
HALF = torch.float16


def cases() -> Iterator[Case]:
    yield keys("16 keys in one tile", 0, 16, 16)
    yield keys("48 keys in three tiles", 0, 48, 48)
    yield keys("keys 16 to 47, after a state that holds 16", 16, 48, 48, state=True)
    yield keys("64 keys in two tiles of 32", 0, 64, 64, tile=32)
    yield keys("no keys: begin is end", 16, 16, 32, state=True)
    yield keys("48 keys of the second KV head", 0, 48, 48, head=1)
    yield keys("keys 16 to 31 with a mask on the diagonal", 16, 32, 48, masked=True, state=True)
    yield keys(
        "32 keys with a mask, of which some queries see none", 0, 32, 40, masked=True, past=-8
    )
    yield keys("a last tile of 5 keys, and NaN some tokens after them",
               32, 37, 37, True, True, past=21, gap=3)  # fmt: skip
    yield keys("a last tile of 5 keys, and NaN after them", 32, 37, 37, True, True, past=21)
    yield keys(
        "a last tile of 5 keys, at the tensor's end", 32, 37, 37, True, True, past=21, after=0
    )
    yield keys("5 keys in all, and NaN after them", 0, 5, 5, True, True, past=5)
    yield keys("32 keys in float16", 0, 32, 32, dtype=HALF)
    yield keys("37 keys in float16, with a mask", 16, 37, 37, True, True, past=21, dtype=HALF)
    drawn = random.Random(0)
    for seed in range(8):
        tiles, masked = drawn.randrange(1, 5), drawn.random() < 0.6
        beyond = masked and drawn.random() < 0.5
        num_keys = 16 * tiles - (drawn.randrange(1, 16) if beyond else 0)
        begin, past = 16 * drawn.randrange(tiles), drawn.randrange(num_keys)
        name = f"keys {begin} to {num_keys - 1}, drawn with seed {seed}"
        yield keys(name, begin, num_keys, num_keys, masked, beyond, past=past,
                   head=drawn.randrange(2), state=drawn.random() < 0.5, seed=seed)  # fmt: skip


def keys(
    name: str,
    begin: int,
    end: int,
    num_keys: int,
    masked: bool = False,
    beyond: bool = False,
    past: int = 16,
    head: int = 0,
    state: bool = False,
    after: int = 20,
    gap: int = 0,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    tile: int = 16,
) -> Case:
    """16 queries, head_dim 32.

    Args:
        tile: the keys of a tile.
        past: the first query sees the keys up to this one, the next one more, and so on.
        state: whether earlier keys are in the state already.
        after: tokens of another sequence after this one, all NaN but the first `gap`.
    """
    return Case(name, begin=begin, end=end, num_keys=num_keys, masked=masked, beyond=beyond,
                past=past, head=head, state=state, after=after, gap=gap, dtype=dtype,
                seed=seed, tile=tile)  # fmt: skip


def observe(attend: Any, case: Case, see: Observer) -> None:
    generator = torch.Generator().manual_seed(case.seed + case.num_keys)

    def randn(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    q, scale = randn(16, 32).to(case.dtype), math.log2(math.e) / math.sqrt(32)
    k, v = (randn(HEADS, FIRST + case.num_keys + case.after, 32).to(case.dtype) for _ in "kv")
    for x in (k, v):
        x[:, FIRST + case.num_keys + case.gap :] = torch.nan
    last_key = (torch.arange(16) + case.past).clamp(max=case.num_keys - 1).int()
    if case.state:
        before = randn(16) * 3, randn(16).exp(), randn(16, 32)
    else:
        before = torch.full((16,), LOWEST), torch.zeros(16), torch.zeros(16, 32)
    want = expected(case, q, k[case.head], v[case.head], last_key, scale, before)

    with see.call("attend"), precisions() as used:
        got, trace = run_loop(attend, case, q, k, v, last_key, scale, before, see)
    why = "It is the largest score × scale that a query sees, of these keys and of the state."
    close = (
        {"rtol": 1e-4, "atol": 1e-4}
        if case.dtype is torch.float32
        else {"rtol": 0.02, "atol": 0.02}
    )
    see.close("the new maximum", got[0], want[0], why, **close)
    why = (
        "It is the sum of 2^(score × scale - maximum), with the old total moved to the new maximum."
    )
    see.close("the new total", got[1], want[1], why, **close)
    why = "It is the sum of weights × values, with the old `out` moved to the new maximum."
    see.close("the new out", got[2], want[2], why, **close)
    for name in "kv":
        tokens = [int(a.elements.ravel()[0]) // 32 for a in trace.of(name, "load")]
        begins = case.head * k.shape[1] + FIRST
        first = [begins + start for start in range(case.begin, case.end, case.tile)]
        see.equal(f"the list of tokens at which tiles of {name} begin", tokens, first,
                  "Each tile from `begin` to `end` is loaded once.")  # fmt: skip
    if case.begin < case.end:
        why = "On a GPU tl.dot rounds float32 inputs to TF32, unless it is told otherwise."
        see.equal("the input_precision of tl.dot", sorted(used), ["IEEE"], why)


def run_loop(
    attend: Any,
    case: Case,
    q: Any,
    k: Any,
    v: Any,
    last_key: Any,
    scale: float,
    before: tuple[Any, Any, Any],
    see: Observer,
) -> tuple[list[Any], Any]:
    """Run the learner's loop once: the new state, and what was loaded."""
    results = [poisoned(16), poisoned(16), poisoned(16, 32)]
    if not case.masked:  # then it says nothing
        last_key = torch.full_like(last_key, -1)
    k, v = aligned(k), aligned(v)
    names = ["q", "k", "v", "last_key", "maximum", "total", "out"]
    inputs = [spaced(q), k, v, spaced(last_key), *map(spaced, before)]
    arguments = dict(zip(names, inputs, strict=True))
    arguments |= dict(zip(["new maximum", "new total", "new out"], results, strict=True))
    arguments |= {f"{name}_desc": tiles(x, case.tile) for name, x in (("k", k), ("v", v))}
    arguments |= {
        "kv_head": case.head, "first_key": FIRST, "begin": case.begin, "end": case.end,
        "num_keys": case.num_keys if case.beyond else 0, "scale": scale,
    }  # fmt: skip
    trace = run(
        see, attend_kernel, (1,), arguments,
        ATTEND=attend, MASKED=case.masked, BEYOND=case.beyond, BLOCK_M=16,
        BLOCK_N=case.tile, DIM=32,
    )  # fmt: skip
    return results, trace


def aligned(x: torch.Tensor) -> torch.Tensor:
    """The same numbers at an address that a descriptor can have."""
    room = torch.empty(x.numel() + 16, dtype=x.dtype)
    skip = -room.data_ptr() % 16 // x.element_size()
    return room[skip : skip + x.numel()].view(x.shape).copy_(x)


def tiles(x: torch.Tensor, tile: int) -> Any:
    return TensorDescriptor(x, list(x.shape), list(x.stride()), [1, tile, 32])


def expected(
    case: Case, q: Any, k: Any, v: Any, last_key: Any, scale: float, before: tuple[Any, Any, Any]
) -> list[torch.Tensor]:
    """The new state in float64, key by key and without tiles."""
    maximum, total, out = (x.double().numpy() for x in before)
    new = [np.empty(16), np.empty(16), np.empty((16, 32))]
    for row in range(16):
        seen = [
            key for key in range(case.begin, case.end) if not case.masked or key <= last_key[row]
        ]
        scores = [float(q[row].double() @ k[FIRST + key].double()) * scale for key in seen]
        high = max([maximum[row], *scores])
        old = 2.0 ** (maximum[row] - high)
        new[0][row], new[1][row], new[2][row] = high, total[row] * old, out[row] * old
        for key, score in zip(seen, scores, strict=True):
            weight = 2.0 ** (score - high)
            new[1][row] += weight
            new[2][row] += weight * v[FIRST + key].double().numpy()
    return [torch.from_numpy(x).float() for x in new]
