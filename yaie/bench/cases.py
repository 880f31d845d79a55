"""What `yaie bench kernels` measures: each operator at the shapes of a real model.

A case says how many bytes must move and how many operations must be done, counted once by hand:
each input read once, each output written once. What a kernel moves beyond that is its own fault.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F

from yaie.bench.protocol import Call
from yaie.ops import registry
from yaie.ops.reference import elementwise as plain_elementwise
from yaie.ops.reference import matrix as plain_matrix
from yaie.ops.reference import norm as plain_norm
from yaie.ops.reference import rotary as plain_rotary

EPS = 1e-6
Prepare = Callable[..., Call]  # arguments -> a call that returns the operator's outputs


@dataclass(frozen=True)
class Case:
    """One operator at one shape.

    Attributes:
        operator: its name in the registry of back ends.
        shape: in words, for the table.
        arguments: makes random inputs with a `Draw`.
        num_bytes, flops: what must be moved and done at least. Operations are counted only where
            there are many a byte: in products of matrices and in attention.
        oracle: arguments -> results in float64.
        reference: the operator in plain PyTorch, for the time when the registry has no row of it.
        peers: other ways to compute it, by name.
        calls_reference: what the reference back end is, where it is one library call.
        writes: whether it writes about as much as it reads, as a copy does.
        compiled: whether torch.compile of the reference is a peer.
        judge: (outputs, arguments) -> what is compared with the oracle, where not the outputs are.
        dtype: of the inputs, where it is not that of the run.
        changes: makes of the arguments what the operator changed, where it returns nothing.
        spoil: fills with NaN what such an operator must write.
        kernels: a word that the names of a peer's kernels must have, where torch could take others.
        rungs: ours, by name, where not the back ends of the registry are.
        variants: changed kernels of ours, which need not run on every card.
        waits: those that wait for the GPU, which no CUDA graph can hold. A try would leave torch's
            random numbers unusable.
    """

    operator: str
    shape: str
    arguments: Callable[[Draw], tuple]
    num_bytes: int
    flops: int
    oracle: Callable[..., object]
    reference: Callable[..., object]
    peers: dict[str, Prepare] = field(default_factory=dict)
    calls_reference: str = "reference"
    writes: bool = True
    compiled: bool = True
    judge: Callable[..., object] | None = None
    dtype: torch.dtype | None = None
    changes: Callable[..., object] | None = None
    spoil: Callable[..., None] | None = None
    kernels: dict[str, str] = field(default_factory=dict)
    rungs: dict[str, Prepare] = field(default_factory=dict)
    variants: dict[str, Prepare] = field(default_factory=dict)
    waits: tuple[str, ...] = ()

    def back_ends(self) -> list[str]:
        """Those that have the operator now."""
        known = self.operator in registry.operators()
        return registry.backends(self.operator) if known else ["reference"]

    def ours(self, backend: str) -> Prepare:
        """How one of the back ends computes it."""
        known = self.operator in registry.operators()
        function = registry.resolve(self.operator, backend) if known else self.reference
        return self.wrap(function)

    def wrap(self, function: Callable[..., object]) -> Prepare:
        """A function of the operator's arguments as a `Prepare`."""
        if self.changes is None:
            return lambda *arguments: lambda: function(*arguments)

        def prepare(*arguments: object) -> Call:
            def call() -> object:
                function(*arguments)
                return self.changes(*arguments)

            return call

        return prepare


@dataclass(frozen=True)
class Draw:
    """Random inputs: of one dtype, on one device, the same in every run."""

    device: torch.device
    dtype: torch.dtype
    generator: torch.Generator

    @classmethod
    def on(cls, device: torch.device, dtype: torch.dtype, seed: int = 0) -> Draw:
        """Begin to draw."""
        return cls(device, dtype, torch.Generator(device).manual_seed(seed))

    def normal(self, *shape: int) -> torch.Tensor:
        """Standard normal numbers."""
        return torch.randn(*shape, device=self.device, dtype=self.dtype, generator=self.generator)

    def permutation(self, size: int) -> torch.Tensor:
        """The numbers 0 to size - 1 in any order, int64."""
        return torch.randperm(size, device=self.device, generator=self.generator)


def itemsize(dtype: torch.dtype) -> int:
    """Bytes of a number."""
    return torch.finfo(dtype).bits // 8


# ------------------------------------------------------------------------------------- elementwise


def elementwise(rows: int, columns: int, dtype: torch.dtype) -> list[Case]:
    """add, add_relu, silu_and_mul, rotary."""
    size, count = itemsize(dtype), rows * columns
    shape = f"{rows} × {columns}"

    def pair(draw: Draw) -> tuple:
        return draw.normal(rows, columns), draw.normal(rows, columns)

    return [
        Case(
            "add", shape, pair, 3 * count * size, 0,
            oracle=lambda x, y: x.double() + y.double(),
            reference=plain_elementwise.add, calls_reference="torch eager",
        ),
        Case(
            "add_relu", shape, pair, 3 * count * size, 0,
            oracle=lambda x, y: (x.double() + y.double()).clamp(min=0.0),
            reference=plain_elementwise.add_relu,
        ),
        Case(
            "silu_and_mul", f"{rows} × 2·{columns}",
            lambda draw: (draw.normal(rows, 2 * columns),),
            3 * count * size, 0,
            oracle=lambda x: _silu(x.double()[:, :columns]) * x.double()[:, columns:],
            reference=plain_elementwise.silu_and_mul,
            peers={
                "torch eager": lambda x: lambda: F.silu(x[:, :columns]) * x[:, columns:],
                "FlashInfer": _flashinfer_silu_and_mul,
            },
        ),
    ]  # fmt: skip


