"""18.4: scores to weights in the registers where they are, and the product with the values."""

from collections.abc import Iterator
from pathlib import Path

from yaie.course.core.cuda import KernelCase, accesses
from yaie.course.core.observe import Observer
from yaie.course.exercises.nb18.attention import Problem, cases_of, see_attention
from yaie.emulator import Report

NAME = "flash_mma"
SMALL = (
    Problem(((1, 1),), suffix="f16"),
    Problem(((3, 3),), dim=16, suffix="f16"),
    Problem(((20, 12),), dim=16, suffix="f16"),
    Problem(((20, 40),), dim=64, suffix="f16"),
)
OTHERS = (
    Problem(((40, 70),), dim=64, causal=True, suffix="f16"),
    Problem(((3, 300),), dim=24, suffix="f16"),
    Problem(((4, 300),), dim=16, rising=True, suffix="f16"),
    Problem(((2, 40),), dim=16, size=400.0, suffix="f16"),
    Problem(((2, 40),), dim=16, below=True, suffix="f16"),
    Problem(((2, 0),), dim=16, suffix="f16"),
    Problem(((20, 3),), dim=16, causal=True, suffix="f16"),
    Problem(((20, 150),), dim=128, suffix="f16"),
    Problem(((5, 33), (0, 3), (34, 40)), heads=4, kv_heads=2, dim=40, causal=True, block_size=16,
            suffix="f16"),
    Problem(((50, 90),), heads=2, kv_heads=1, dim=72, causal=True, suffix="bf16"),
)  # fmt: skip
COUNTED = Problem(((32, 128),), dim=64, suffix="f16")

BECAUSE = (
    "Two neighboring scores of a lane become two weights, and they are where operand A of the next "
    "product needs them. out is the sum of weight × value, and its rows are divided by their "
    "totals at the end."
)
EXPLAIN = {
    "race": "weigh touches registers alone, and add_values only reads shared memory.",
    "pending_copy": "This tile's values are at v_tile; past its TILE_K rows others are copied.",
    "uninitialized": "v_tile has TILE_K rows of CHUNKS chunks. The keys begin at row j * 8.",
    "misaligned": "ldmatrix takes the address of a chunk, swizzle(…) * CHUNK numbers on.",
    "out_of_bounds": "v_tile has TILE_K rows of CHUNKS chunks. The keys begin at row j * 8.",
}
ONCE = "Load a chunk of values once, and multiply it with all rows of the warp."
MEET = "The swizzle puts the same chunk of 8 consecutive keys in different banks."


def cases() -> Iterator[KernelCase]:
    yield from cases_of(SMALL, OTHERS, COUNTED)


def observe(path: Path, case: KernelCase, see: Observer) -> None:
    report = see_attention(see, path, NAME, case, EXPLAIN, BECAUSE)
    if case.costs:
        see_values(see, report)


def see_values(see: Observer, report: Report) -> None:
    """Loads of values are as many and as cheap as they can be: COUNTED has one warp with rows."""
    lines = report.source.splitlines()
    loads = [
        x
        for x in accesses(report, memory="shared", kind="load")
        if not x.header and "v_tile" in "".join(lines[x.line - 1 : x.line + 2])
    ]
    dear = sum(x.units for x in loads) - sum(x.ideal_units for x in loads)
    see.equal("the wavefronts that loads of values cost more than they need", dear, 0, MEET)
    (_, keys), chunks = COUNTED.lengths[0], COUNTED.dim // 8
    most = keys // 8 * chunks * 2  # an 8 × 8 matrix that is transposed counts as two
    see.at_most("the loads of 8 × 8 matrices of values, two each", sum(x.requests for x in loads),
                most, ONCE)  # fmt: skip
