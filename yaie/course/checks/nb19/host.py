"""The check of 19.4: what surrounds the kernel. Sizes, the count, and no copy that nobody sees."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from yaie.course.checks.nb19.scan import ints
from yaie.course.core.cuda import poisoned
from yaie.course.core.expect import equal, fail, given, raises

# new tokens, keys, topk
EXAMPLES = (
    ([3, 2], [10, 4], 9),
    ([0, 3, 0, 0, 2, 0], [7, 10, 1, 5, 4, 8], 9),
    ([4, 3], [2, 9], 6),
    ([1], [1], 1),
    ([], [], 9),
    ([0, 0], [5, 6], 9),
)
TAIL = 3


def check_host(fill: Callable) -> None:
    for lengths, keys, topk in (*EXAMPLES, drawn(40), drawn(1025)):
        for told in (True, False):
            run(fill, lengths, keys, topk, told)
    too_short(fill)
    copies(fill)


def drawn(batch: int) -> tuple[list[int], list[int], int]:
    draw = random.Random(batch)
    lengths = [draw.choice([0, 0, 1, 2, 5]) for _ in range(batch)]
    return lengths, [draw.randrange(60) for _ in range(batch)], 40


def outputs(*sizes: int) -> list[Any]:
    return [poisoned(size, dtype=ints([]).dtype) for size in sizes]


def run(fill: Callable, lengths: list[int], keys: list[int], topk: int, told: bool) -> None:
    n, batch = sum(lengths), len(lengths)
    words = f"{lengths} new tokens, {keys} keys" if batch <= 8 else f"{batch} requests, {n} tokens"
    words += f", topk {topk}, num_tokens={n if told else None}"
    expanded, cached = outputs(n + TAIL, n + TAIL)
    with given(words):
        q, kv = ints(lengths), ints(keys)
        got = fill(q, kv, topk, expanded, cached, n if told else None)
        equal(got, n, "what is returned", because="It is the number of tokens.")
        if q.tolist() != lengths or kv.tolist() != keys:
            fail("extend_seq_lens and seq_lens are the caller's: they were changed.")
        compare(lengths, keys, topk, expanded.tolist(), cached.tolist())


def compare(lengths, keys, topk: int, expanded: list[int], cached: list[int]) -> None:
    n, least = sum(lengths), outputs(1)[0].item()
    tail = [least] * TAIL
    if expanded[n:] != tail or cached[n:] != tail:
        fail(
            f"of {n + TAIL} elements of an output {n} are tokens, and what lies beyond them was "
            "changed. A buffer is often larger than a batch, and somebody else may look at the "
            "rest."
        )
    pairs = list(zip(lengths, keys, strict=True))
    seen = [kv - q + 1 + i for q, kv in pairs for i in range(q)]
    clamped = [max(v, 0) for v in seen]
    at_end = [kv - q + 1 + i for t, (q, kv, i) in enumerate(one_early(lengths, keys))]
    because = "Token i of a request that has q new tokens and kv keys sees kv - q + 1 + i of them."
    equal(expanded[:n], clamped, "out_seqlens_expanded", because=because, mistakes=[
        (seen, "What would be below 0 counts as 0."),
        ([max(v, 0) for v in at_end], "Tokens at which a request ends were taken for that "
         "request's. The request of token t is the first whose end is greater than t: "
         "searchsorted finds it with right=True."),
        ([kv for q, kv in pairs for _ in range(q)], "That is each request's number of keys. A "
         "request's earlier tokens see fewer."),
        ([max(v - 1, 0) for v in seen], "Each is too small by 1: a token sees itself."),
    ])  # fmt: skip
    equal(cached[:n], [min(v, topk) for v in clamped], "out_nsa_cache_seqlens", mistakes=[
        ([min(v, topk) for v in seen], "topk was applied to a number below 0: first max(…, 0), "
         "then min(…, topk)."),
        (clamped, f"The sparse attention keeps topk = {topk} keys at most."),
    ])  # fmt: skip


def one_early(lengths: list[int], keys: list[int]) -> Iterator[tuple[int, int, int]]:
    """(q, kv, i) of each token, if the request that ends at a token had it still."""
    ends = [0]
    for q in lengths:
        ends.append(ends[-1] + q)
    for t in range(ends[-1]):
        b = next(b for b, (_, end) in enumerate(pairwise(ends)) if end >= t)
        yield lengths[b], keys[b], t - ends[b]


def too_short(fill: Callable) -> None:
    """An error that names the output, before anything is written."""
    for sizes in ((4, 5), (5, 4)):
        for told in (True, False):
            expanded, cached = outputs(*sizes)
            least = expanded[0].item()
            what = f"5 tokens, outputs of {sizes[0]} and {sizes[1]} elements"
            with given(what):
                raises(
                    ValueError,
                    lambda a=expanded, b=cached, n=5 if told else None: fill(
                        ints([3, 2]), ints([10, 4]), 9, a, b, n
                    ),
                    "the call",
                    because="An output that is shorter than the number of tokens has to be refused "
                    "in words. A kernel would write beyond its end without any.",
                )
                if any((x != least).any() for x in (expanded, cached)):
                    fail("it was refused, but something had been written: look at both first.")


def copies(fill: Callable) -> None:
    """With num_tokens given, nothing may come from the device."""
    lengths, keys, topk = drawn(40)
    n = sum(lengths)
    arguments = (ints(lengths), ints(keys), topk, *outputs(n, n))
    with given(f"num_tokens={n} is given"), watched() as seen:
        fill(*arguments, n)
        if seen:
            names = ", ".join(f"{count} × {name}" for name, count in sorted(seen.items()))
            fail(
                f"something was copied to the host: {names}. On a GPU each copy waits until all "
                "that was queued before it has run, and a CUDA graph cannot be captured. The "
                "caller said how many tokens there are; all else stays in tensors."
            )
    with given("num_tokens is not given"), watched() as seen:
        fill(*arguments)
        if sum(seen.values()) > 1:
            names = ", ".join(f"{count} × {name}" for name, count in sorted(seen.items()))
            fail(
                f"one number has to be copied, and {sum(seen.values())} copies were made: {names}."
            )


@contextmanager
def watched() -> Iterator[dict[str, int]]:
    """How often each thing that brings numbers from a device to the host was done."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    seen: dict[str, int] = {}
    waits = {  # operators whose result has a size that only the device knows, and the copy itself
        torch.ops.aten._local_scalar_dense: "a number read from a tensor",
        torch.ops.aten.nonzero: "nonzero",
        torch.ops.aten.masked_select: "a choice by a mask",
    }

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            kwargs = kwargs or {}
            packet = function.overloadpacket
            if packet in waits:
                seen[waits[packet]] = seen.get(waits[packet], 0) + 1
            elif packet is torch.ops.aten.index and any(
                index is not None and index.dtype == torch.bool for index in args[1]
            ):
                seen["a choice by a mask"] = seen.get("a choice by a mask", 0) + 1
            elif packet is torch.ops.aten.repeat_interleave and kwargs.get("output_size") is None:
                seen["repeat_interleave without output_size"] = 1
            return function(*args, **kwargs)

    originals = {name: getattr(torch.Tensor, name) for name in ("tolist", "cpu", "numpy")}

    def counting(name: str) -> Callable:
        def method(tensor: Any, *rest: Any, **named: Any) -> Any:
            seen[f".{name}()"] = seen.get(f".{name}()", 0) + 1
            with torch.utils._python_dispatch._disable_current_modes():
                return originals[name](tensor, *rest, **named)

        return method

    for name in originals:
        setattr(torch.Tensor, name, counting(name))
    try:
        with Watch():
            yield seen
    finally:
        for name, method in originals.items():
            setattr(torch.Tensor, name, method)
