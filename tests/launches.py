"""What the tests of kernels share: devices, orders of the threads, addresses, bits, and graphs."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from yaie.build import jit
from yaie.course.lessons.changed import changed
from yaie.emulator import Module, runtime, settings
from yaie.ops.cuda import launching

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
HALVES = FLOATS[1:]
GPU = torch.cuda.is_available()
NO_GPU = pytest.mark.skipif(not GPU, reason="no CUDA GPU")
on_gpu = pytest.param("cuda", marks=[pytest.mark.gpu, NO_GPU])
each_device = pytest.mark.parametrize("device", ["cpu", on_gpu])
gpu_only = pytest.mark.parametrize("device", [on_gpu])

TOLERANCE = {torch.float32: 2e-5 if GPU else 3e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}
ORDERS = (("forward", 0), ("reverse", 0), ("random", 1), ("random", 2))
NEEDS_TRITON = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")


def skip_unless_it_runs_on(device: str, backend: str) -> None:
    """Skip Triton's kernels on the CPU of a machine with a GPU, where they are not interpreted, and
    the C++ back end on a GPU."""
    if backend == "cpp" and device == "cuda":
        pytest.skip("the C++ back end computes on a CPU")
    if backend == "triton" and (device == "cuda") != GPU:
        pytest.skip("Triton's kernels are not interpreted where there is a GPU")


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def each_dtype(dtypes: tuple = FLOATS) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("dtype", dtypes, ids=name_of)


def ints(values: Any, device: str = "cpu", dtype: torch.dtype = torch.int32) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype, device=device)


def starts(counts: Any, device: str = "cpu") -> torch.Tensor:
    """Where each of several sequences begins that lie end to end, and where the last one ends."""
    return ints([0, *counts], device).cumsum(0, dtype=torch.int32)


def shifted(x: torch.Tensor) -> torch.Tensor:
    """The same, one element past an address that is a multiple of 16."""
    room = torch.empty(x.numel() + 1, dtype=x.dtype, device=x.device)
    return room[1:].view(x.shape).copy_(x)


def bits(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous().view(torch.uint8)


def same(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Whether dtype, shape and every bit are equal."""
    return x.dtype == y.dtype and x.shape == y.shape and torch.equal(bits(x), bits(y))


def each_way(device: str) -> Iterator[None]:
    """On the emulator in each order of the threads, in checked mode; on a GPU once."""
    for order, seed in ORDERS if device == "cpu" else ORDERS[:1]:
        with settings(order=order, seed=seed), checked(device):
            yield


def each_mode(device: str, rung: str = "mma") -> Iterator[None]:
    """On the emulator in checked mode; asynchronous rungs in plain mode, too: it delays a copy or
    product until the kernel waits for it, so a missing wait gives wrong results."""
    with checked(device):
        yield
    if device == "cpu" and (rung.endswith("mma") or "hopper" in rung):
        yield


def near(got: torch.Tensor, wanted: torch.Tensor) -> None:
    """Compare with float64, by norm and element by element: the rounding of the dtype, and of sums
    in float32, which Triton multiplies on a GPU in three parts of 11 bits."""
    tolerance = TOLERANCE[got.dtype]
    got, wanted = got.cpu().double(), wanted.cpu().double()
    torch.testing.assert_close(got, wanted, rtol=30 * tolerance, atol=10 * tolerance)
    assert (got - wanted).norm() <= tolerance * wanted.norm() + 1e-12


def as_tuple(result: Any) -> tuple:
    return result if isinstance(result, tuple) else (result,)


@contextmanager
def checked(device: str = "cpu") -> Iterator[list[jit.Module]]:
    """Run the back end's kernels in checked mode, and check that they have no faults; on a GPU
    they run as they are. Yields the modules of the `.cu` files that were launched."""
    launched = []

    def launcher(file: str, name: str) -> Callable[..., None]:
        module = jit.load(jit.CSRC / file, checked=True)

        def launch(*arguments: Any) -> None:
            getattr(module, name)(*arguments)
            assert module.report is None or module.report.clean, module.report

        launched.append(module)
        return launch

    if device == "cuda":
        launcher = launching.launcher
    with mock.patch.object(launching, "launcher", launcher):
        yield launched


def in_each_order(compute: Callable[[], Any]) -> Iterator[tuple]:
    """The results of `compute` as a tuple, with the emulated threads in each order."""
    for order, seed in ORDERS:
        with settings(order=order, seed=seed):
            yield as_tuple(compute())


def same_in_each_order(compute: Callable[[], Any]) -> tuple:
    """Check that results are equal in every bit, whatever the order of the emulated threads, and
    return them."""
    first, *others = in_each_order(compute)
    for order, other in zip(ORDERS[1:], others, strict=True):
        assert all(map(same, first, other)), order
    return first


def check_planted(
    path: Path, old: str, new: str, where: str, words: str, call: Callable[[Module], Any]
) -> None:
    """A fault planted in a kernel's file is told in each order of its threads, with its line.

    Args:
        old, new: what is in the file once, and what stands there instead.
        where, words: as in `check_told`.
        call: calls a launcher of the file.
    """
    source = changed(path.read_text(), path, {old: new})
    module = Module(source, path, checked=True, apart=True)  # compiles only what is launched
    check_told(module, where, words, lambda: call(module))


def check_told(module: Module, where: str, words: str, call: Callable[[], Any]) -> None:
    """A fault is told in each order of the threads that `call` launches, with its line.

    Args:
        where, words: patterns of the line that is told first, and of what is said of it.
    """
    for order in runtime.ORDERS:
        with settings(order=order, seed=1):
            try:
                call()
                told = str(module.report)
            except jit.KernelError as error:
                told = f"{error}\n{module.report}"
        lines = re.findall(rf"line (\d+).*?(?:{words})", told)
        assert lines and re.search(where, module.source.splitlines()[int(lines[0]) - 1]), told


class Seen(TorchDispatchMode):
    """Notes the names of the operators that are called."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(str(function))
        return function(*args, **(kwargs or {}))


def captured(compute: Callable[[], Any]) -> tuple[Any, Callable[[], None]]:
    """The results of `compute` recorded in a CUDA graph, and what replays it. A capture fails if
    anything waits for the device, or runs on another stream."""
    compute()  # compiles
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = compute()
    return result, graph.replay
