"""What `yaie bench kernels` measures: each operator at the shapes of a real model.

A case says how many bytes must move and how many operations must be done, counted by hand: each
input is read once, each output written once.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import torch
import torch.nn.functional as F

from yaie.bench.protocol import Call
from yaie.ops import registry
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
            there are many per byte: in products of matrices and in attention.
        oracle: arguments -> results in float64.
        peers: other ways to compute it, by name.
        calls_reference: the name of the reference back end, where it is one library call.
        writes: whether it writes about as much as it reads, as a copy does.
        compiled: whether torch.compile of the reference is a peer.
        judge: (outputs, arguments) -> what is compared with the oracle; by default the outputs.
        dtype: of the inputs, where it is not that of the run.
        changes: from the arguments, what the operator changed, where it returns nothing.
        spoil: fills with NaN what such an operator must write.
        kernels: a word that the names of a peer's kernels must have, where torch could take others.
        rungs: ours, by name, in place of the back ends of the registry.
        variants: changed kernels of ours, which need not run on every card.
        waits: those that wait for the GPU, which no CUDA graph can hold.
        rough: those that round intermediate results: only the whole output's error counts.
    """

    operator: str
    shape: str
    arguments: Callable[[Draw], tuple]
    num_bytes: int
    flops: int
    oracle: Callable[..., object]
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
    rough: tuple[str, ...] = ()

    def ours(self, backend: str) -> Prepare:
        """How one of the back ends computes it. The back end is imported when the call is prepared,
        where an error becomes a row."""
        return lambda *arguments: self.wrap(registry.resolve(self.operator, backend))(*arguments)

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


def own_cases(name: str) -> Callable[..., list[Case]]:
    """The function `module:function` that makes the cases of your own kernel.

    It is looked for in the current folder too, and called like `yaie.bench.kernels.all_cases`,
    with the dtype, whether there is a GPU, and whether small shapes will do.

    Raises:
        ValueError: there is no such module or function, or it returns no cases.
    """
    function = registry.find(name, "case must be")
    if not callable(function):
        raise ValueError(f"case must be module:function, got {name!r}: {function!r:.80}")

    def cases(dtype: torch.dtype, on_gpu: bool, quick: bool) -> list[Case]:
        made = function(dtype, on_gpu, quick)
        if not isinstance(made, list) or not all(isinstance(case, Case) for case in made):
            raise ValueError(f"{name} must return a list of Case, got {made!r:.80}")
        return made

    return cases


def itemsize(dtype: torch.dtype) -> int:
    """Bytes of a number."""
    return torch.finfo(dtype).bits // 8


# ------------------------------------------------------------------------------------- elementwise


def silu_and_mul(rows: int, columns: int, dtype: torch.dtype) -> Case:
    """silu(gate) × up, of `[rows, 2 × columns]`."""
    return Case(
        "silu_and_mul", f"{rows} × 2·{columns}",
        lambda draw: (draw.normal(rows, 2 * columns),),
        3 * rows * columns * itemsize(dtype), 0,
        oracle=lambda x: _silu(x.double()[:, :columns]) * x.double()[:, columns:],
        peers={
            "torch eager": lambda x: lambda: F.silu(x[:, :columns]) * x[:, columns:],
            "FlashInfer": flashinfer("activation:silu_and_mul"),
        },
    )  # fmt: skip


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
        oracle=oracle,
    )  # fmt: skip


def _silu(x: torch.Tensor) -> torch.Tensor:
    return x / (1.0 + torch.exp(-x))


def flashinfer(name: str) -> Prepare:
    """A function of FlashInfer, as module:function, imported when it is prepared."""
    return lambda *arguments: partial(pkgutil.resolve_name(f"flashinfer.{name}"), *arguments)


# ------------------------------------------------------------------------------------- rows


def row_wise(rows: int, columns: int, dtype: torch.dtype) -> list[Case]:
    """rms_norm, add_rms_norm."""
    size, count = itemsize(dtype), rows * columns
    shape = f"{rows} × {columns}"

    def matrices(draw: Draw, count: int) -> tuple:
        return *(draw.normal(rows, columns) for _ in range(count)), draw.normal(columns), EPS

    return [
        Case(
            "rms_norm", shape, partial(matrices, count=1), (2 * count + columns) * size, 0,
            oracle=_rms_norm,
            peers={
                "F.rms_norm": lambda x, w, eps: lambda: F.rms_norm(x, (columns,), w, eps),
                "FlashInfer": flashinfer("norm:rmsnorm"),
            },
        ),
        Case(
            "add_rms_norm", shape, partial(matrices, count=2), (4 * count + columns) * size, 0,
            oracle=_add_rms_norm,
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


def _flashinfer_add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
) -> Call:
    from flashinfer.norm import fused_add_rmsnorm

    x, residual = x.clone(), residual.clone()  # it works in place

    def call() -> tuple:
        fused_add_rmsnorm(x, residual, weight, eps=eps)
        return x, residual

    return call
