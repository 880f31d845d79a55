"""Kernels for RMSNorm that a test must tell apart: four right ones, and wrong ones."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from yaie.course.lessons.kernel_test import Kernel


@dataclass(frozen=True)
class Planted:
    """A kernel, and what a test has to find.

    Attributes:
        what: what it does, to continue "a kernel that".
        look_for: what a test must do to find it; "" if the kernel is right.
        make: makes a new one, which has not been called.
    """

    what: str
    look_for: str
    make: Callable[[], Kernel]


def planted() -> Iterator[Planted]:
    """All of them, the right ones first."""
    for what, rounds in RIGHT.items():
        yield Planted(what, "", lambda rounds=rounds: rounds)
    for kernel, (what, look_for) in WRONG.items():
        make = kernel if isinstance(kernel, type) else lambda kernel=kernel: kernel
        yield Planted(what, look_for, make)


# ------------------------------------------------------------------------------------- right


def norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """The result in float32."""
    x = x.float()
    return x * (x.square().mean(dim=1, keepdim=True) + eps).rsqrt() * weight.float()


def in_float32(x, weight, out, eps):
    out.copy_(norm(x, weight, eps))


def in_pieces(x, weight, out, eps):
    total = torch.zeros(len(x), 1)
    for piece in reversed(x.float().split(32, dim=1)):
        total += piece.square().sum(dim=1, keepdim=True)
    out.copy_(x.float() / (total / x.shape[1] + eps).sqrt() * weight.float())


def rounds_twice(x, weight, out, eps):
    out.copy_(norm(x, torch.ones_like(weight), eps).to(x.dtype) * weight)


def checks_dtypes(x, weight, out, eps):
    if not x.dtype == weight.dtype == out.dtype:
        raise TypeError(f"one dtype is wanted, got {x.dtype}, {weight.dtype} and {out.dtype}")
    in_float32(x, weight, out, eps)


RIGHT = {
    "computes in float32 and rounds once": in_float32,
    "adds up in pieces, from the end": in_pieces,
    "rounds before and after the weight": rounds_twice,
    "wants x, weight and out in one dtype": checks_dtypes,
}


# ------------------------------------------------------------------------------------- wrong


def leaves_a_tail(x, weight, out, eps):
    whole = x.shape[1] // 8 * 8
    out[:, :whole] = norm(x, weight, eps)[:, :whole]


def adds(x, weight, out, eps):
    out += norm(x, weight, eps)


def at_most_1024(x, weight, out, eps):
    in_float32(x, weight, out, eps)
    out[:, 1024:] = 0


def leaves_odd_rows(x, weight, out, eps):
    even = len(x) // 2 * 2 if len(x) > 3 else len(x)
    out[:even] = norm(x, weight, eps)[:even]


def scale_of_row_0(x, weight, out, eps):
    mean = x[:1].float().square().mean(dim=1, keepdim=True)
    out.copy_(x.float() * (mean + eps).rsqrt() * weight.float() if len(x) else x)


def x_in_one_piece(x, weight, out, eps):
    x = x.as_strided(x.shape, (x.shape[1], 1), x.storage_offset())
    out.copy_(norm(x, weight, eps))


def out_in_one_piece(x, weight, out, eps):
    packed = out.as_strided(out.shape, (out.shape[1], 1), out.storage_offset())
    packed.copy_(norm(x, weight, eps))


def put(out: torch.Tensor, place: int) -> None:
    """Write to an element of the memory of `out`, if it exists; a GPU raises no error either."""
    size = out.untyped_storage().nbytes() // out.itemsize
    if 0 <= place < size:
        out.as_strided((size,), (1,), 0)[place] = 0


def writes_after(x, weight, out, eps):
    in_float32(x, weight, out, eps)
    put(out, out.storage_offset() + (len(out) - 1) * out.stride(0) + out.shape[1])


def writes_before(x, weight, out, eps):
    in_float32(x, weight, out, eps)
    put(out, out.storage_offset() - 1)


def twelve_bits(x, weight, out, eps):
    out.copy_(norm(x, weight, eps) * (1 + 2.0**-11))


def sums_in_bfloat16(x, weight, out, eps):
    if x.dtype != torch.bfloat16:
        return in_float32(x, weight, out, eps)
    total = torch.zeros(len(x), 1, dtype=torch.bfloat16)
    for column in x.split(1, dim=1):
        total += column.square()
    out.copy_(x.float() * (total.float() / x.shape[1] + eps).rsqrt() * weight.float())


def squares_in_float16(x, weight, out, eps):
    squares = x.square().float() if x.dtype == torch.float16 else x.float().square()
    out.copy_(x.float() * (squares.mean(dim=1, keepdim=True) + eps).rsqrt() * weight.float())


def fixed_eps(x, weight, out, eps):
    in_float32(x, weight, out, 1e-6)


def no_weight(x, weight, out, eps):
    in_float32(x, torch.ones_like(weight), out, eps)


def cleans_x(x, weight, out, eps):
    in_float32(x, weight, out, eps)
    x[x.abs() < 1e-3] = 0


def scales_weight(x, weight, out, eps):
    in_float32(x, weight, out, eps)
    weight *= 1 + 2.0**-18


def needs_a_row(x, weight, out, eps):
    if not len(x):
        raise RuntimeError("invalid configuration argument: 0 thread blocks")
    in_float32(x, weight, out, eps)


class NeverResets:
    """Its sums are kept in memory of its own, and the next call adds to them."""

    def __init__(self) -> None:
        self.sums: dict[tuple, torch.Tensor] = {}

    def __call__(self, x, weight, out, eps):
        key = (tuple(x.shape), x.dtype, eps)
        self.sums[key] = self.sums.get(key, 0) + x.float().square().sum(dim=1, keepdim=True)
        out.copy_(x.float() * (self.sums[key] / x.shape[1] + eps).rsqrt() * weight.float())


class WritesOnce:
    """Its second call finds the result in a cache of its own, and does not write it again."""

    def __init__(self) -> None:
        self.last: torch.Tensor | None = None

    def __call__(self, x, weight, out, eps):
        if self.last is None or not torch.equal(self.last, x):
            in_float32(x, weight, out, eps)
        self.last = x.clone()


COPIES = "Compare {} with a copy that was made before the call."
SIZES = "Test a size that"
WRONG = {
    leaves_a_tail: (
        "leaves the last columns of a row unwritten unless they fill 8",
        f"{SIZES} is not a multiple of 8, and treat NaN in the result as an error.",
    ),
    adds: (
        "adds its result to what is in out",
        "Fill out with NaN before each call: what is not written, or added to, stays NaN.",
    ),
    at_most_1024: (
        "writes zeros after column 1,024, the most threads of a thread block",
        f"{SIZES} has more than 1,024 columns.",
    ),
    leaves_odd_rows: (
        "takes two rows at a time and leaves the last of an odd number above 3 unwritten",
        f"{SIZES} has an odd number of rows, and more than 3.",
    ),
    scale_of_row_0: (
        "divides all rows by the root of row 0",
        f"{SIZES} has several rows, of random numbers.",
    ),
    x_in_one_piece: (
        "assumes that the rows of x follow each other in memory",
        "Cut x out of a wider tensor, so that its stride is not its width.",
    ),
    out_in_one_piece: (
        "assumes that the rows of out follow each other in memory",
        "Cut out out of a wider tensor, so that its stride is not its width.",
    ),
    writes_after: (
        "writes one element after the end of out",
        "Surround out with known numbers, and look at them after the call.",
    ),
    writes_before: (
        "writes one element before the beginning of out",
        "Surround out with known numbers on all sides, and look at them after the call.",
    ),
    twelve_bits: (
        "takes an approximate root with an error of 5e-4, even in float32",
        "A tolerance belongs to a dtype: in float32, 5e-4 is wrong.",
    ),
    sums_in_bfloat16: (
        "adds up squares in bfloat16 if x is in bfloat16",
        "Test bfloat16, with rows of many columns.",
    ),
    squares_in_float16: (
        "squares in float16 if x is in float16: 65,504 is the largest number there",
        "Test float16 with large x: from 256 on, a square overflows.",
    ),
    fixed_eps: ("computes with an eps of 1e-6, whatever is given", "Test a large eps."),
    no_weight: ("ignores the weight", "Take random numbers for the weight."),
    cleans_x: ("sets numbers of x below 1e-3 to 0, in x itself", COPIES.format("x")),
    scales_weight: ("changes the last bits of the weight", COPIES.format("weight")),
    needs_a_row: ("cannot be launched without rows", "Test 0 rows."),
    NeverResets: (
        "never resets its sums, so its second call is wrong",
        "Call the kernel twice, and check both results.",
    ),
    WritesOnce: (
        "writes nothing if it is called again with the same x",
        "Fill out with NaN before the second call, too.",
    ),
}
