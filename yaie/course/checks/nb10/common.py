"""What the checks of the Triton kernels share: where tensors lie, and who wrote what."""

from __future__ import annotations

from typing import Any

from yaie.course.core.expect import fail

MARGIN = 4096  # elements of nothing around each tensor

NO_VALUE = (
    "A lane that is masked out has whatever value `other=` names; without it, on a GPU, any value "
    "at all. It must not change the result."
)


def spaced(tensor: Any) -> Any:
    """The same numbers in memory of their own, far from everybody else's, with NaN around."""
    import torch

    room = torch.full((tensor.numel() + 2 * MARGIN,), torch.nan).to(tensor.dtype)
    middle = room[MARGIN : MARGIN + tensor.numel()].view(tensor.shape)
    return middle.copy_(tensor)


def poisoned(*shape: int, dtype: Any = None) -> Any:
    """An output in which every element that is not written shows."""
    import torch

    return spaced(torch.full(shape, torch.nan, dtype=dtype or torch.float32))


def randn(*shape: int, seed: int = 0, dtype: Any = None) -> Any:
    import torch

    generator = torch.Generator().manual_seed(seed + sum(shape))
    return spaced(torch.randn(*shape, generator=generator).to(dtype or torch.float32))


def written_once(trace: Any, name: str) -> None:
    """No element is stored twice: which value stays would be chance."""
    import numpy as np

    owner: dict[int, Any] = {}
    for access in trace.of(name, "store"):
        for element in np.unique(access.elements[access.mask]).tolist():
            if element in owner:
                fail(
                    f"{name}[{element:,}] is stored twice, by {who(owner[element])} and by "
                    f"{who(access.program)}.\n    {access.text}\nHere the last one wins, since "
                    "the interpreter runs one program after another. On a GPU nobody knows who "
                    "does."
                )
            owner[element] = access.program


def rows_begin(trace: Any, name: str, columns: int) -> None:
    """Every load of a row begins where a row begins."""
    for access in trace.of(name, "load"):
        first = int(access.elements.ravel()[0])
        if first % columns:
            fail(
                f"{who(access.program)} loads from {name}[{first:,}] on.\n    {access.text}\n"
                f"Rows have {columns:,} elements, so row r begins at element {columns:,} × r."
            )


def row_past_the_end(access: Any) -> str:
    """What to say if a whole row is not there."""
    if access.elements.ravel()[0] < access.num_elements:
        return ""
    return (
        "That is behind the last row. The loop ends at `rows`, and row r begins at element "
        "r × row length, whatever BLOCK is."
    )


def read_once(trace: Any, name: str, num_bytes: int, why: str) -> None:
    """A tensor is loaded no more often than it has to be."""
    loaded = trace.num_bytes("load", name)
    if loaded > num_bytes:
        fail(
            f"the result is right, but {loaded:,} bytes of {name} are loaded where {num_bytes:,} "
            f"would do. {why}"
        )


def who(program: tuple[int, int, int]) -> str:
    return f"program {program[0] if not any(program[1:]) else program}"
