"""20.5: each token's request by comparing and by bisection, in one launch of a Triton kernel."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch

from yaie.course import viz
from yaie.course.core.observe import Case, Observer
from yaie.course.core.triton import Access, InterpreterBuilder, can_watch, launch, run, triton
from yaie.course.exercises.nb11.tensors import poisoned, see_stored_once, spaced
from yaie.course.exercises.nb20.metadata import in_words, ints, keys_seen, random_batch

TOPK = 9
TAIL = 3  # elements of an output past the last token
UNWRITTEN = -(2**31)
# New tokens of each request, keys of each.
EXAMPLES = (
    ([3, 2, 4], [10, 4, 7]),
    ([3, 2], [10, 4]),
    ([0, 0, 3, 0, 2, 0], [7, 1, 10, 5, 4, 8]),
    ([4, 3], [2, 9]),
    ([1], [1]),
    ([0, 6], [3, 0]),
    ([20, 0, 30], [25, 9, 30]),
)


def cases() -> Iterator[Case]:
    for bisect in (False, True):
        for lengths, keys in EXAMPLES:
            yield case(lengths, keys, bisect)
        yield case([3, 2], [10, 4], bisect, more=2)
        yield case([3, 2, 4], [10, 4, 7], bisect, more=2)
        yield case([3, 2], [10, 4], bisect, more=-2)
        yield case(*random_batch(33, 30), bisect)
    yield case([1] * 256, [5] * 256, bisect=False, tokens=32)
    yield case([1] * 256, [5] * 256, bisect=True, tokens=32)


def case(
    lengths: list[int], keys: list[int], bisect: bool, more: int = 0, tokens: int = 16
) -> Case:
    """`more`: by how much num_tokens exceeds the number of tokens."""
    words = f"{in_words(lengths, keys)}, BISECT={bisect}, TOKENS={tokens}"
    words += f", num_tokens = {sum(lengths) + more}" if more else ""
    data = {"lengths": lengths, "keys": keys, "bisect": bisect, "more": more, "tokens": tokens}
    return Case(words, **data)


def observe(kernels: Any, case: Case, see: Observer) -> None:
    n, batch = sum(case.lengths), len(case.lengths)
    end, size = n + min(case.more, 0), triton.next_power_of_2(batch)
    expanded, cached = (poisoned(n + TAIL, dtype=torch.int32, value=UNWRITTEN) for _ in "ab")
    arguments = {
        "lengths": spaced(ints(case.lengths)), "kv": spaced(ints(case.keys)),
        "expanded": expanded, "cached": cached, "topk": TOPK, "num_tokens": n + case.more,
        "batch": batch,
    }  # fmt: skip
    grid = (-(-(n + max(case.more, 0)) // case.tokens),)
    how = {"BATCH": size, "TOKENS": case.tokens, "BISECT": case.bisect}
    with see.call("the launch"), gathered() as elements:
        trace = run(see, kernels.fill_tokens_kernel, grid, arguments, beyond, **how)
    seen = keys_seen(case.lengths, case.keys)[:end]
    tail = [UNWRITTEN] * (n + TAIL - end)
    last = (
        f"num_tokens is {n + case.more}, and the last request ends at {n}: nothing is written from "
        "the lower of the two on."
    )
    keys = "Token t of request b sees kv[b] + 1 + t - ends[b] keys: the request's last sees all."
    most = f"It is expanded, but at most topk = {TOPK}."
    for name, out in (("expanded", expanded), ("cached", cached)):
        see.equal(f"{name} from element {end} on", out[end:].tolist(), tail, last)
    see.equal("expanded", expanded[:end].tolist(), seen, keys)
    see.equal("cached", cached[:end].tolist(), [min(count, TOPK) for count in seen], most)
    for name in ("expanded", "cached"):
        see_stored_once(see, trace, name)
    if batch == 256:
        reads = elements["read"] // (grid[0] * case.tokens)
        see_search(see, case, reads, size.bit_length() - 1)


def see_search(see: Observer, case: Case, reads: int, steps: int) -> None:
    """Whether the reads of tl.gather are those of the search that BISECT asks for."""
    least, most = (steps, steps + 3) if case.bisect else (0, 2)
    why = (
        f"Bisection reads {steps} of {len(case.lengths)} ends per token, one after the other."
        if case.bisect
        else "All ends are compared together, in one block: no read waits for another."
    )
    wrong = not least <= reads <= most
    problem = f"are {reads}, expected {least} to {most}" if wrong else ""
    see.note("elements that tl.gather reads per token", wrong, problem, why)


@contextmanager
def gathered() -> Iterator[Counter]:
    """Count the elements that `tl.gather` reads in the launches inside."""
    elements: Counter = Counter()
    if not can_watch():
        yield elements
        return
    gather = InterpreterBuilder.create_gather

    def counting(builder: Any, x: Any, index: Any, axis: int) -> Any:
        elements["read"] += index.data.size
        return gather(builder, x, index, axis)

    with patch.object(InterpreterBuilder, "create_gather", counting):
        yield elements


def beyond(access: Access) -> str:
    if access.name in ("lengths", "kv"):
        return "BATCH is a power of two, so it may be more than `batch`: mask the load."
    return "The last program has lanes past the last token: mask the store."


def draw(kernels: Any) -> Any:
    """Which tokens each program stores."""
    lengths, keys = random_batch(33, 30)
    n = sum(lengths)
    expanded, cached = (poisoned(n, dtype=torch.int32, value=UNWRITTEN) for _ in "ab")
    arguments = {"lengths": ints(lengths), "kv": ints(keys), "expanded": expanded,
                 "cached": cached, "topk": TOPK, "num_tokens": n, "batch": 33}  # fmt: skip
    how = {"BATCH": 64, "TOKENS": 16, "BISECT": True}
    trace = launch(kernels.fill_tokens_kernel, (-(-n // 16),), arguments, **how)
    return viz.draw_programs(viz.programs_of(trace, "expanded", "store"))
