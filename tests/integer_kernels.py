"""What the tests of kernels on int32 share: a launch in every way that must give the same."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from yaie.build import jit, nvcc
from yaie.emulator import settings

LEAST = torch.iinfo(torch.int32).min  # what no kernel returns
NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU")
each_device = pytest.mark.parametrize(
    "device", ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, NO_GPU])]
)


def needs_gpu(test: Callable) -> Callable:
    return pytest.mark.gpu(NO_GPU(test))


Tensors = Sequence[torch.Tensor]


def ints(values: Any, device: str = "cpu") -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32, device=device)


def poisoned(*shape: int, device: str = "cpu") -> torch.Tensor:
    return torch.full(shape, LEAST, dtype=torch.int32, device=device)


def shifted(tensor: torch.Tensor) -> torch.Tensor:
    """The same, one element behind an address that is a multiple of 16."""
    memory = torch.empty(tensor.numel() + 1, dtype=tensor.dtype, device=tensor.device)
    return memory[1:].view(tensor.shape).copy_(tensor)


def check_launches(
    file: str,
    name: str,
    inputs: Tensors,
    wanted: Tensors,
    arguments: Callable[[Tensors, Tensors], Sequence[Any]],
    device: str = "cpu",
) -> None:
    """Launch plainly; on the CPU in three orders, checked, and with every tensor misaligned, too.

    Args:
        wanted: what must be in the outputs; LEAST where nothing may be written.
        arguments: (inputs, outputs) -> what the launcher is called with.
    """

    def run(inputs: Tensors, place: Callable = lambda x: x, checked: bool = False) -> None:
        module = jit.load(file, checked)
        out = [place(poisoned(*x.shape, device=device)) for x in wanted]
        getattr(module, f"{name}_i32")(*arguments(inputs, out))
        assert not checked or module.report is None or module.report.clean, module.report
        for got, want in zip(out, wanted, strict=True):
            assert torch.equal(got.cpu(), want), (got, want)

    inputs = [x.to(device) for x in inputs]
    run(inputs)
    if device == "cpu":
        for order, seed in (("reverse", 0), ("random", 1)):
            with settings(order=order, seed=seed):
                run(inputs)
        run(inputs, checked=True)
        run([shifted(x) for x in inputs], shifted, checked=True)


def check_compiles(file: str, folder: Path) -> None:
    """For sm_75, sm_80 and sm_90, without a warning, and without a register in memory."""
    if nvcc.find() is None:
        pytest.skip("no nvcc")
    flags = nvcc.architecture_flags(["7.5", "8.0", "9.0"])
    command = [
        *(nvcc.nvcc(), "-std=c++17", "-O3", f"-I{nvcc.CSRC}", *flags),
        *("-Xcompiler=-Wall", "-Xptxas=-v", "--threads=3"),
        *("-c", nvcc.CSRC / file, "-o", folder / "kernels.o"),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr, done.stderr
    assert "spill" not in done.stderr.replace("0 bytes spill", ""), done.stderr
    assert "stack frame" not in done.stderr.replace("0 bytes stack frame", ""), done.stderr
