"""What notebook 18 runs and counts: a rung, its accesses, who owns what, kept figures."""

from functools import partial
from pathlib import Path
from typing import Any

import torch

from yaie.course.core import paths
from yaie.course.exercises import oracles
from yaie.course.lessons.attention_costs import AttentionShape, naive_cost
from yaie.course.viz.tiles import TileOwners, TileStep
from yaie.ops.cuda.flash import Sequences as Layout
from yaie.ops.cuda.launching import suffix

kept = partial(paths.kept, "18_flash_h200")  # the figures of the ladder flash
naive = oracles.attention  # with every score in memory, in float64
ALONE = Layout()


def attend(
    kernels: Any,
    rung: str,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool = True,
    scale: float | None = None,
    layout: Layout = ALONE,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Output and log-sum-exp by a launcher of csrc/flash, into memory that held NaN.

    Args:
        kernels: a loaded file; `rung` is the part of its launchers' names.
        q, k, v: `[tokens, heads, head_dim]`; with tables k and v are pools.
    """
    q, k, v = (x.contiguous() for x in (q, k, v))
    (tokens, heads, head_dim), kv_heads = q.shape, k.shape[-2]
    out = torch.full_like(q, torch.nan)
    lse = torch.full((tokens, heads), torch.nan, device=q.device)
    batch = 1 if layout.starts_q is None else len(layout.starts_q) - 1
    keys, block_size, max_blocks = len(k), 0, 0
    if layout.block_tables is not None:
        keys, block_size, max_blocks = 0, k.shape[1], layout.block_tables.shape[1]
    row = kv_heads * head_dim
    getattr(kernels, f"flash_{rung}_{suffix(q.dtype)}")(
        *(q, k, v, out, lse, *(x if x is None else x.contiguous() for x in layout)),
        *(batch, tokens, keys, heads, kv_heads, head_dim, heads * head_dim, row, row),
        *(block_size, max_blocks, head_dim**-0.5 if scale is None else scale, int(causal)),
    )
    return out, lse


# --------------------------------------------------------------------------------------- counts


def costs(report: Any, scores: int) -> tuple[float, float]:
    """Sectors of k and v, and wavefronts of shared memory, for each of some scores."""
    sectors = sum(a.units for a in report.accesses if a.name in ("k", "v"))
    wavefronts = sum(a.units for a in report.accesses if a.memory == "shared")
    return sectors / scores, wavefronts / scores


def tiles_brought(
    path: Path, tiles: int = 4, past: int = 0
) -> tuple[list[tuple[int, int, int]], int, int]:
    """How many tiles of keys a `shared_tile.cu` brings for each tile of causal queries.

    Each tile of queries is launched alone, as the end of a sequence, and the rows of k that it
    asks for are counted.

    Args:
        past: keys before the first query.

    Returns:
        For each tile of queries its first row, how many tiles of keys all of its rows see whole,
        and how many were brought; then how many queries and keys there are.
    """
    from yaie.course.core.cuda import report_of, requests
    from yaie.course.exercises.nb18.attention import Problem, arguments
    from yaie.course.exercises.nb18.ex2_tile_loop import HEIGHT, KEYS, NAME

    rows, queries = [], tiles * HEIGHT
    for start in range(0, queries, HEIGHT):
        # The tile's queries see the same keys in a sequence that ends with them.
        lengths = ((HEIGHT, past + start + HEIGHT),)
        given_arguments, _ = arguments(Problem(lengths, dim=32, causal=True))
        report = report_of(path, f"{NAME}_f32", *given_arguments)
        brought = requests(report, name="k", kind="load")
        rows.append((start, (past + start + 1) // KEYS, -(-brought // KEYS)))
    return rows, queries, past + queries


def walk(path: Path) -> list[TileStep]:
    """The steps of `viz.tiles.draw_tiles` for the tiles of keys that a kernel brings."""
    head_dim = 64
    rows, queries, keys = tiles_brought(path, tiles=3)
    size = 32 * head_dim * 4  # bytes of any tile in float32
    whole = naive_cost(AttentionShape(queries, keys, head_dim=head_dim, itemsize=4)).bytes
    moved, done, steps = dict.fromkeys(("q", "k", "v", "out"), 0), [], []
    for start, _, seen in rows:
        moved["q"] += size
        for tile in range(seen):
            moved["k"] += size
            moved["v"] += size
            now = (start, start + 32), (tile * 32, tile * 32 + 32)
            steps.append(
                TileStep(queries, keys, True, now, tuple(done), tuple(moved.items()), whole)
            )
            done.append(now)
        moved["out"] += size + 32 * 4
    counts = tuple(moved.items())
    return [*steps, TileStep(queries, keys, True, None, tuple(done), counts, whole)]


# ---------------------------------------------------------------------------------------- owners


def owners() -> list[TileOwners]:
    """Who holds what in each rung, with head_dim 64, as states of `yaie.course.viz.tiles`."""
    lane = 5
    columns = (lane, lane + 32)
    row = TileOwners(
        "rung 1: one warp per row, one key at a time", 4, 1, 64, tuple((w, 1) for w in range(4)), 1,
        ((1, 0),), tuple((1, d) for d in columns), "", (0,), columns,
    )  # fmt: skip
    tile = TileOwners(
        "rung 2: 4 rows per warp, 32 keys at a time", 32, 32, 64,
        tuple((4 * w, 4) for w in range(8)), 2, tuple((8 + r, lane) for r in range(4)),
        tuple((8 + r, d) for r in range(4) for d in columns), "qkv", (lane,), columns,
    )  # fmt: skip
    return [row, tile]


def rescales(scores: torch.Tensor, tile: int, slack: float) -> tuple[int, float]:
    """An online softmax whose maximum moves only when a score exceeds it by more than `slack`.

    Args:
        scores: `[rows, keys]`; the rows are those of a warp, which rescales all of them or none.

    Returns:
        In how many tiles something was rescaled, and the largest error of the log-sum-exps.
    """
    maximum = scores.new_full(scores.shape[:1], -1e30)
    total, count = torch.zeros_like(maximum), 0
    for start in range(0, scores.shape[1], tile):
        some = scores[:, start : start + tile]
        top = some.amax(1)
        if bool((top > maximum + slack).any()):
            larger = torch.maximum(maximum, top)
            total, maximum, count = total * (maximum - larger).exp(), larger, count + 1
        total = total + (some - maximum.unsqueeze(1)).exp().sum(1)
    error = (maximum + total.log() - scores.logsumexp(1)).abs().max().item()
    return count, error
