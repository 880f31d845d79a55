"""16.1: tiles in shared memory: every edge, no race, every element fetched once per tile."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

from yaie.course.core import cuda
from yaie.course.core.cuda import KernelCase
from yaie.course.core.observe import Observer
from yaie.course.exercises.nb16.products import factors, product_of, see_barriers, see_product

NAME = "matmul_shared_tile"
TILE = 32
WHOLE = (64, 96, 64)
SIZES = ((32, 32, 32), WHOLE, (32, 32, 40), (33, 31, 64), (5, 70, 33), (1, 1, 1), (40, 33, 0))
FAR = ((2**20 + 1, 2048, 2048), (1, 2**20 + 32, 2049))  # last rows that begin past 2³¹ elements
EXPLAIN = {
    "race": "Wait before the tiles are read, and before the next iteration writes them.",
    "out_of_bounds": "What lies beyond the edges of a and b counts as 0: do not read it.",
    "uninitialized": "Each thread writes its cell of both tiles in each iteration.",
    "deadlock": "All threads make the same number of iterations.",
}
COSTS = {
    "global load": "Neighboring threads (threadIdx.x) should read neighbors of a row.",
    "global store": "Neighboring threads (threadIdx.x) should write neighbors of a row of c.",
    "shared load": (
        "The lanes of a warp have the same y. Let them read one element of a_tile, which they "
        "share, and 32 neighbors of a row of b_tile."
    ),
    "shared store": "The lanes of a warp should write 32 neighbors of a row of the tile.",
}


def cases() -> Iterator[KernelCase]:
    yield from cuda.in_every_order(*(product_of(*size) for size in SIZES))
    yield product_of(1, 1, 4096, "f16", ones=True, how={"checked": False})
    for suffix in ("f16", "bf16"):
        yield product_of(40, 70, 100, suffix, each=True)
    yield product_of(*WHOLE, costs=True)
    last = {"checked": False, "most_blocks": 1, "order": "reverse"}
    for m, n, k in FAR:
        words = f"the last tile of c, where a is {m:,} × {k:,} and b is {k:,} × {n:,}, f16"
        yield KernelCase(words, size=(m, n, k), how=last)


def observe(path: Path, case: KernelCase, see: Observer) -> None:
    m, n, k = case.size
    if case.size in FAR:
        observe_far(path, case, see)
        return
    tail = f" Here k = {k} is not a multiple of 32." if k % TILE else ""
    because = f"c[row][column] is the sum of a[row][i] × b[i][column] over all i < k.{tail}"
    if case.ones:
        because = f"1 × 1 is added {k:,} times, in float32."
    report = see_product(see, path, NAME, case, EXPLAIN, because)
    if case.costs:
        fewest = (m * k * (n // TILE) + k * n * (m // TILE)) // TILE  # an element per lane
        asked = cuda.requests(report, memory="global", kind="load")
        shared = "Each thread brings one element of a and of b per iteration, for all to use."
        see.at_most("the requests of warps to read a and b", asked, fewest, shared)
        cuda.cheap(see, report, COSTS)
        see_barriers(see, report, (m // TILE) * (n // TILE) * (k // TILE))


def observe_far(path: Path, case: KernelCase, see: Observer) -> None:
    """The thread block of the last tile alone; a and b are 0, which takes no memory, but for ones
    in the last row of each."""
    m, n, k = case.size
    a, b, c = (cuda.reserved(size, torch.float16) for size in (m * k, k * n, m * n))
    a[-k:], b[-n:], c[-1] = 1, 1, float("nan")
    cuda.run(see, path, f"{NAME}_f16", a, b, c, m, n, k, explain=EXPLAIN, **case.how)
    large = "a and c" if m > 1 else "b"
    bits = f"The last row of {large} begins past element 2³¹, where an index of 32 bits overflows."
    see.equal("the last element of c", c[-1].item(), 1.0, bits)


def draw(path: Path) -> Any:
    """What a warp reads from the two tiles."""
    from yaie.course.viz.film import compose
    from yaie.course.viz.memory import draw_access

    report = cuda.report_of(path, f"{NAME}_f32", *factors(*WHOLE), *WHOLE)
    loads = sorted(cuda.accesses(report, memory="shared", kind="load"), key=lambda x: x.name)
    return compose([partial(draw_access, access) for access in loads[:2]])
