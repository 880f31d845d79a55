"""The kernels of `csrc/` as a table: what goes in, how each is launched, what has to come out.

To add a kernel, add a `Case` to `CASES`: tests/test_kernels.py does the rest, for every dtype, on
the emulator and, where there is one, on the GPU.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from launches import FLOATS, HALVES, near

from yaie.course.lessons.ops import elementwise as sums
from yaie.course.lessons.ops import matrix, rows
from yaie.course.lessons.ops.cuda.matrix import HOPPER
from yaie.ops import elementwise, norm, rotary
from yaie.ops.reference.rotary import rotary_tables

EPS = 1e-2  # large enough to be missed
# A result is rounded once: half a unit in the last place, and a little for float32 arithmetic.
RTOL = {torch.float32: 3e-6, torch.float16: 2**-11 + 3e-6, torch.bfloat16: 2**-8 + 3e-6}
ATOL = 1e-6
LENGTHS = tuple((n,) for n in (0, 1, 31, 32, 33, 1023, 1025, 2049, 1823 * 781))
MATRICES = ((0, 5), (3, 0), (1, 1), (4, 31), (5, 32), (3, 33), (2, 1023), (2, 1025), (1823, 781))
SMALL = 5000  # elements of the largest shape that is run with every access checked

Shape = tuple[int, ...]
Draw = Callable[..., torch.Tensor]  # sizes -> random numbers of the dtype that is tested
Tensors = tuple[torch.Tensor, ...]

# On a GPU only: of many elements, of the longest rows, and of many rows.
LARGE_ROWS = ((1024, 4096), (3, 32768), (70000, 3))


@dataclass(frozen=True)
class Case:
    """One launcher.

    Attributes:
        name: of the launcher, without the dtype's suffix.
        file: below `csrc/`.
        shapes: what is tried; what they mean is up to `inputs`. The last two that are small are
            also run misaligned, so their kernels should be those that need alignment.
        inputs: (shape, draw) -> tensors.
        outputs: inputs -> the shape of each tensor that the launcher writes, all of them.
        arguments: (inputs, outputs) -> what the launcher is called with.
        oracle: inputs -> what must come out, computed in float64.
        operator: the public operator that the back end computes by this launcher; it takes the
            inputs. None if there is none.
        exact: the numbers of the outputs that equal the oracle's, rounded, in every bit.
        atol: absolute tolerance, for results that are differences of larger numbers.
        output_dtype: if it is not that of the inputs.
        dtypes: those that there are launchers for.
        any_alignment: False if the launcher refuses addresses that its accesses do not allow.
    """

    name: str
    file: str
    shapes: Sequence[Shape]
    inputs: Callable[[Shape, Draw], Tensors]
    outputs: Callable[..., Sequence[Shape]]
    arguments: Callable[[Tensors, Tensors], Sequence[Any]]
    oracle: Callable[..., Tensors]
    operator: Callable[..., Any] | None = None
    exact: Sequence[int] = ()
    atol: float = ATOL
    output_dtype: torch.dtype | None = None
    dtypes: Sequence[torch.dtype] = FLOATS
    any_alignment: bool = True

    def __str__(self) -> str:
        return self.name

    @property
    def small_shapes(self) -> list[Shape]:
        """Those that can be run many times, or checked."""
        return [shape for shape in self.shapes if torch.Size(shape).numel() <= SMALL]

    def check(self, got: Sequence[torch.Tensor], inputs: Tensors, backend: str = "cuda") -> None:
        """Compare outputs with the oracle; raises AssertionError."""
        wanted = self.oracle(*(tensor.cpu() for tensor in inputs))
        for number, (one, other) in enumerate(zip(got, wanted, strict=True)):
            one = one.cpu()
            if number in self.exact:
                torch.testing.assert_close(one, other.to(one.dtype), rtol=0.0, atol=0.0)
            elif backend == "triton":
                near(one, other)
            else:
                torch.testing.assert_close(
                    one.double(), other, rtol=RTOL[one.dtype], atol=self.atol
                )


# ------------------------------------------------------------------------------- elementwise


def pair(shape: Shape, draw: Draw) -> Tensors:
    """Two tensors of the shape."""
    return draw(*shape), draw(*shape)


def like_first(x: torch.Tensor, *_: torch.Tensor) -> list[Shape]:
    """One output, of the first input's shape."""
    return [tuple(x.shape)]


