"""What a device can do at best, measured: bytes and operations per second.

The figures are not from a datasheet: they are measured in the same process, by the same clock, as
those of the kernels that are compared with them.
"""

from dataclasses import dataclass
from functools import partial

import torch

from yaie.bench.protocol import Call, Clock, compare


@dataclass(frozen=True)
class Ceilings:
    """What the device reached in three tasks that are as simple as possible.

    A kernel that reads more than it writes can be a little faster than a copy, which does as much
    of each: `add`, with two reads per write, reaches 102% of one.

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

    def line(self, dtype: torch.dtype) -> str:
        """The ceilings in a line; the products are of this dtype."""
        products = ", ".join(f"{size}³ {rate:.2f}" for size, rate in self.matmul.items())
        name = str(dtype).removeprefix("torch.")
        rates = f"copy {self.copy:.0f} GB/s, read {self.read:.0f} GB/s"
        return f"ceilings: {rates}, {name} matmul {products} TFLOP/s"

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
    random = partial(torch.randn, device=device, generator=torch.Generator(device).manual_seed(0))

    def milliseconds(call: Call) -> float:
        return compare({"call": call}, clock)["call"].median

    source = random(num_bytes // 4)
    target = torch.empty_like(source)
    copy = 2 * num_bytes / milliseconds(lambda: target.copy_(source)) / 1e6
    read = num_bytes / milliseconds(source.sum) / 1e6
    matmul = {}
    for n in sizes:
        a, b = (random(n, n, dtype=dtype) for _ in range(2))
        matmul[n] = 2 * n**3 / milliseconds(partial(torch.mm, a, b)) / 1e9
    return Ceilings(copy, read, matmul)
