"""18.1: the online softmax of a warp, one score at a time."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from yaie.course.core.cuda import KernelCase, dtype_of, reserved, run
from yaie.course.core.observe import Observer
from yaie.course.exercises.nb18.attention import (
    Problem,
    arguments,
    attend,
    cases_of,
    draw_rung,
    operator_by,
    see_attention,
    see_loads,
    see_result,
    seen_by,
    tensors,
)

fit = operator_by("row")
NAME = "flash_row"
SMALL = (
    Problem(((1, 1),)),
    Problem(((2, 5),), rising=True),
    Problem(((3, 9),), heads=2, kv_heads=1),
    Problem(((5, 7),), heads=2, kv_heads=2, causal=True),
)
OTHERS = (
    Problem(((2, 6),), size=400.0),
    Problem(((2, 6),), below=True),
    Problem(((4, 2),), causal=True),
    Problem(((2, 3), (0, 4), (5, 6)), causal=True),
    Problem(((2, 4), (3, 0))),
    Problem(((2, 9), (3, 5)), heads=2, kv_heads=1, causal=True, block_size=4),
    Problem(((3, 4),), dim=33),
    Problem(((3, 4),), dim=100),
    Problem(((5, 6),), dim=40, suffix="f16"),
    Problem(((5, 6),), dim=40, suffix="bf16"),
)
COUNTED = Problem(((6, 11),), dim=64, causal=True)
FAR = Problem(((1, 3),), suffix="f16")
APART = 2**30, 2**30 + 8  # elements from one row to the next, of k and of v

BECAUSE = (
    "With weights exp(score - maximum), out is the sum of weight × value, divided by the sum of "
    "the weights. Both sums are multiplied by exp(old maximum - new maximum) whenever the maximum "
    "grows."
)
EXPLAIN = {
    "race": "A warp writes its own row of out, a lane its own elements, and one lane writes lse.",
    "out_of_bounds": (
        "The row of a key begins `place` strides after k, and its KV head `head_start` elements "
        "later, where `place` is sequence.place of a key from 0 to seen - 1. out has head_dim "
        "elements per row, and lse has one: their row is `row`."
    ),
    "shuffle": "All 32 lanes have to reach `dot`: they share the elements of a row, not the keys.",
    "divergent_barrier": "No barrier is needed here: no warp waits for another.",
}


def cases() -> Iterator[KernelCase]:
    yield from cases_of(SMALL, OTHERS, COUNTED)
    words = "1 query and 3 keys, with 2³⁰ elements from row to row of k, and 8 more of v, f16"
    yield KernelCase(words, problem=FAR, how={"checked": False, "most_blocks": 2})


def observe(path: Path, case: KernelCase, see: Observer) -> None:
    if case.problem is FAR:
        observe_far(path, case, see)
        return
    report = see_attention(see, path, NAME, case, EXPLAIN, BECAUSE)
    if case.costs:
        seen = sum(seen_by(COUNTED, 0, query) for query in range(COUNTED.lengths[0][0]))
        once = (
            "Read a key and its value once, while the maximum is not yet final: the correction "
            "makes up for it."
        )
        see_loads(see, report, "kv", seen * COUNTED.dim // 32, once)


def observe_far(path: Path, case: KernelCase, see: Observer) -> None:
    """The rows of k and v lie far apart; between them their tensors take no memory."""
    given, (out, lse) = arguments(FAR)
    q, k, v = tensors(FAR)
    large = [reserved(len(k) * stride, dtype_of(FAR.suffix)) for stride in APART]
    for rows, room, stride in zip((k, v), large, APART, strict=True):
        room.view(len(k), stride)[:, : FAR.dim] = rows[:, 0]
    sizes = (*given[3:16], *APART, *given[18:])
    run(see, path, f"{NAME}_{FAR.suffix}", q, *large, *sizes, explain=EXPLAIN, **case.how)
    because = (
        "A row of k begins flash.k_stride elements after the one before, a row of v "
        "flash.v_stride, and the last ones begin past element 2³¹, where an int overflows."
    )
    for what, got, want in zip(("out", "lse"), (out, lse), attend(FAR), strict=True):
        see_result(see, what, got, want, because, FAR)


def draw(path: Path) -> Any:
    """What each line costs."""
    return draw_rung(path, NAME, COUNTED)
