"""What a device can do at best, measured: bytes a second, and operations a second.

No datasheet is asked. The figures come from the same process, through the same clock, as those of
the kernels that are compared with them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from yaie.bench.protocol import Clock, compare


@dataclass(frozen=True)
class Ceilings:
    """What the device showed at three tasks that are as simple as can be.

    A kernel that reads more than it writes can be a little faster than a copy, which does as much
    of each: `add`, with two reads a write, reaches 102% of one.

    Attributes:
        copy: GB/s of copying a large tensor, bytes read and written both counted.
        read: GB/s of summing up a large tensor, which writes next to nothing.
        matmul: TFLOP/s of the vendor's product of two square matrices, by their size.
    """

    copy: float
    read: float
    matmul: dict[int, float]

    def floor_ms(self, num_bytes: int, flops: int, writes: bool = True) -> float:
        """Milliseconds that a kernel must take: to move its bytes, or to do its operations.

        Args:
            writes: whether it writes about as much as it reads; otherwise it is a reader.
        """
        return 1e3 * max(self._seconds(num_bytes, flops, writes))

    def binding(self, num_bytes: int, flops: int, writes: bool = True) -> str:
        """Which of them a kernel is compared with: "a copy", "a read" or "a product"."""
        moving, computing = self._seconds(num_bytes, flops, writes)
        if computing > moving:
            return "a product"
        return "a copy" if writes else "a read"

    def _seconds(self, num_bytes: int, flops: int, writes: bool) -> tuple[float, float]:
        """To move the bytes, and to do the operations."""
        rate = self.copy if writes else self.read
        return num_bytes / (rate * 1e9), flops / (max(self.matmul.values()) * 1e12)


def measure(device: torch.device, dtype: torch.dtype, clock: Clock, quick: bool) -> Ceilings:
    """Measure them.

    Args:
        quick: smaller tensors, but still larger than the L2 cache of a GPU.
    """
    on_gpu = device.type == "cuda"
    num_bytes = ((256 << 20) if quick else (2 << 30)) if on_gpu else 16 << 20
    sizes = ((4096,) if quick else (4096, 8192)) if on_gpu else (256, 512)
    generator = torch.Generator(device).manual_seed(0)
    copy, read = _bandwidths(num_bytes, device, clock, generator)
    return Ceilings(copy, read, {n: _products(n, dtype, device, clock, generator) for n in sizes})


def _bandwidths(
    num_bytes: int, device: torch.device, clock: Clock, generator: torch.Generator
) -> tuple[float, float]:
    """GB/s of a copy and of a sum of `num_bytes`."""
    source = torch.randn(num_bytes // 4, device=device, generator=generator)
    target = torch.empty_like(source)
    calls = {"copy": lambda: target.copy_(source), "read": lambda: source.sum()}
    timings = compare(calls, clock)
    return 2 * num_bytes / timings["copy"].median / 1e6, num_bytes / timings["read"].median / 1e6


def _products(
    size: int, dtype: torch.dtype, device: torch.device, clock: Clock, generator: torch.Generator
) -> float:
    """TFLOP/s of the product of two square matrices."""
    a, b = (
        torch.randn(size, size, device=device, dtype=dtype, generator=generator) for _ in range(2)
    )
    timings = compare({"product": lambda: a @ b}, clock)
    return 2 * size**3 / timings["product"].median / 1e9
