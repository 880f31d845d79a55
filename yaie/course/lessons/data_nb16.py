"""What notebook 16 counts and shows: operations per byte, swizzles, a warp's fragments."""

import re
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from yaie.course.core import paths
from yaie.course.core.cuda import module_of
from yaie.course.core.printed import hear
from yaie.course.lessons.changed import changed

kept = partial(paths.kept, "16_matmul_h100")  # the figures of the ladder matmul
kept_variants = partial(paths.kept, "16_matmul_h200")  # of variants of its last rung
kept_hopper = partial(paths.kept, "16_hopper_h100")  # and of the ladder hopper
TABLE = """
__global__ void fill_places(int* out, int chunks, int rows) {
    for (int row = 0; row < rows; ++row)
        for (int chunk = 0; chunk < chunks; ++chunk)
            *out++ = chunks == 4    ? swizzle<4>(row, chunk)
                     : chunks == 8  ? swizzle<8>(row, chunk)
                     : chunks == 16 ? swizzle<16>(row, chunk)
                                    : swizzle<32>(row, chunk);
}
extern "C" cudaError_t swizzle_places(int* out, int chunks, int rows, cudaStream_t stream) {
    fill_places<<<1, 1, 0, stream>>>(out, chunks, rows);
    return cudaGetLastError();
}
"""
CHUNKS = (4, 8, 16, 32)
# Has thread 0 print its copies, waits, barriers, loads and products.
INCLUDE = '#include "mma.cuh"\n'
EVENTS = """
#define TELL(...) (threadIdx.x + blockIdx.x == 0 ? printf("told: " __VA_ARGS__) : 0)
#define IN_STAGE(place) int((const T*)(place) - stages) / STAGE
template <typename T, typename... Parts>
__device__ inline void told_mma(Parts&&... parts) {
    TELL("product 1\\n"), mma_16x8x16<T>(parts...);
}
template <int PENDING>
__device__ inline void told_wait() { TELL("wait %d\\n", PENDING), cp_async_wait<PENDING>(); }
#define mma_16x8x16 told_mma
#define cp_async_wait told_wait
#define cp_async_16(to, from, valid) (written = IN_STAGE(to), cp_async_16(to, from, valid))
#define cp_async_commit() (TELL("copy %d\\n", written), cp_async_commit())
#define ldmatrix_x4_trans(to, row) (TELL("load %d\\n", IN_STAGE(row)), ldmatrix_x4_trans(to, row))
#define __syncthreads() (TELL("barrier 0\\n"), __syncthreads())
"""
# Has one warp print which rows it points ldmatrix at, step by step.
LOADS = """
#define TELL(...) \\
    (threadIdx.x / 32 == FOLLOWED && blockIdx.x == 0 ? printf("told: " __VA_ARGS__) : 0)
#define TELL_ROW(row) TELL("load %d %d\\n", threadIdx.x % 32, int((const T*)(row) - stages))
#define ldmatrix_x4(to, row) (TELL_ROW(row), ldmatrix_x4(to, row))
#define ldmatrix_x4_trans(to, row) (TELL_ROW(row), ldmatrix_x4_trans(to, row))
"""
STEP = '        TELL("step %d 0\\n", threadIdx.x % 32);\n'


@dataclass(frozen=True)
class Asked:
    """A row of 8 numbers that a lane points ldmatrix at.

    Attributes:
        tile: "a" or "b"; "" if the address is not where a chunk of the stage begins.
        row, chunk: of the tile.
        lane: that passes its address.
        number: of the instruction, from 0 in each step and for each tile.
    """

    tile: str
    row: int
    chunk: int
    lane: int
    number: int


@dataclass(frozen=True)
class Tiling:
    """A tile of c, and what computes it: a thread, a warp or a thread block.

    Attributes:
        name: whose tile it is.
        rows, columns: of c.
    """

    name: str
    rows: int
    columns: int

    def elements(self, k: int) -> int:
        """Of a and b that it needs: `rows` rows of a and `columns` columns of b."""
        return (self.rows + self.columns) * k

    def flops(self, k: int) -> int:
        """A multiplication and an addition for each element of c and each k."""
        return 2 * self.rows * self.columns * k

    def intensity(self, itemsize: int) -> float:
        """Operations per byte, whatever k is."""
        return self.flops(1) / (self.elements(1) * itemsize)


def count_loads(m: int, n: int, k: int, tile: Tiling) -> int:
    """Elements of a and b that all tiles of a product fetch, counted tile by tile."""
    loads = 0
    for row in range(0, m, tile.rows):
        for column in range(0, n, tile.columns):
            loads += (min(tile.rows, m - row) + min(tile.columns, n - column)) * k
    return loads