def counted(inputs: Tensors, outputs: Tensors) -> Sequence[Any]:
    """Inputs, outputs, and how many elements."""
    return *inputs, *outputs, inputs[0].numel()


def summed(x: torch.Tensor, y: torch.Tensor) -> Tensors:
    """x + y."""
    return (x.double() + y.double(),)


def summed_relu(x: torch.Tensor, y: torch.Tensor) -> Tensors:
    """max(x + y, 0)."""
    return ((x.double() + y.double()).clamp(min=0.0),)


def moving_sums(x: torch.Tensor) -> Tensors:
    """x[i - 1] + x[i] + x[i + 1], with zeros past both ends."""
    padded = torch.nn.functional.pad(x.double(), (1, 1))
    return (padded[:-2] + padded[1:-1] + padded[2:],)


def silu_and_mul(x: torch.Tensor) -> Tensors:
    """silu of the first half of each row, times the second."""
    gate, up = x.double().chunk(2, dim=1)
    return (gate / (1.0 + torch.exp(-gate)) * up,)


# ---------------------------------------------------------------------------------- row-wise


def rms_normed(x: torch.Tensor, weight: torch.Tensor) -> Tensors:
    """x / sqrt(mean(x²) + eps) × weight of each row."""
    x = x.double()
    mean = x.square().sum(dim=1, keepdim=True) / max(x.shape[1], 1)
    return (x / torch.sqrt(mean + EPS) * weight.double(),)


def add_rms_normed(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor) -> Tensors:
    """The same of x + residual, rounded; and the sum."""
    total = x.double() + residual.double()
    return *rms_normed(total.to(x.dtype), weight), total


def rms_norm_arguments(inputs: Tensors, outputs: Tensors) -> Sequence[Any]:
    return *inputs, *outputs, *inputs[0].shape, EPS


def of_matrix(inputs: Tensors, outputs: Tensors) -> Sequence[Any]:
    """Inputs, outputs, rows and columns."""
    return *inputs, *outputs, *inputs[0].shape


def by_3_blocks(inputs: Tensors, outputs: Tensors) -> Sequence[Any]:
    """The same, by 3 thread blocks of 96 threads."""
    return *of_matrix(inputs, outputs), 3, 96


def parted(inputs: Tensors, outputs: Tensors, blocks: int) -> Sequence[Any]:
    """Room for a part of each thread block, a ticket, and how many elements and thread blocks."""
    x = inputs[0]
    parts = torch.empty(blocks, device=x.device)
    ticket = torch.zeros(1, dtype=torch.int32, device=x.device)
    return x, *outputs, parts, ticket, x.numel(), blocks


def transposed(x: torch.Tensor) -> Tensors:
    """Columns as rows."""
    return (x.double().t(),)


def one_per_row(x: torch.Tensor) -> list[Shape]:
    """One number per row."""
    return [(x.shape[0],)]


def row_sums(x: torch.Tensor) -> Tensors:
    """The sum of each row."""
    return (x.double().sum(dim=1),)


def shares(x: torch.Tensor) -> Tensors:
    """Each element's share of its row's sum."""
    return (x.double() / x.double().sum(dim=1, keepdim=True),)


# ------------------------------------------------------------------------------ matrix product

