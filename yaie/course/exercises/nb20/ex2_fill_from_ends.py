"""20.2: each token's request by bisection, for any batch, in thread blocks of a fixed size."""

from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch

from yaie.course.core import cuda
from yaie.course.core.cuda import KernelCase
from yaie.course.core.observe import Observer
from yaie.course.exercises.nb20.metadata import in_words, ints, keys_seen, random_batch
from yaie.emulator.checks import Finding

TOPK = 9
# New tokens of each request, keys of each.
EXAMPLES = (
    ([3, 2], [10, 4]),
    ([0, 0, 3, 0, 2, 0], [7, 1, 10, 5, 4, 8]),
    ([1], [1]),
    ([4, 3], [2, 9]),
    ([0, 6], [3, 0]),
)
BATCHES = (17, 64, 255, 1023, 1024, 1025)
MOST_READS = 40  # of ends by a warp, for 1,024 requests: 10 steps, and a few


def cases() -> Iterator[KernelCase]:
    more = case([3, 2], [10, 4], more=3)
    yield from cuda.in_every_order(*(case(*example) for example in EXAMPLES), more)
    for batch in BATCHES:
        yield case(*random_batch(batch, 30))
    yield case([600], [610])  # more than a thread block has threads
    yield case([1] * 1024, [5] * 1024, costs=True)


def case(lengths: list[int], keys: list[int], more: int = 0, costs: bool = False) -> KernelCase:
    """`more`: how many tokens beyond those that exist the launcher is told of."""
    words = in_words(lengths, keys)
    words += f", num_tokens = {sum(lengths) + more}" if more else ""
    data = {"lengths": lengths, "keys": keys, "more": more, "costs": costs}
    return KernelCase(f"{words}, topk {TOPK}", **data)


def observe(path: Path, case: KernelCase, see: Observer) -> None:
    batch, n = len(case.lengths), sum(case.lengths)
    ends = ints(list(accumulate(case.lengths)))
    expanded, cached = (cuda.poisoned(n + max(case.more, 2), dtype=torch.int32) for _ in "ab")
    report = cuda.run(
        see, path, "fill_from_ends_i32", ends, ints(case.keys), TOPK, expanded, cached, batch,
        n + case.more, explain=explanations(batch, n), **case.how,
    )  # fmt: skip
    seen = keys_seen(case.lengths, case.keys)
    tail = cuda.poisoned(len(expanded) - n, dtype=torch.int32).tolist()
    beyond = f"The last request ends at ends[batch - 1] = {n}; num_tokens may be larger."
    for name, out in (("expanded", expanded), ("cached", cached)):
        see.equal(f"{name} from element {n} on", out[n:].tolist(), tail, beyond)
    keys = "Token t of request b sees kv[b] + 1 + t - ends[b] keys: the request's last sees all."
    see.equal("expanded", expanded[:n].tolist(), seen, cuda.unwritten(expanded[:n], keys))
    most = f"It is expanded, but at most topk = {TOPK}."
    see.equal("cached", cached[:n].tolist(), [min(count, TOPK) for count in seen], most)
    if case.costs:
        reads = cuda.requests(report, name="ends")
        halved = "Each read halves the requests that are left, so 10 of them are enough."
        warps = n // 32
        see.at_most("a warp's number of reads of ends", reads // warps, MOST_READS, halved)


def explanations(batch: int, n: int) -> cuda.Explain:
    def outside(found: Finding) -> str:
        if found.name in ("ends", "kv"):
            return f"There are {batch} requests, the last one is batch - 1."
        return "More threads run than there are tokens: those from num_tokens on have none."

    return {
        "out_of_bounds": outside,
        "race": "Each token is written by one thread: t = blockIdx.x * blockDim.x + threadIdx.x.",
        "cudaErrorInvalidConfiguration": (
            f"A thread block has at most 1,024 threads, however many requests ({batch}) or tokens "
            f"({n}) there are."
        ),
    }


def draw(path: Path) -> Any:
    """What each line costs."""
    lengths, keys = random_batch(255, 30)
    n = sum(lengths)
    inputs = ints(list(accumulate(lengths))), ints(keys), TOPK
    outputs = (cuda.poisoned(n, dtype=torch.int32) for _ in "ab")
    return cuda.draw_lines(path, "fill_from_ends_i32", *inputs, *outputs, len(lengths), n)
