"""The rate of reading and copying by the size of the working set: of a cache, then of memory.

    python -m yaie.course.lessons.working_sets --output 09_working_sets_h200.json

A working set is read, or copied from one half to the other, again and again. As long as it fits in
a cache, nothing is read from memory. On a GPU one launch goes over it many times, since a launch
alone takes as long as reading 10 MiB; the fastest of a few launch shapes counts. On a CPU one core
reads, and only the time of its own thread is counted, so other processes add nothing to it.
"""

import argparse
import importlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import torch

from yaie.bench import files
from yaie.bench.machine import head
from yaie.bench.protocol import Call, Clock, CpuClock, CudaClock, compare
from yaie.engine.device import choose_device
from yaie.ops.interpreter import choose_interpreter

MIB = 1 << 20
_MIB = (1, 2, *range(4, 33, 4), 40, 48, 56, 64, 96, 128, 256, 512, 1024)  # on a GPU
SIZES = {  # bytes of a working set
    "cuda": [size * MIB for size in _MIB],
    "cpu": [MIB << shift >> 2 for shift in range(9)],
}
MOVED = 8 << 30  # bytes that a launch on a GPU moves: it takes a millisecond or two
LAUNCHES = ((4096, 8, 4), (8192, 8, 2), (4096, 4, 8))  # floats per load, warps, programs per SM


def measure(
    device: torch.device,
    sizes: Sequence[int],
    clock: Clock | None = None,
    save: Callable[[dict[str, Any]], None] = lambda record: None,
) -> dict[str, Any]:
    """Measure reading and copying of working sets.

    Args:
        sizes: bytes of each, ascending, multiples of 64 KiB.
        clock: by default the device's, with warm caches.
        save: takes the record after each row.

    Returns:
        `yaie.bench.machine.head` and rows: `what`, `num_bytes` of the working set, `gb_s` that
        moved (of a copy, read and written), the launch that was fastest, `of_memory`: the rate
        over that of the largest working set.

    Raises:
        ValueError: a size is not a multiple of 64 KiB.
        RuntimeError: a sum or copy is wrong.
    """
    for size in sizes:
        if size % (64 << 10) or size <= 0:
            raise ValueError(f"sizes must be multiples of 64 KiB, got {size}")
    on_gpu = device.type == "cuda"
    clock = clock or (
        CudaClock(device, warm=True) if on_gpu else CpuClock(warm=True, now=time.thread_time)
    )
    with nullcontext() if on_gpu else one_core():
        return _measured(device, sizes, clock, save)


@contextmanager
def one_core() -> Iterator[None]:
    """One thread of torch: the nearest caches belong to one core."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _measured(
    device: torch.device,
    sizes: Sequence[int],
    clock: Clock,
    save: Callable[[dict[str, Any]], None],
) -> dict[str, Any]:
    on_gpu = device.type == "cuda"
    record = head(device) | {"rows": []}
    for size in reversed(sizes):  # the largest first, which the others are compared with
        bits = torch.Generator(device).manual_seed(size)
        data = torch.randint(2, (size // 4,), device=device, generator=bits, dtype=torch.float32)
        half, target = data[: size // 8], torch.empty_like(data[size // 8 :])
        times = 1
        ways = {"read": {"torch": data.sum}, "copy": {"torch": partial(target.copy_, half)}}
        if on_gpu:
            times = max(1, MOVED // size)
            sms = torch.cuda.get_device_properties(device).multi_processor_count
            ways = {
                "read": read_launches(data, times, sms),
                "copy": copy_launches(half, target, times, sms),
            }
        for what, calls in ways.items():
            took = {name: timing.median for name, timing in compare(calls, clock).items()}
            best = min(took, key=took.get)
            rate = size * times / took[best] / 1e6
            row = {"what": what, "num_bytes": size, "gb_s": round(rate, 1), "launch": best}
            largest = next((r["gb_s"] for r in record["rows"] if r["what"] == what), row["gb_s"])
            record["rows"].append(row | {"of_memory": round(row["gb_s"] / largest, 3)})
            save(record)
    return record


def read_launches(x: torch.Tensor, times: int, sms: int) -> dict[str, Call]:
    """Launches that read x this many times, by their shape in words; each has been right once."""
    calls = {}
    for name, launch, programs in _launches("read_kernel", x, times, sms):
        sums = torch.full((programs,), torch.nan, device=x.device)
        calls[name] = partial(launch, sums)
        calls[name]()
        if (got := sums.double().sum()) != (wanted := times * x.double().sum()):
            raise RuntimeError(f"read_kernel, {name}: the sum is {got}, expected {wanted}")
    return calls


def copy_launches(x: torch.Tensor, target: torch.Tensor, times: int, sms: int) -> dict[str, Call]:
    """Launches that copy x this many times; each has been right once."""
    calls = {}
    for name, launch, _ in _launches("copy_kernel", x, times, sms):
        calls[name] = partial(launch, target.fill_(torch.nan))
        calls[name]()
        if not torch.equal(target, x):
            raise RuntimeError(f"copy_kernel, {name}: the copy of {x.nbytes} bytes differs")
    return calls


def _launches(
    kernel: str, x: torch.Tensor, times: int, sms: int
) -> Iterator[tuple[str, Callable[[torch.Tensor], None], int]]:
    """The shapes of a launch: in words, a call that takes the output, and its programs."""
    choose_interpreter()
    run = getattr(importlib.import_module("yaie.course.lessons.ops.triton.traffic"), kernel)
    for block, warps, per_sm in LAUNCHES:

        def launch(out: torch.Tensor, block=block, warps=warps, programs=sms * per_sm) -> None:
            run[(programs,)](x, out, x.numel() // block, times, BLOCK=block, num_warps=warps)

        yield f"{block} floats, {warps} warps, {per_sm} per SM", launch, sms * per_sm


def main() -> None:
    """Measure this machine's GPU, or its CPU if it has none."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=files.output_path, help="JSON, saved after each row")
    path = parser.parse_args().output

    def save(record: dict[str, Any]) -> None:
        print(record["rows"][-1], flush=True)
        if path is not None:
            files.save(record, path)

    device = choose_device("auto")
    measure(device, SIZES[device.type], save=save)


if __name__ == "__main__":
    main()
