"""The check of 17.2: the loop over tiles, whose first draft has three faults."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from yaie.course.checks.nb14.common import (
    on_every_schedule,
    report_of,
    require_cheap,
    two_threads,
)
from yaie.course.checks.nb17.common import (
    Mistakes,
    Problem,
    arguments,
    attend,
    requests,
    run,
    scores_of,
    seen_by,
    sequences,
    tensors,
    wrong,
)
from yaie.course.core.cuda import Explain
from yaie.course.core.expect import fail, given

if TYPE_CHECKING:
    from yaie.emulator.checks import Finding

NAME = "flash_shared_tile"
KEYS, ROWS, HEIGHT = 32, 4, 32  # in float32 with head_dim up to 64

# Each shows one fault of the draft alone: warps without a row, several rows, several tiles.
ONE_ROW = Problem(((1, 20),), dim=32)
TILES = Problem(((1, 70),), dim=32)
FOUR_ROWS = Problem(((4, 20),), dim=32)
ALL = Problem(((9, 70),), heads=2, kv_heads=1, dim=32)
SMALL = (ONE_ROW, FOUR_ROWS, TILES, ALL)
OTHERS = (
    Problem(((3, 70),), dim=32, rising=True),
    Problem(((45, 45),), dim=16, causal=True),
    Problem(((36, 3),), dim=16, causal=True),
    Problem(((2, 0),), dim=16),
    Problem(((2, 40),), dim=16, size=400.0),
    Problem(((2, 40),), dim=16, below=True),
    Problem(((5, 33), (0, 3), (34, 40)), dim=16, causal=True),
    Problem(((2, 35), (6, 6)), heads=2, kv_heads=1, dim=40, causal=True, block_size=16),
    Problem(((18, 33),), dim=100),
    Problem(((5, 33),), dim=64, suffix="f16"),
    Problem(((5, 33),), dim=64, suffix="bf16"),
)
COUNTED = Problem(((32, 64),), dim=64)

BECAUSE = (
    "Each row of the warp has its own maximum, total and sums. With weights exp(score - maximum), "
    "out is the sum of weight × value over all tiles, divided by their total; both sums are scaled "
    "down by exp(old maximum - new maximum) whenever the maximum grows."
)
LEAVES = (
    "A warp that has no query still brings rows of k and v for the others, and comes to every "
    "barrier. Only the last step, which writes, asks whether a row is there."
)
EACH_TILE = (
    "Every tile's weights were divided by that tile's own total, so each tile has the same say. "
    "The total is that of all tiles: correct what was added up before, and divide once, at the end."
)
SHARED = (
    "All rows of the warp were added up in one accumulator. Each of the ROWS rows needs sums of "
    "its own: sums[ROWS][PARTS]."
)
BEYOND = (
    "Keys beyond what the row sees were counted. Row r sees the keys below seen[r]; the score of "
    "another one becomes -INFINITY, so that its weight is 0."
)
COSTS = {
    "global load": "Neighboring lanes read neighbors of a row: load_tile does.",
    "global store": "Neighboring lanes write neighbors of a row: store_row does.",
    "shared load": (
        "From v_tile, lane l takes the elements l, l + 32, … of one and the same row, in all lanes."
    ),
    "shared store": "Neighboring lanes write neighbors of a row of a tile: load_tile does.",
}


def check_tile(path: Path) -> None:
    explain = explanations(path)

    def values(order: str) -> None:
        for problem in SMALL:
            run(path, NAME, problem, explain, mistakes(problem), BECAUSE, order)

    on_every_schedule(values)
    for problem in OTHERS:
        run(path, NAME, problem, explain, mistakes(problem), BECAUSE)
    costs(path)


def mistakes(problem: Problem) -> Iterator[tuple[Any, str]]:
    """Outputs that are likely, and what they come from."""
    told = {
        ("each tile",): EACH_TILE,
        ("sums",): "The sums of values were not scaled down when a larger maximum came.",
        ("total",): "The total was not scaled down when a larger maximum came.",
        ("total and sums",): "Neither the total nor the sums were scaled down when a larger "
        "maximum came.",
        ("not divided",): "That is not divided by the total.",
        ("so far",): "Each tile was divided by the total at that time. Later tiles make the total "
        "larger, so the division waits until the last tile is in.",
        ("all keys",): BEYOND,
        ("all keys", "zeros"): BEYOND + " Beyond the last key the tile holds zeros, whose score "
        "is 0, not -infinity.",
        ("last tile",): "That is the last tile alone: what came before was lost.",
    }  # fmt: skip
    for faults, text in told.items():
        yield wrong(problem, KEYS, *faults)[0], text
    yield attend(problem, seen=lambda s, query: seen_by_tile(problem, s, query))[0], BEYOND
    if len(problem.lengths) == 1 and 0 < problem.lengths[0][1] <= KEYS and problem.heads == 1:
        yield from of_one_tile(problem)


def seen_by_tile(problem: Problem, sequence: int, query: int) -> int:
    """How many keys the last query of the query's tile sees."""
    last = min((query // HEIGHT + 1) * HEIGHT, problem.lengths[sequence][0]) - 1
    return seen_by(problem, sequence, last)


def of_one_tile(problem: Problem) -> Mistakes:
    """Outputs of a single tile whose rows, or lanes, were confused."""
    import torch

    q, k, v = tensors(problem)
    ((rows, columns),) = sequences(problem)
    scores, values = scores_of(problem, q[rows], k[columns], 0), v[columns, 0].double()
    for query in range(len(scores)):
        scores[query, seen_by(problem, 0, query) :] = -torch.inf
    weights = (scores - scores.amax(1, keepdim=True).clamp(min=-1e30)).exp()
    total = weights.sum(1, keepdim=True)
    warp = torch.arange(len(scores)) // ROWS
    together = torch.stack([(weights @ values)[warp == w].sum(0) for w in warp])
    shares = torch.stack([((weights / total) @ values)[warp == w].sum(0) for w in warp])
    lanes = torch.arange(problem.dim) % KEYS
    own = torch.cat((weights, weights.new_zeros(len(weights), KEYS - weights.shape[1])), 1)[
        :, lanes
    ]
    by_own = torch.where(own > 0, (weights @ values) / own, 0.0)
    even = (weights > 0).double() @ values / (weights > 0).sum(1, keepdim=True)
    return [
        (x.unsqueeze(1), text)
        for x, text in (
            (together / total, SHARED),
            (shares, SHARED),
            (together, SHARED + " And nothing was divided."),
            (own * values.sum(0) / total, "Each lane multiplied all values by its own weight, that "
             "of key `lane`. The weight of key `key` is in lane `key`: __shfl_sync hands it to "
             "all."),
            (even, "Every lane took its own score for the maximum, so that all weights are 1: "
             "warp_max gives the largest score of the row to all lanes."),
            (by_own, "Each lane divided by its own weight: the total of a row is the sum over all "
             "lanes, warp_sum."),
        )
    ]  # fmt: skip


def costs(path: Path) -> None:
    """Each key and value is asked for once a thread block, and no bank is asked twice."""
    from yaie.emulator.checks import Report

    given_arguments, _ = arguments(COUNTED)
    with given(str(COUNTED)):
        report = report_of(path, f"{NAME}_f32", *given_arguments)
        needed = COUNTED.lengths[0][1] * COUNTED.dim // 32
        for name in ("k", "v"):
            asked = requests(report, name)
            if asked > needed:
                fail(
                    f"the result is right, but {name} was asked for {asked} times, and {needed} "
                    "would do: a tile is brought to shared memory once, for all rows of the tile "
                    "of queries."
                )
        tiles = [x for x in report.accesses if x.name != "q_tile" or x.kind == "store"]
        require_cheap(Report([], tiles, report.source), COSTS)


def element(found: Finding, dim: int, size: int) -> str:
    """`k_tile[3][0]` for a byte of a tile."""
    width = dim + (16 // size if found.name == "k_tile" else 0)
    index = found.offset // size
    return f"{found.name}[{index // width}][{index % width}]"


def explanations(path: Path) -> Explain:
    def race(found: Finding) -> str:
        if found.memory == "global":
            return "A row of out is written by the warp that has it, and lse by one of its lanes."
        one, other = two_threads(found)
        tile = found.name
        return (
            f"{one} and {other} touch the same element of {tile}, one of them in line {found.line} "
            f"and the other in line {found.other_line}, and no barrier stands between. Two "
            "barriers in every turn: one before the tiles are read, one before the next turn "
            "writes them."
        )

    return {
        "race": race,
        "uninitialized": (
            "That part of the tile has not been written when it is read. All threads bring rows, "
            f"and a barrier comes before anybody reads. {LEAVES}"
        ),
        "divergent_barrier": LEAVES,
        "deadlock": LEAVES,
        "out_of_bounds": lambda found: (
            "v_tile has KEYS rows of DIMS elements, q_tile a row for each query of the tile."
            if found.memory == "shared"
            else "A row that has no query has no place in out and lse: it may not be written."
        ),
        "inactive_lane": "All 32 lanes of a warp come to every shuffle, and name all lanes.",
        "divergent_collective": "All 32 lanes of a warp come to one and the same shuffle.",
        "wrong_mask": "All 32 lanes take part: ALL_LANES.",
    }


def draw_tile(path: Path) -> Any:
    """What each line costs."""
    from yaie.course.viz.costs import draw_costs

    given_arguments, _ = arguments(COUNTED)
    return draw_costs(report_of(path, f"{NAME}_f32", *given_arguments))