# (m, n, k): tiles that are cut off on every side, a k of no whole number of tiles, none at all.
PRODUCTS = (
    *((0, 5, 3), (3, 0, 4), (5, 7, 0), (1, 1, 1), (1, 31, 33), (33, 31, 1), (2, 33, 66)),
    *((3, 5, 70), (33, 2, 40), (31, 129, 9), (129, 33, 20), (16, 127, 64), (130, 260, 16)),
    *((2, 3, 1823), (1823, 781, 33), (9, 16, 24), (8, 8, 72)),
)
# For tensor cores: n and k are multiples of 8.
WIDE_PRODUCTS = (
    *((0, 8, 8), (3, 0, 8), (5, 8, 0), (1, 8, 8), (33, 40, 24), (17, 264, 32), (129, 16, 40)),
    *((2, 8, 1824), (1823, 776, 32), (9, 16, 24), (5, 8, 104)),
)
# More tiles of k than there are stages, and an odd number of tiles of c.
HOPPER_PRODUCTS = (*WIDE_PRODUCTS[:7], (9, 16, 24), (130, 72, 520), (260, 264, 72), (390, 520, 40))


def factors(shape: Shape, draw: Draw) -> Tensors:
    """`[m, k]` and `[k, n]`."""
    m, n, k = shape
    return draw(m, k), draw(k, n)


def product_arguments(inputs: Tensors, outputs: Tensors) -> Sequence[Any]:
    (m, k), n = inputs[0].shape, inputs[1].shape[1]
    return *inputs, *outputs, m, n, k


def shared_product_arguments(inputs: Tensors, outputs: Tensors) -> Sequence[Any]:
    """The same by 3 thread blocks, in the way that costs least."""
    workers, device = 3, inputs[0].device
    workspace = torch.full((workers * 128 * 256,), torch.nan, device=device)
    tickets = torch.zeros(workers, dtype=torch.int32, device=device)
    a, b, c, m, n, k = product_arguments(inputs, outputs)
    return a, b, c, workspace, tickets, m, n, k, 0, workers, -1


def multiplied(a: torch.Tensor, b: torch.Tensor) -> Tensors:
    """a b."""
    return (a.double() @ b.double(),)


def gemv_inputs(shape: Shape, draw: Draw) -> Tensors:
    """A vector, a matrix, and a bias for each of its rows."""
    return draw(shape[1]), draw(*shape), draw(shape[0])


def norm_gemv(gated: bool, has_residual: bool) -> Case:
    """A product of the norm of a vector, or of the sum of two; the activation of it if gated."""

    def inputs(shape: Shape, draw: Draw) -> Tensors:
        rows, size = shape
        summands = [draw(size) for _ in range(1 + has_residual)]
        rows *= 1 + gated
        return *summands, draw(size), draw(rows, size), draw(rows)

    def arguments(inputs: Tensors, outputs: Tensors) -> Sequence[Any]:
        x, *residual, norm, weight, bias = inputs
        out, *total = outputs
        return (
            *(x, *(residual or [None]), norm, weight, bias, out, *(total or [None])),
            *(len(out), len(x), int(gated), EPS),
        )

    def oracle(x: torch.Tensor, *others: torch.Tensor) -> Tensors:
        *residual, norm, weight, bias = others
        total = x.double() + sum(other.double() for other in residual)
        [normed] = rms_normed(total.to(x.dtype).unsqueeze(0), norm)
        product = weight.double() @ normed[0].to(x.dtype).double() + bias.double()
        found = silu_and_mul(product.unsqueeze(0))[0][0] if gated else product
        return (found, total) if has_residual else (found,)

    def outputs(x: torch.Tensor, *others: torch.Tensor) -> list[Shape]:
        rows = len(others[-1]) // (1 + gated)
        return [(rows,), tuple(x.shape)] if has_residual else [(rows,)]

    return Case(
        "norm_gemv", "matmul/gemv.cu",
        ((1, 8), (5, 248), (70, 1088), (1823, 784), (17, 13000), (2, 12288), (40, 264), (2, 5128)),
        inputs, outputs, arguments, oracle, exact=(1,) if has_residual else (), atol=1e-4,
        dtypes=HALVES, any_alignment=False,
    )  # fmt: skip


TRANSPOSE_SHAPES = (*MATRICES, (31, 4), (33, 3), (64, 64), (70, 40))