def rotary(tokens: int, heads: int, head_dim: int, positions: int, dtype: torch.dtype) -> Case:
    """Rotary embedding of `tokens` tokens at random positions below `positions`."""
    table = positions * head_dim // 2 * 4

    def arguments(draw: Draw) -> tuple:
        tables = plain_rotary.rotary_tables(head_dim, positions)
        where = draw.permutation(tokens) % positions
        x = draw.normal(tokens, heads, head_dim)
        return x, where, *(table.to(draw.device) for table in tables)

    def oracle(x: torch.Tensor, where: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor):
        first, second = x.double().chunk(2, dim=-1)
        cos, sin = cos.double()[where].unsqueeze(1), sin.double()[where].unsqueeze(1)
        return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)

    return Case(
        "rotary", f"{tokens} × {heads} × {head_dim}", arguments,
        2 * tokens * heads * head_dim * itemsize(dtype) + 8 * tokens + 2 * table, 0,
        oracle=oracle, reference=plain_rotary.apply_rotary,
    )  # fmt: skip


def _silu(x: torch.Tensor) -> torch.Tensor:
    return x / (1.0 + torch.exp(-x))


def _flashinfer_silu_and_mul(x: torch.Tensor) -> Call:
    from flashinfer.activation import silu_and_mul

    return lambda: silu_and_mul(x)


# ------------------------------------------------------------------------------------- rows


def row_wise(rows: int, columns: int, dtype: torch.dtype) -> list[Case]:
    """row_sum, softmax, rms_norm, add_rms_norm."""
    size, count = itemsize(dtype), rows * columns
    shape, wide = f"{rows} × {columns}", max(4, itemsize(dtype))

    def one(draw: Draw) -> tuple:
        return (draw.normal(rows, columns),)

    def pair(draw: Draw) -> tuple:
        return draw.normal(rows, columns), draw.normal(rows, columns)

    def weighted(draw: Draw) -> tuple:
        return draw.normal(rows, columns), draw.normal(columns), EPS

    def residual(draw: Draw) -> tuple:
        return *pair(draw), draw.normal(columns), EPS

    return [
        Case(
            "row_sum", shape, one, count * size + rows * wide, 0,
            oracle=lambda x: x.double().sum(dim=1),
            reference=plain_norm.row_sum, writes=False,
            peers={"torch eager": lambda x: lambda: x.sum(dim=1, dtype=torch.float32)},
        ),
        Case(
            "softmax", shape, one, 2 * count * size, 0,
            oracle=lambda x: torch.softmax(x.double(), dim=1),
            reference=plain_norm.softmax,
            peers={"torch.softmax": lambda x: lambda: torch.softmax(x, dim=1)},
        ),
        Case(
            "rms_norm", shape, weighted, (2 * count + columns) * size, 0,
            oracle=_rms_norm, reference=plain_norm.rms_norm,
            peers={
                "F.rms_norm": lambda x, w, eps: lambda: F.rms_norm(x, (columns,), w, eps),
                "FlashInfer": _flashinfer_rms_norm,
            },
        ),
        Case(
            "add_rms_norm", shape, residual, (4 * count + columns) * size, 0,
            oracle=_add_rms_norm, reference=plain_norm.add_rms_norm,
            peers={"FlashInfer": _flashinfer_add_rms_norm},
        ),
    ]  # fmt: skip


def _rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    x = x.double()
    return x / (x.square().mean(dim=1, keepdim=True) + eps).sqrt() * weight.double()


def _add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple:
    total = x.double() + residual.double()
    return _rms_norm(total.to(x.dtype), weight, eps), total


def _flashinfer_rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> Call:
    from flashinfer.norm import rmsnorm

    return lambda: rmsnorm(x, weight, eps=eps)


def _flashinfer_add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
) -> Call:
    from flashinfer.norm import fused_add_rmsnorm

    x, residual = x.clone(), residual.clone()  # it works in place

    def call() -> tuple:
        fused_add_rmsnorm(x, residual, weight, eps=eps)
        return x, residual

    return call


# ------------------------------------------------------------------------------------- matrices


def matrices(transposed: int, multiplied: int, dtype: torch.dtype) -> list[Case]:
    """transpose and matmul, of square matrices of these sizes."""
    size, n, m = itemsize(dtype), transposed, multiplied
    return [
        Case(
            "transpose", f"{n} × {n}", lambda draw: (draw.normal(n, n),), 2 * n * n * size, 0,
            oracle=lambda x: x.double().t(),
            reference=plain_matrix.transpose, calls_reference="torch eager",
        ),
        Case(
            "matmul", f"{m} × {m} × {m}", lambda draw: (draw.normal(m, m), draw.normal(m, m)),
            3 * m * m * size, 2 * m**3,
            oracle=lambda a, b: a.double() @ b.double(),
            reference=plain_matrix.matmul, calls_reference="cuBLAS (torch.mm)", compiled=False,
        ),
    ]  # fmt: skip
