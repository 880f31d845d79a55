"""What `yaie bench kernels` measures of the lessons' operators."""

import torch

from yaie.bench.cases import Case, Draw, itemsize
from yaie.bench.cases_attention import writing
from yaie.bench.cases_sampling import all_right, draw_logits, flashinfer_logits, kept
from yaie.bench.protocol import Call
from yaie.course.lessons.ops.cases_gradient import gradients
from yaie.course.lessons.ops.cases_metadata import BATCHES, draft_extend, prefix_lookup
from yaie.course.lessons.ops.cases_prefix import shared_prefix


def bench_cases(dtype: torch.dtype, on_gpu: bool, quick: bool = False) -> list[Case]:
    """The cases, in the order of the table; for `yaie.bench.kernels.run`."""
    if not on_gpu:
        return [
            *sums(61, 130, dtype),
            *row_wise(61, 130, dtype),
            *matrices(61, 96, dtype),
            block_copies(2, 5, 2, 16, 4, dtype),
            shared_prefix(3, 12, 8, 4, 2, 16, 4, dtype),
            gradients(2, 21, 16, dtype),
            draft_extend(5),
            prefix_lookup(3, 21, 9, 4),
            gumbel(5, 130),
        ]
    many = 4096 if quick else 16384
    return [
        *sums(many, 4096, dtype),
        *row_wise(many, 4096, dtype),
        *matrices(4096 if quick else 8192, 4096, dtype),
        *(block_copies(32, pairs, 8, 128, 16, dtype) for pairs in ((64,) if quick else (64, 256))),
        *([] if quick else [shared_prefix(64, 8192, 256, 32, 8, 128, 16, dtype)]),
        *([] if quick else [gradients(16, 2048, 64, dtype)]),
        *(draft_extend(batch) for batch in (BATCHES[-1:] if quick else BATCHES)),
        prefix_lookup(64 if quick else 256, 2048, 1024, 16),
        gumbel(32 if quick else 256, 128256),
    ]


def sums(num_rows: int, columns: int, dtype: torch.dtype) -> list[Case]:
    """add, add_relu."""
    size, count = itemsize(dtype), num_rows * columns
    shape = f"{num_rows} × {columns}"

    def pair(draw: Draw) -> tuple:
        return draw.normal(num_rows, columns), draw.normal(num_rows, columns)

    return [
        Case(
            "add", shape, pair, 3 * count * size, 0,
            oracle=lambda x, y: x.double() + y.double(),
            calls_reference="torch eager",
        ),
        Case(
            "add_relu", shape, pair, 3 * count * size, 0,
            oracle=lambda x, y: (x.double() + y.double()).clamp(min=0.0),
        ),
    ]  # fmt: skip


def row_wise(num_rows: int, columns: int, dtype: torch.dtype) -> list[Case]:
    """row_sum, softmax."""
    size, count = itemsize(dtype), num_rows * columns
    shape, wide = f"{num_rows} × {columns}", max(4, itemsize(dtype))

    def one(draw: Draw) -> tuple:
        return (draw.normal(num_rows, columns),)

    return [
        Case(
            "row_sum", shape, one, count * size + num_rows * wide, 0,
            oracle=lambda x: x.double().sum(dim=1),
            writes=False,
            peers={"torch eager": lambda x: lambda: x.sum(dim=1, dtype=torch.float32)},
        ),
        Case(
            "softmax", shape, one, 2 * count * size, 0,
            oracle=lambda x: torch.softmax(x.double(), dim=1),
            peers={"torch.softmax": lambda x: lambda: torch.softmax(x, dim=1)},
        ),
    ]  # fmt: skip


def matrices(transposed: int, multiplied: int, dtype: torch.dtype) -> list[Case]:
    """transpose and matmul, of square matrices of these sizes."""
    size, n, m = itemsize(dtype), transposed, multiplied
    return [
        Case(
            "transpose", f"{n} × {n}", lambda draw: (draw.normal(n, n),), 2 * n * n * size, 0,
            oracle=lambda x: x.double().t(),
            calls_reference="torch eager",
        ),
        product(m, m, m, dtype),
    ]  # fmt: skip


def product(m: int, n: int, k: int, dtype: torch.dtype, turned: bool = False) -> Case:
    """matmul, of [m, k] and [k, n]; the latter the transpose of a matrix, if it is `turned`."""

    def factors(draw: Draw) -> tuple[torch.Tensor, torch.Tensor]:
        return draw.normal(m, k), draw.normal(n, k).t() if turned else draw.normal(k, n)

    return Case(
        "matmul", f"{m} × {n} × {k}", factors,
        (m * k + k * n + m * n) * itemsize(dtype), 2 * m * n * k,
        oracle=lambda a, b: a.double() @ b.double(),
        calls_reference="cuBLAS (torch.mm)", compiled=False,
    )  # fmt: skip


def gumbel(rows: int, size: int) -> Case:
    """gumbel_sample, of float32 logits."""

    def arguments(draw: Draw) -> tuple:
        ones = torch.ones(rows, device=draw.device)
        seeds = draw.permutation(rows)
        return draw_logits(draw, rows, size), ones, seeds, torch.zeros_like(seeds)

    def in_torch(logits: torch.Tensor, *_: torch.Tensor) -> Call:
        return lambda: (logits - torch.empty_like(logits).exponential_().log()).argmax(dim=1)

    return Case(
        "gumbel_sample", f"{rows} × {size}", arguments, rows * (4 * size + 28), 0,
        oracle=lambda logits, *_: all_right(logits), writes=False,
        compiled=False, dtype=torch.float32,
        judge=lambda tokens, logits, *_: kept(tokens, logits, 0, 1.0),
        peers={"noise by torch": in_torch, "FlashInfer": flashinfer_logits(0, 1.0)},
    )  # fmt: skip


def block_copies(
    layers: int, pairs: int, kv_heads: int, head_dim: int, block_size: int, dtype: torch.dtype
) -> Case:
    """copy_blocks of `pairs` blocks in every layer."""
    row = kv_heads * head_dim * itemsize(dtype)

    def arguments(draw: Draw) -> tuple:
        pools = [
            [draw.normal(2 * pairs, block_size, kv_heads, head_dim) for _ in range(layers)]
            for _ in ("keys", "values")
        ]
        return *pools, draw.permutation(2 * pairs).view(pairs, 2)

    def blocks(key_pools, value_pools, mapping) -> tuple:
        pools = (*key_pools, *value_pools)
        return pools, mapping[:, 1], (pool[mapping[:, 0]] for pool in pools)

    shape = f"{pairs} blocks of {block_size}, {layers} layers"
    num_bytes = 4 * layers * pairs * block_size * row + 16 * pairs
    return writing("copy_blocks", shape, arguments, num_bytes, blocks)
