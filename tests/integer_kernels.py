"""What the tests of kernels on int32 share: a launch in every way that must give the same."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from launches import each_way, shifted

from yaie.ops.cuda.launching import call

LEAST = torch.iinfo(torch.int32).min  # what no kernel returns
Tensors = Sequence[torch.Tensor]


def poisoned(*shape: int, device: str = "cpu") -> torch.Tensor:
    return torch.full(shape, LEAST, dtype=torch.int32, device=device)


def check_launches(
    file: str,
    name: str,
    inputs: Tensors,
    wanted: Tensors,
    arguments: Callable[[Tensors, Tensors], Sequence[Any]],
    device: str = "cpu",
) -> None:
    """Launch plainly; on the CPU in each order of the threads, checked, and at any address, too.

    Args:
        wanted: what must be in the outputs; LEAST where nothing may be written.
        arguments: (inputs, outputs) -> what the launcher is called with.
    """

    def run(place: Callable) -> None:
        given = [place(x.to(device)) for x in inputs]
        out = [place(poisoned(*x.shape, device=device)) for x in wanted]
        call(file, f"{name}_i32", *arguments(given, out))
        for got, want in zip(out, wanted, strict=True):
            assert torch.equal(got.cpu(), want), (got, want)

    run(torch.Tensor.contiguous)
    for _ in each_way(device):
        run(torch.Tensor.contiguous)
        run(shifted)