# Besides the awkward ones: a warp per row; one, two and four 16-byte chunks per thread; long rows.
NORM_SHAPES = (*MATRICES, (9, 8), (7, 64), (3, 512), (2, 4096), (1, 16384), (1, 33000), (1, 32776))
NORM_SHAPES += (2052, 8), (520, 64)  # more thread blocks than load all their chunks early


# ------------------------------------------------------------------------------------ rotary


def rotary_inputs(shape: Shape, draw: Draw) -> Tensors:
    """`[tokens, heads, head_dim]`, positions and tables; as in a model, of 40 positions."""
    x = draw(*shape)
    cos, sin = (table.to(x.device) for table in rotary_tables(max(shape[2], 2), 40))
    positions = torch.arange(shape[0], device=x.device) * 7 % 40
    return x, positions, cos[:, : shape[2] // 2], sin[:, : shape[2] // 2]


def rotated(
    x: torch.Tensor, positions: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> Tensors:
    """Each pair (x[i], x[half + i]) turned by its angle."""
    first, second = x.double().chunk(2, dim=2)
    c, s = (table.double()[positions].unsqueeze(1) for table in (cos, sin))
    return (torch.cat((first * c - second * s, second * c + first * s), dim=2),)


def rotary_arguments(inputs: Tensors, outputs: Tensors) -> Sequence[Any]:
    tokens, heads, head_dim = inputs[0].shape
    return *inputs, *outputs, tokens, heads, head_dim // 2, heads * head_dim, head_dim


CASES = [
    Case(
        "vector_add", "elementwise/vector_add.cu", LENGTHS, pair, like_first, counted, summed,
        exact=(0,),
    ),
    Case(
        "vector_add_wide", "elementwise/vector_add.cu", LENGTHS, pair, like_first, counted, summed,
        operator=sums.add, exact=(0,),
    ),
    Case(
        "add_relu", "elementwise/add_relu.cu", LENGTHS, pair, like_first, counted, summed_relu,
        operator=sums.add_relu, exact=(0,),
    ),
    Case(
        "vector_add_scalar", "elementwise/vector_add_scalar.cu", LENGTHS, pair, like_first, counted,
        summed, exact=(0,), dtypes=(torch.float32,),
    ),
    Case(
        "vector_add_stride", "elementwise/vector_add_stride.cu", LENGTHS, pair, like_first,
        lambda inputs, outputs: (*counted(inputs, outputs), 3), summed, exact=(0,),
        dtypes=(torch.float32,),
    ),
    Case(
        "vector_add_float4", "elementwise/vector_add_float4.cu", LENGTHS, pair, like_first, counted,
        summed, exact=(0,), dtypes=(torch.float32,),
    ),
    Case(
        "moving_sum", "elementwise/moving_sum.cu", LENGTHS, lambda shape, draw: (draw(*shape),),
        like_first, counted, moving_sums, atol=2e-6, dtypes=(torch.float32,),
    ),
    Case(
        "reverse_rows", "elementwise/reverse_rows.cu", (*MATRICES, (2, 12289)),
        inputs=lambda shape, draw: (draw(*shape),), outputs=like_first, arguments=of_matrix,
        oracle=lambda x: (x.flip(-1),), exact=(0,), dtypes=(torch.float32,),
    ),
    Case(
        "add_relu_half2", "elementwise/add_relu_half2.cu", LENGTHS, pair, like_first, counted,
        summed_relu, exact=(0,), dtypes=(torch.float16,), any_alignment=False,
    ),
    Case(
        "silu_and_mul", "activation/silu_and_mul.cu", (*MATRICES, (7, 64)),
        inputs=lambda shape, draw: (draw(shape[0], 2 * shape[1]),),
        outputs=lambda x: [(x.shape[0], x.shape[1] // 2)],
        arguments=lambda inputs, outputs: (*inputs, *outputs, *outputs[0].shape),
        oracle=silu_and_mul, operator=elementwise.silu_and_mul,
    ),
    Case(
        "silu_and_mul_simple", "activation/silu_and_mul_simple.cu", (*MATRICES, (7, 64)),
        inputs=lambda shape, draw: (draw(shape[0], 2 * shape[1]),),
        outputs=lambda x: [(x.shape[0], x.shape[1] // 2)],
        arguments=lambda inputs, outputs: (*inputs, *outputs, *outputs[0].shape),
        oracle=silu_and_mul,
    ),
    Case(
        "rms_norm", "norm/rms_norm.cu", NORM_SHAPES,
        inputs=lambda shape, draw: (draw(*shape), draw(shape[1])),
        outputs=like_first, arguments=rms_norm_arguments, oracle=rms_normed,
        operator=lambda x, weight, **options: norm.rms_norm(x, weight, EPS, **options),
    ),
    Case(
        "add_rms_norm", "norm/rms_norm.cu", NORM_SHAPES,
        inputs=lambda shape, draw: (draw(*shape), draw(*shape), draw(shape[1])),
        outputs=lambda x, *_: [tuple(x.shape)] * 2,
        arguments=rms_norm_arguments, oracle=add_rms_normed, exact=(1,),
        operator=lambda x, y, weight, **options: norm.add_rms_norm(x, y, weight, EPS, **options),
    ),
    *(
        Case(
            name, f"transpose/{file}.cu", TRANSPOSE_SHAPES,
            inputs=lambda shape, draw: (draw(*shape),),
            outputs=lambda x: [(x.shape[1], x.shape[0])], arguments=of_matrix, oracle=transposed,
            operator=operator, exact=(0,),
        )
        for name, file, operator in (
            ("transpose_naive", "naive", None),
            ("transpose_tile", "tile", None),
            ("transpose", "transpose", matrix.transpose),
        )
    ),
    *(
        Case(
            f"matmul_{rung.split('/')[-1]}", f"matmul/{rung}.cu", shapes, factors,
            outputs=lambda a, b: [(a.shape[0], b.shape[1])],
            arguments=shared_product_arguments if "shares" in rung else product_arguments,
            oracle=multiplied, operator=operator, atol=1e-4, dtypes=dtypes,
            any_alignment=shapes is PRODUCTS,
        )
        for rung, shapes, dtypes, operator in (
            ("naive", PRODUCTS, FLOATS, None),
            ("shared_tile", PRODUCTS, FLOATS, None),
            ("register_tile", PRODUCTS, FLOATS, matrix.matmul),
            ("wmma", WIDE_PRODUCTS, HALVES, None),
            ("mma", WIDE_PRODUCTS, HALVES, None),
            *((f"hopper/{rung}", HOPPER_PRODUCTS, HALVES, None) for rung in HOPPER),
        )
    ),
    Case(
        "gemv", "matmul/gemv.cu",
        (*((0, 8), (3, 0), (1, 8), (5, 248), (70, 1088)),
         *((1823, 784), (1823, 512), (17, 264), (2, 2056))),
        gemv_inputs, outputs=lambda x, weight, bias: [bias.shape],
        arguments=lambda inputs, outputs: (*inputs, *outputs, *inputs[1].shape),
        oracle=lambda x, weight, bias: (weight.double() @ x.double() + bias.double(),), atol=1e-4,
        dtypes=HALVES, any_alignment=False,
    ),
    Case(
        "gated_product", "matmul/gated.cu",
        # Steps: fewer than stages, more, a last one cut off. Tiles: cut off on both sides, pairs
        # with one tile, several for a cluster.
        ((0, 8, 16), (3, 8, 8), (5, 24, 40), (1, 8, 600), (1, 120, 40), (2, 232, 8),
         (70, 120, 136), (129, 328, 392), (300, 240, 64), (1, 1016, 328)),
        inputs=lambda shape, draw: (draw(shape[0], shape[2]), draw(2 * shape[1], shape[2])),
        outputs=lambda x, weight: [(len(x), len(weight) // 2)],
        arguments=lambda i, outputs: (*i, *outputs, *outputs[0].shape, i[0].shape[1]),
        oracle=lambda x, weight: silu_and_mul(x.double() @ weight.double().t()), atol=2e-3,
        dtypes=HALVES, any_alignment=False,
    ),
    *(norm_gemv(gated, has_residual) for gated in (False, True) for has_residual in (False, True)),
    Case(
        "row_sum_shared", "reduce/row_sum_shared.cu", (*MATRICES, (7, 64)),
        inputs=lambda shape, draw: (draw(*shape),), outputs=one_per_row, arguments=by_3_blocks,
        oracle=row_sums, atol=1e-4, output_dtype=torch.float32,
    ),
    Case(
        "block_sums", "reduce/block_sums.cu",
        ((0, 8), (1, 1), (3, 2), (2, 31), (5, 96), (1, 1023), (3, 256), (2, 1024)),
        inputs=lambda shape, draw: (draw(*shape),), outputs=one_per_row, arguments=of_matrix,
        oracle=row_sums, atol=1e-4, output_dtype=torch.float32,
    ),
    *(
        Case(
            "total_sum", "reduce/total_sum.cu", LENGTHS,
            inputs=lambda shape, draw: (draw(*shape),), outputs=lambda x: [(1,)],
            arguments=partial(parted, blocks=blocks), oracle=lambda x: (x.double().sum().view(1),),
            atol=2e-3, output_dtype=torch.float32,
        )
        for blocks in (3, 300)  # the second: more parts than a thread block has threads
    ),
    Case(
        "row_sum", "reduce/row_sum.cu", (*MATRICES, (9, 8), (7, 64), (2, 4096), (1, 33000)),
        inputs=lambda shape, draw: (draw(*shape),), outputs=one_per_row, arguments=of_matrix,
        oracle=row_sums, operator=rows.row_sum, atol=1e-4, output_dtype=torch.float32,
    ),
    Case(
        "row_product", "reduce/row_product.cu",
        ((0, 8), (3, 0), (65, 72), (1, 1032), (130, 520), (1823, 784), (1, 8), (3, 1000)),
        inputs=lambda shape, draw: (draw(*shape), draw(shape[1])),
        outputs=lambda x, _: [(x.shape[0],)],
        arguments=lambda inputs, outputs: (*inputs, *outputs, *inputs[0].shape),
        oracle=lambda x, w: (x.double() @ w.double(),), atol=1e-4, output_dtype=torch.float32,
        dtypes=HALVES, any_alignment=False,
    ),
    Case(
        "normalize_rows", "reduce/normalize_rows.cu", (*MATRICES, (7, 64)),
        inputs=lambda shape, draw: (draw(*shape).abs() + 0.5,), outputs=like_first,
        arguments=by_3_blocks, oracle=shares,
    ),
    Case(
        "softmax", "sampling/softmax.cu", (*MATRICES, (7, 64), (2, 4096), (1, 33000)),
        inputs=lambda shape, draw: (draw(*shape) * 5 - 100,), outputs=like_first,
        arguments=of_matrix, oracle=lambda x: (torch.softmax(x.double(), dim=1),),
        operator=rows.softmax,
    ),
    Case(
        "rms_norm_simple", "norm/rms_norm_simple.cu", MATRICES,
        inputs=lambda shape, draw: (draw(*shape), draw(shape[1])),
        outputs=like_first, arguments=rms_norm_arguments, oracle=rms_normed,
    ),
    Case(
        "rotary", "rotary/rotary.cu",
        ((0, 3, 8), (3, 0, 8), (1, 1, 2), (3, 2, 4), (3, 2, 8), (5, 3, 6), (4, 2, 24), (7, 1, 62),
         (33, 3, 16), (9, 2, 64), (1823, 11, 70)),
        rotary_inputs, like_first, rotary_arguments, rotated, operator=rotary.rotary,
    ),
]  # fmt: skip
