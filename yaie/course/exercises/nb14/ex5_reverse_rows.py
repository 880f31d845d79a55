"""14.5: a launcher whose launches are refused, and the error that it returns."""

from collections.abc import Iterator
from pathlib import Path

import torch

from yaie.course.core import cuda
from yaie.course.core.cuda import KernelCase
from yaie.course.core.observe import Observer

LONGEST = 227 * 1024 // 4  # floats that fit the shared memory of a Hopper thread block
REFUSED = "A refused launch runs no thread, and only the returned code shows it."
EXPLAIN = {
    "out_of_bounds": (
        "The kernel is right, the launch is not: it needs one thread block per row, and shared "
        "memory for `columns` floats, given in bytes."
    ),
    "cudaErrorInvalidConfiguration": (
        "The launch was refused: a thread block has 1 to 1,024 threads, and a grid at least one "
        "thread block. Which of the two is it at this size?"
    ),
    "cudaErrorInvalidValue": (
        "The launch was refused: it wants more than the 48 KiB of shared memory that come without "
        "asking, or than cudaFuncSetAttribute was asked for."
    ),
}


def cases() -> Iterator[KernelCase]:
    for rows, columns in ((3, 100), (4, 1024), (2, 1025), (2, 12_288), (2, 12_289), (1, LONGEST)):
        yield matrix(rows, columns)
    yield matrix(5, 2000, ", threads in reverse order", order="reverse")
    for rows, columns in ((0, 100), (3, 0)):
        yield matrix(rows, columns)
    yield KernelCase(f"1 row of {LONGEST + 1:,}, which no GPU has room for", shape=(1, LONGEST + 1))


def matrix(rows: int, columns: int, words: str = "", order: str = "forward") -> KernelCase:
    name = f"{rows} row{'s' * (rows != 1)} of {columns:,}{words}"
    return KernelCase(name, shape=(rows, columns), how={"order": order})


def observe(path: Path, case: KernelCase, see: Observer) -> None:
    from yaie.emulator import KernelError

    x, out = torch.randn(case.shape), cuda.poisoned(*case.shape)
    if case.shape[1] <= LONGEST:
        arguments = x, out, *case.shape
        cuda.run(see, path, "reverse_rows_f32", *arguments, explain=EXPLAIN, **case.how)
        see.equal("out", out, x.flip(-1), cuda.unwritten(out, REFUSED))
        return
    kernels = cuda.compiled(path)
    told = "no error"
    try:
        kernels.reverse_rows_f32(x, out, *case.shape)
    except KernelError as error:
        told = str(error).partition(": ")[0]  # then: which launch, and why
    wanted = "reverse_rows_f32 returned cudaErrorInvalidValue (1)"
    see.equal("what the call raises", told, wanted, REFUSED)
    y, y_out = torch.randn(2, 10), cuda.poisoned(2, 10)
    try:
        kernels.reverse_two_f32(x, out, *case.shape, y, y_out, 2, 10)
        told = "no error"
    except KernelError as error:
        told = str(error).partition(": ")[0].replace("reverse_two_f32", "it")
    late = "Nothing is wrong with this call. The error before it was returned, and must be cleared."
    see.equal("what the next call raises, with 2 rows of 10", told, "no error", late)
    see.equal("out of the next call", y_out, y.flip(-1))
