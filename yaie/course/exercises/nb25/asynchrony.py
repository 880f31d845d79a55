"""What is told for the faults of asynchronous code, where no known mistake explains one."""

import re
from itertools import product
from pathlib import Path

from yaie.course.core import cuda
from yaie.course.core.cuda import KernelCase
from yaie.course.core.observe import Observer
from yaie.course.exercises.nb16.products import TOLERANCE, factors

CAUSES = ("transaction_bytes",)  # of what is read too early, too
GROUPS = re.compile(r"wgmma_(?:commit\(|wait<[^>]*>)")
EXPLAIN: cuda.Explain = {
    "missing_fence": (
        "wgmma accesses shared memory by another path than stores do: fence_proxy_async() by "
        "each thread that has stored, then a barrier. Registers that the threads have written "
        "need wgmma_fence() before the first wgmma."
    ),
    "pending_registers": (
        "A wgmma writes its sums whenever it likes until its group has been waited for: "
        "wgmma_commit() closes the group, wgmma_wait<0>() waits for all of them."
    ),
    "pending_copy": (
        "Bytes that are copied or read by asynchronous work may be touched only after a wait for "
        "that work: an mbarrier's phase for a load, a group's wait for a wgmma."
    ),
    "transaction_bytes": (
        "A phase of `full` is complete when its bytes have arrived: expect exactly those that the "
        "loads bring."
    ),
    "mbarrier": "A wait names the parity of the phase that it waits for: 0, 1, 0, ...",
    "race": "Wait before a tile is read, and before it is overwritten.",
    "deadlock": (
        "Compare how often each barrier is arrived at with how often it is waited for. A phase of "
        "`full` needs one arrival and the bytes of both tiles, a phase of `empty` an arrival of "
        "each consumer's thread, at the stage that has been read."
    ),
    "uninitialized": "Shared memory holds nothing until a tile has arrived there.",
    "warp_group": "All 128 threads of a warp group call wgmma, its fence and its waits together.",
}


def see_product(see: Observer, path: Path, name: str, case: KernelCase, because: str) -> None:
    """Multiply with everything checked, and note every element of c."""
    a, b, c = factors(*case.size, case.suffix)
    # Never wrong: without a commit, and with a wait for too few, the same bytes are read too early.
    calls = GROUPS.findall(cuda.without_comments(path.read_text(encoding="utf-8")))
    see.note("the calls that close groups of wgmma and wait for them", calls)
    launcher = f"{name}_{case.suffix}"
    cuda.run(
        see, path, launcher, a, b, c, *case.size, explain=EXPLAIN, causes=CAUSES, **case.how
    )  # fmt: skip
    tolerance = TOLERANCE[case.suffix]
    want = (a.double() @ b.double()).to(a.dtype)
    because = cuda.unwritten(c, because)
    for row, column in product(range(0, len(c), 64), range(0, c.shape[1], 64)):
        part = slice(row, row + 64), slice(column, column + 64)  # a wgmma's rows, a part of b
        name = f"c from row {row} and column {column} on"
        see.close(name, c[part], want[part], because, rtol=tolerance, atol=tolerance)