def places(path: Path, chunks: int, rows: int = 16) -> torch.Tensor:
    """Where a kernel's `swizzle` puts each chunk of the first rows of a tile, int `[rows, chunks]`.

    Args:
        path: a file that defines `template <int CHUNKS> int swizzle(int row, int chunk)`.
        chunks: of a row, one of `CHUNKS`.
    """
    if chunks not in CHUNKS:
        raise ValueError(f"chunks must be one of {CHUNKS}, got {chunks}")
    out = torch.full((rows, chunks), -1, dtype=torch.int32)
    text = path.read_text(encoding="utf-8")
    module_of(text + TABLE, path).swizzle_places(out, chunks, rows)
    return out


def stage_events(path: Path, tiles: int) -> tuple[int, list[tuple[str, float]]]:
    """What thread 0 of the tensor-core kernel does, in its order, for `tiles` tiles of k.

    Args:
        path: a file with the kernel of `csrc/matmul/mma.cu`.

    Returns:
        The number of stages, and the events: ("copy", stage) closes a group of copies, ("wait", n)
        waits for all groups but the n newest, ("barrier", 0), ("load", stage) loads fragments,
        ("product", share) multiplies this share of a tile.
    """
    changes = {INCLUDE: INCLUDE + EVENTS, "(shared);\n": "(shared);\n    int written = 0;\n"}
    source, told = _told(path, changes, tiles * 32)
    share = tiles / max(1, sum(what == "product" for what, _ in told))
    events: list[tuple[str, float]] = []
    for what, number in told:
        if what == "product":
            multiplied = events.pop()[1] if events[-1][0] == what else 0.0
            events.append((what, multiplied + share))
        else:
            events.append((what, float(number)))
    return int(re.search(r"\bSTAGES = (\d+);", source)[1]), events


def _told(path: Path, changes: dict[str, str], k: int) -> tuple[str, list[list[str]]]:
    """The source of the tensor-core kernel with its text changed, and the words of each line that
    it prints of a product with m = n = 8."""
    source = changed(path.read_text(encoding="utf-8"), path, changes)
    a, b = torch.ones(8, k).half(), torch.ones(k, 8).half()
    with hear() as told:
        module_of(source, path).matmul_mma_f16(a, b, b.new_empty(8, 8), 8, 8, k)
    return source, told


def asked_rows(path: Path, warp: int) -> list[list[Asked]]:
    """What a warp of the tensor-core kernel loads in its first steps, for one tile along k.

    Args:
        path: a file with the kernel of `csrc/matmul/mma.cu`.

    Returns:
        For steps 0 and 1 the rows of the tiles of a and b, in the order of the lanes.
    """
    begin = "auto load_fragments = [&](int set, int stage, int step) {\n"
    changes = {INCLUDE: INCLUDE + LOADS.replace("FOLLOWED", str(warp)), begin: begin + STEP}
    _, told = _told(path, changes, 32)
    chunks = {"a": (256, 4), "b": (32, 16)}
    tables = {name: places(path, width, rows).tolist() for name, (rows, width) in chunks.items()}
    lies, base = {}, 0
    for name, table in tables.items():
        for row, found in enumerate(table):
            lies |= {base + place * 8: (name, row, chunk) for chunk, place in enumerate(found)}
        base += chunks[name][0] * chunks[name][1] * 8
    steps: list[list[Asked]] = []
    counts: Counter[tuple[int, str, str]] = Counter()  # loads by step, lane and tile
    done: dict[int, int] = {}  # steps begun by each lane
    for what, lane, place in told:
        if what == "step":
            done[int(lane)] = done.get(int(lane), -1) + 1
            steps += [[] for _ in range(done[int(lane)] + 1 - len(steps))]
            continue
        tile, row, chunk = lies.get(int(place), ("", 0, 0))
        step = done[int(lane)]
        steps[step].append(Asked(tile, row, chunk, int(lane), counts[step, lane, tile]))
        counts[step, lane, tile] += 1
    return [sorted(step, key=lambda x: x.lane) for step in steps[:2]]


def owners() -> dict[str, list[list[tuple[int, int]]]]:
    """Which lane holds each number of the tiles of one mma.sync, and in which of its registers.

    Returns:
        "A" (16 × 16), "B" (16 × 8) and "C" (16 × 8) as rows of (lane, register); a register of A
        and B holds two numbers.
    """
    return {
        "A": [
            [(row % 8 * 4 + k % 8 // 2, row // 8 + k // 8 * 2) for k in range(16)]
            for row in range(16)
        ],
        "B": [[(column * 4 + k % 8 // 2, k // 8) for column in range(8)] for k in range(16)],
        "C": [
            [(row % 8 * 4 + column // 2, row // 8 * 2 + column % 2) for column in range(8)]
            for row in range(16)
        ],
    }
