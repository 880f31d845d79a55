"""Matrix product: a program computes one tile of the result, walking along k.

Two kernels with the same loop. The first addresses each element with a pointer and takes any
shape. The second asks the copy engine of a Hopper GPU for whole tiles (a tensor descriptor), which
frees registers and threads for the tensor cores; every row must then begin at a multiple of 16
bytes.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from yaie.ops.registry import multiprocessors
from yaie.ops.triton.runtime import INTERPRETED, Config, aligned, fastest, launches, precision

LARGE = 1 << 30  # multiplications from which on the configurations are timed


@triton.jit
def grouped_tile(tile, tiles_m, tiles_n, GROUP: tl.constexpr):
    """The row and the column of tile number `tile`, in an order that reads less from memory.

    Programs that run together should share rows of a and columns of b in the L2 cache. So the
    tiles_m × tiles_n tiles come in groups of GROUP rows of tiles, the last of which may be lower:
    down the rows of the group, then the next column; when the group is done, the next group.
    """
    group = tile // (GROUP * tiles_n)
    first_m = group * GROUP
    height = min(tiles_m - first_m, GROUP)  # the last group may be lower
    within = tile % (GROUP * tiles_n)
    return first_m + within % height, within // height


@triton.jit
def matmul_kernel(
    a_ptr,  # [m, k]
    b_ptr,  # [k, n]
    c_ptr,  # [m, n]
    m,
    n,
    k,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """c = a b, a tile of `[BLOCK_M, BLOCK_N]` per program, in steps of BLOCK_K along k.

    `grouped_tile` says which tile a program owns, in an order with groups of GROUP. No size has to
    be a multiple of its block. Products are summed in float32 and rounded once, at the store.
    PRECISION is the `input_precision` of `tl.dot`.
    """
    tile_m, tile_n = grouped_tile(tl.program_id(0), tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N), GROUP)
    rows = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    # Rows beyond the end wrap around: loaded in vain but from valid memory, and never stored.
    a_tile = a_ptr + (rows % m).to(tl.int64)[:, None] * k + inner[None, :]
    b_tile = b_ptr + inner.to(tl.int64)[:, None] * n + (columns % n)[None, :]

    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, k, BLOCK_K):
        inside = inner < k - start  # beyond k the products must be 0
        a = tl.load(a_tile, mask=inside[None, :], other=0.0)
        b = tl.load(b_tile, mask=inside[:, None], other=0.0)
        total = tl.dot(a, b, total, input_precision=PRECISION)
        a_tile += BLOCK_K
        b_tile += BLOCK_K * tl.cast(n, tl.int64)  # an n of 1 is a constant

    c_tile = c_ptr + rows.to(tl.int64)[:, None] * n + columns[None, :]
    inside = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(c_tile, total.to(c_ptr.dtype.element_ty), mask=inside)


@triton.jit
def descriptor_matmul_kernel(
    a_desc,  # tiles of [BLOCK_M, BLOCK_K]
    b_desc,  # tiles of [BLOCK_K, BLOCK_N]
    c_desc,  # tiles of [BLOCK_M, BLOCK_N / PARTS]
    m,
    n,
    k,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
    PARTS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """c = a b, several tiles per program: the next tile's loads begin while this one is stored."""
    tiles_m, tiles_n = tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N)
    for tile in tl.range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0), flatten=True):
        tile_m, tile_n = grouped_tile(tile, tiles_m, tiles_n, GROUP)
        row, column = tile_m * BLOCK_M, tile_n * BLOCK_N
        total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for start in range(0, k, BLOCK_K):
            a = a_desc.load([row, start])  # what lies beyond the matrix comes as 0
            b = b_desc.load([start, column])
            total = tl.dot(a, b, total, input_precision=PRECISION)
        if PARTS == 1:
            c_desc.store([row, column], total.to(c_desc.dtype))
        else:  # half a tile at a time needs half the shared memory
            halves = total.reshape(BLOCK_M, 2, BLOCK_N // 2).permute(0, 2, 1)
            left, right = halves.split()
            c_desc.store([row, column], left.to(c_desc.dtype))
            c_desc.store([row, column + BLOCK_N // 2], right.to(c_desc.dtype))


def _config(m: int, n: int, k: int, warps: int, stages: int, **more: int) -> Config:
    tiles = {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP": 8}
    return tiles | {"num_warps": warps, "num_stages": stages} | more


# The first of each is the safe one: little shared memory, few registers.
CONFIGS = [
    _config(64, 64, 32, 4, 3),
    _config(128, 128, 32, 4, 4),
    _config(128, 128, 64, 4, 3),
    _config(128, 128, 64, 8, 3),
    _config(128, 256, 64, 8, 3),
    _config(256, 128, 64, 8, 3),
    _config(64, 256, 32, 4, 4),
    _config(16, 128, 128, 4, 4),
    _config(32, 64, 128, 4, 4),
]
# PERSISTENT: one program per multiprocessor, each of which computes many tiles; else one per tile.
DESCRIPTOR_CONFIGS = [
    _config(*tiles, PARTS=parts, PERSISTENT=persistent)
    for *tiles, parts in (
        (64, 64, 32, 4, 3, 1),
        (128, 256, 64, 8, 3, 1),
        (128, 256, 64, 8, 3, 2),
        (128, 256, 64, 8, 4, 2),
        (256, 128, 64, 8, 3, 2),
        (256, 128, 64, 8, 4, 2),
        (128, 128, 64, 4, 4, 1),
        (128, 128, 64, 4, 3, 1),
        (128, 128, 64, 8, 4, 1),
        (64, 256, 64, 4, 4, 2),
    )
    for persistent in (0, 1)
]


@launches()
def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """`[m, k]` × `[k, n]` -> `[m, n]`, summed in float32."""
    (m, k), n = a.shape, b.shape[1]
    if 0 in (m, n, k):
        return a.new_zeros(m, n)
    c = a.new_empty(m, n)
    sizes = {"m": m, "n": n, "k": k, "PRECISION": precision(a.dtype)}

    def launch(config: Config) -> None:
        tiles = triton.cdiv(m, config["BLOCK_M"]) * triton.cdiv(n, config["BLOCK_N"])
        matmul_kernel[(tiles,)](a, b, c, **sizes, **config)

    def launch_descriptors(config: Config) -> None:
        block_m, block_n, block_k = (config[f"BLOCK_{axis}"] for axis in "MNK")
        tiles = triton.cdiv(m, block_m) * triton.cdiv(n, block_n)
        constants = dict(config)
        if constants.pop("PERSISTENT"):
            tiles = min(tiles, multiprocessors(a.device))
        descriptor_matmul_kernel[(tiles,)](
            TensorDescriptor.from_tensor(a, [block_m, block_k]),
            TensorDescriptor.from_tensor(b, [block_k, block_n]),
            TensorDescriptor.from_tensor(c, [block_m, block_n // config["PARTS"]]),
            **sizes,
            **constants,
        )

    large = m * n * k >= LARGE
    key = (a.dtype, *(min(triton.next_power_of_2(size), 8192) for size in (m, n, k)))
    if large and _has_copy_engine(a.device) and all(aligned(x) for x in (a, b, c)):
        configs = _fitting(DESCRIPTOR_CONFIGS, a)
        launch_descriptors(fastest(("matmul", *key), configs, launch_descriptors, large))
    else:
        configs = _fitting(CONFIGS, a)
        launch(fastest(("matmul by pointers", *key), configs, launch, large))
    return c


def _has_copy_engine(device: torch.device) -> bool:
    return INTERPRETED or torch.cuda.get_device_capability(device)[0] >= 9


def _fitting(configs: list[Config], a: torch.Tensor) -> list[Config]:
    """Those whose tiles fit the shared memory in the dtype of a: float32 takes half the stages."""
    return configs if a.element_size() == 2 else configs[:1]
