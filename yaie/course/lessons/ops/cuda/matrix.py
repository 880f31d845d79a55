"""Operators on whole matrices by CUDA C++ kernels: transpose, and the rungs of the product."""

import functools
from collections.abc import Callable
from pathlib import Path

import torch

from yaie.ops.cuda.launching import (
    SINCE_SM_80,
    launch,
    require_hopper,
    require_tensor_cores,
)
from yaie.ops.registry import Unsupported

MOST_ROWS = 65_535 * 32  # a grid has at most 65,535 thread blocks from top to bottom


def transpose(x: torch.Tensor) -> torch.Tensor:
    """`[rows, columns]` -> `[columns, rows]`, through tiles in shared memory."""
    rows, columns = x.shape
    if rows > MOST_ROWS:
        raise Unsupported(f"transpose takes up to {MOST_ROWS} rows, got {rows}")
    out = x.new_empty(columns, rows)
    launch("transpose/transpose.cu", "transpose", x.dtype, x, out, rows, columns)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """`[m, k]` × `[k, n]` -> `[m, n]`, by the best rung that takes these matrices on this card.

    On a CPU by the last rung without tensor cores, whose emulation is slow.
    """
    for rung in (shares, mma, wmma) if a.is_cuda else ():
        try:
            return rung(a, b)
        except Unsupported:
            continue
    return register_tile(a, b)


def naive(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Every element on its own."""
    return _product("matmul/naive.cu", 8, a, b)


def shared_tile(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Tiles of 32 × 32 in shared memory."""
    return _product("matmul/shared_tile.cu", 32, a, b)


def register_tile(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """8 × 8 elements per thread, in tiles of 128 × 128."""
    return _product("matmul/register_tile.cu", 128, a, b)


def wmma(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Tensor cores, by CUDA's interface: float16 from sm_75 on, bfloat16 from sm_80 on."""
    _require_aligned_on_tensor_cores(a, b, {torch.float16: (7, 5), torch.bfloat16: (8, 0)})
    return _product("matmul/wmma.cu", 128, a, b)


def mma(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Tensor cores that never wait: float16 and bfloat16 from sm_80 on."""
    _require_aligned_on_tensor_cores(a, b, SINCE_SM_80)
    return _product("matmul/mma.cu", None, a, b)


Product = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
RUNGS: dict[str, Product] = {
    rung.__name__: rung for rung in (naive, shared_tile, register_tile, wmma, mma)
}


def _hopper(rung: str, height: int | None) -> Product:
    """A rung of csrc/matmul/hopper, which runs on cards of compute capability 9.0 and emulated."""

    def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        _require_aligned_on_tensor_cores(a, b, SINCE_SM_80)
        require_hopper(a)
        return _product(f"matmul/hopper/{rung}.cu", height, a, b)

    return product


def shares(a: torch.Tensor, b: torch.Tensor, way: int | None = None) -> torch.Tensor:
    """The last rung for Hopper: tiles as the problem wants them, and a last round split along k.

    Args:
        b: `[k, n]`, contiguous, or the transpose of a contiguous matrix as a layer's weights are.
        way: 2 × (the number of a tile in the source) + (1 if the last round may be split), in
            place of the one that costs least.
    """
    turned = not b.is_contiguous()
    _require_aligned_on_tensor_cores(a, b, SINCE_SM_80)
    require_hopper(a)
    (m, k), n = a.shape, b.shape[1]
    c, workers = a.new_empty(m, n), _workers(a.device)
    workspace = torch.empty(workers * 128 * 256, device=a.device)
    launch(
        "matmul/hopper/shares.cu", "matmul_shares", a.dtype, a, b.t() if turned else b, c,
        workspace, _tickets(a.device), m, n, k, int(turned), workers, -1 if way is None else way,
    )  # fmt: skip
    return c


@functools.cache
def _workers(device: torch.device) -> int:
    """The SMs of a GPU; on the emulator enough for a round that is not full."""
    if device.type != "cuda":
        return 5
    return torch.cuda.get_device_properties(device).multi_processor_count


def _tickets(device: torch.device) -> torch.Tensor:
    """Zeros, which a launch leaves as they were. Launches of one stream follow each other, so they
    share them; so do all graphs of a device, which therefore must not run at the same time."""
    if device.type != "cuda":
        return torch.zeros(_workers(device), dtype=torch.int32)
    capturing = torch.cuda.is_current_stream_capturing()
    return _zeros(device, None if capturing else torch.cuda.current_stream(device).cuda_stream)


@functools.cache
def _zeros(device: torch.device, stream: int | None) -> torch.Tensor:
    if stream is not None:
        _zeros(device, None)  # a graph that is captured later must find them filled
    return torch.zeros(_workers(device), dtype=torch.int32, device=device)


# Those whose grid has rows of tiles take the tiles' height.
HOPPER = {
    **{rung: _hopper(rung, 128) for rung in ("wgmma", "tma", "stages", "producer", "consumers")},
    **{rung: _hopper(rung, None) for rung in ("persistent", "store", "cluster")},
    "shares": shares,
}
TILES = ("128 × 256", "128 × 192", "128 × 128", "64 × 128", "64 × 64")  # of shares.cu, in its order
WAYS: dict[str, Product] = {
    f"shares, {tile}{', split' if split else ''}": functools.partial(shares, way=2 * i + split)
    for i, tile in enumerate(TILES)
    for split in (0, 1)
}


def _product(file: str, height: int | None, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Launch a rung whose thread blocks have `height` rows of c; None: they are in one line."""
    (m, k), n = a.shape, b.shape[1]
    if height is not None and m > 65_535 * height:
        raise Unsupported(f"{file} takes up to {65_535 * height} rows, got {m}")
    c = a.new_empty(m, n)
    launch(file, f"matmul_{Path(file).stem}", a.dtype, a, b, c, m, n, k)
    return c


def _require_aligned_on_tensor_cores(
    a: torch.Tensor, b: torch.Tensor, since: dict[torch.dtype, tuple[int, int]]
) -> None:
    """Raise Unsupported unless the tensor cores can multiply these matrices."""
    require_tensor_cores(a, since)
    (_, k), n = a.shape, b.shape[1]
    if n % 8 or k % 8 or (a.data_ptr() | b.data_ptr()) % 16:
        raise Unsupported(
            f"rows have to begin at multiples of 16 bytes: n and k are {n} and {k}, "
            f"a and b begin {a.data_ptr() % 16} and {b.data_ptr() % 16} bytes past one"
        )
