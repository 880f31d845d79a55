"""Triton for notebooks and checks: itself, or, where it does not exist, names that do nothing.

    from yaie.course.core.triton import launch, or_reference, tl, triton, watch

`watch` looks at the programs of a launch while the interpreter runs them, one after another: which
elements each loads and stores. What it sees beyond a tensor's end is kept away from memory.
"""

from __future__ import annotations

import importlib.util
import linecache
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from yaie.course.core.interpreter import quicken
from yaie.course.core.observe import Found, Observer, calls_of
from yaie.course.core.triton_slips import explain as explain_slip
from yaie.course.core.triton_slips import refuse_slips
from yaie.ops.interpreter import interpreted  # before Triton, which it may have to configure

MOST = 1000  # loads and stores of the programs of a large grid that run
HAS_TRITON = importlib.util.find_spec("triton") is not None


class Absent:
    """In the place of Triton, its language and its kernels: all of it is there, nothing happens."""

    def __getattr__(self, name: str) -> Absent:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __getitem__(self, grid: Any) -> Absent:
        return self

    def __call__(self, *arguments: Any, **constants: Any) -> Absent:
        return self

    def __repr__(self) -> str:
        return "<Triton is not installed>"


if HAS_TRITON:
    import triton
    import triton.language as tl
    from triton.runtime.errors import InterpreterError
    from triton.runtime.interpreter import GridExecutor, InterpreterBuilder

    _NOT_KERNELS = str(Path(__file__).parent), str(Path(triton.__file__).parent)
    if interpreted():
        quicken()
        refuse_slips()
else:
    tl = Absent()
    triton = SimpleNamespace(
        jit=Absent(),
        autotune=Absent(),
        cdiv=lambda x, y: -(-x // y),
        next_power_of_2=lambda n: 1 << (n - 1).bit_length() if n > 0 else 0,
    )
    InterpreterError = GridExecutor = InterpreterBuilder = None


def or_reference(reference: Callable) -> Callable[[Callable], Callable]:
    """Decorate a function that launches kernels: without Triton, `reference` is called instead."""
    return lambda function: function if HAS_TRITON else reference


def can_watch() -> bool:
    """Whether kernels run in the interpreter, where they can be looked at."""
    return HAS_TRITON and interpreted()


# ------------------------------------------------------------------------------------- watching


@dataclass(frozen=True)
class Access:
    """A load or store of one program.

    Attributes:
        kind: "load" or "store"; an atomic operation counts as a store.
        program: its number along each axis of the grid.
        name: the tensor.
        elements: the element of every lane, counted from the tensor's first; any shape.
        mask: the lanes that take part.
        itemsize: bytes of an element.
        num_elements: of the tensor.
        line: of the source, and its text.
    """

    kind: str
    program: tuple[int, int, int]
    name: str
    elements: np.ndarray
    mask: np.ndarray
    itemsize: int
    num_elements: int
    line: int
    text: str

    @property
    def who(self) -> str:
        """ "program 3", or "program (3, 1, 0)" of a grid with several axes."""
        return f"program {self.program if any(self.program[1:]) else self.program[0]}"

    @property
    def stray(self) -> np.ndarray:
        """The lanes that take part although their element does not exist."""
        return self.mask & ((self.elements < 0) | (self.elements >= self.num_elements))

    @property
    def num_bytes(self) -> int:
        """Bytes of the elements that exist; neighbors in the same cell of memory count once."""
        return self.itemsize * np.unique(self.elements[self.mask & ~self.stray]).size


@dataclass
class Trace:
    """What the programs of some launches loaded and stored, in the order in which it happened."""

    accesses: list[Access] = field(default_factory=list)

    def of(self, name: str, kind: str | None = None) -> list[Access]:
        """The accesses of one tensor."""
        return [a for a in self.accesses if a.name == name and kind in (None, a.kind)]

    def num_bytes(self, kind: str | None = None, name: str | None = None) -> int:
        """Bytes that programs asked for: what two programs load counts twice."""
        return sum(
            a.num_bytes for a in self.accesses if kind in (None, a.kind) and name in (None, a.name)
        )

    @property
    def strays(self) -> list[Access]:
        return [a for a in self.accesses if a.stray.any()]


@contextmanager
def watch(most: float = math.inf, /, **tensors: torch.Tensor) -> Iterator[Trace]:
    """Record what programs do with their tensors in the launches inside.

    A tensor is called as it is here, or else after the kernel's parameter, without its `_ptr`. It
    counts as all that lies between its first element and its last. What a program does outside of
    it is in `Trace.strays`: a load has no value there, a store is dropped. Floats without a value,
    and those of a masked lane for which `tl.load` was given no `other`, are NaN, although the
    interpreter by itself says 0: a GPU promises nothing. More than `most` loads and stores are an
    error. Where kernels are compiled, or Triton does not exist, nothing is recorded.
    """
    trace = Trace()
    if not can_watch():
        yield trace
        return
    names = {tensor.data_ptr(): name for name, tensor in tensors.items()}
    places: list[_Place] = []
    run = GridExecutor.__call__
    atomic, swap = InterpreterBuilder.create_atomic_rmw, InterpreterBuilder.create_atomic_cas
    load, store = InterpreterBuilder.create_masked_load, InterpreterBuilder.create_masked_store

    def watched_run(executor: Any, *arguments: Any, **keywords: Any) -> None:
        passed = [*zip(executor.arg_names, arguments, strict=False), *keywords.items()]
        places[:] = [
            _Place.of(names.get(x.data_ptr(), name.removesuffix("_ptr")), x)
            for name, x in passed
            if isinstance(x, torch.Tensor)
        ]
        run(executor, *arguments, **keywords)

    def seen(builder: Any, kind: str, pointers: Any, mask: Any) -> Any:
        if not places:
            return mask
        taken = np.broadcast_to(mask.data, pointers.data.shape)
        addresses = pointers.data[taken] if taken.any() else pointers.data.ravel()
        place = min(places, key=lambda place: place.distance(addresses))
        access = place.access(kind, builder.grid_idx, pointers.data, mask.data)
        trace.accesses.append(access)
        if len(trace.accesses) > most:
            raise RuntimeError(f"{access.who} goes on after {most:,} loads and stores")
        if isinstance(mask, np.ndarray):  # of a descriptor
            return mask & ~access.stray
        return type(mask)(mask.data & ~access.stray, mask.dtype)

    def watched_load(
        builder: Any, pointers: Any, mask: Any, other: Any, *more: Any, **options: Any
    ) -> Any:
        other = _no_value(pointers, type(pointers)) if other is None else other
        mask = seen(builder, "load", pointers, mask)
        return load(builder, pointers, mask, other, *more, **options)

    def watched_store(
        builder: Any, pointers: Any, value: Any, mask: Any, *more: Any, **options: Any
    ) -> Any:
        mask = seen(builder, "store", pointers, mask)
        return store(builder, pointers, value, mask, *more, **options)

    def watched_atomic(
        builder: Any, operation: Any, pointers: Any, value: Any, mask: Any, *more: Any
    ) -> Any:
        mask = seen(builder, "store", pointers, mask)
        return atomic(builder, operation, pointers, value, mask, *more)

    def watched_swap(builder: Any, pointers: Any, *more: Any) -> Any:
        inside = seen(builder, "store", pointers, np.ones(pointers.data.shape, bool))
        instead = np.zeros_like(pointers.data)  # no mask: lanes outside swap in here
        there = instead.ctypes.data + instead.itemsize * np.arange(instead.size, dtype=np.uint64)
        addresses = np.where(inside, pointers.data, there.reshape(inside.shape))
        return swap(builder, type(pointers)(addresses, pointers.dtype), *more)

    with (
        patch.object(GridExecutor, "__call__", watched_run),
        patch.object(InterpreterBuilder, "create_atomic_rmw", watched_atomic),
        patch.object(InterpreterBuilder, "create_atomic_cas", watched_swap),
        patch.object(InterpreterBuilder, "create_masked_load", watched_load),
        patch.object(InterpreterBuilder, "create_masked_store", watched_store),
    ):
        yield trace


def _no_value(pointers: Any, handle: type) -> Any:
    """NaN for every lane, if the elements are floats that NumPy knows."""
    element = pointers.get_element_ty()
    if not element.is_floating() or element.primitive_bitwidth < 16 or element.is_bf16():
        return None
    dtype = f"float{element.primitive_bitwidth}"
    return handle(np.full(pointers.data.shape, np.nan, dtype), element)


@dataclass(frozen=True)
class _Place:
    """Where a tensor is."""

    name: str
    address: int
    itemsize: int
    num_elements: int

    @classmethod
    def of(cls, name: str, tensor: torch.Tensor) -> _Place:
        pairs = zip(tensor.shape, tensor.stride(), strict=True)
        extent = 1 + sum((size - 1) * stride for size, stride in pairs) if tensor.numel() else 0
        return cls(name, tensor.data_ptr(), tensor.element_size(), extent)

    def distance(self, addresses: np.ndarray) -> tuple[int, float]:
        """How far from this tensor the first of the addresses is, and how far all are."""
        offsets = addresses.astype(np.int64) - self.address
        end = self.itemsize * self.num_elements
        beyond = np.maximum(np.maximum(-offsets, offsets - end + 1), 0)
        return int(beyond[0]), float(beyond.mean())

    def access(
        self, kind: str, program: Sequence[int], addresses: np.ndarray, mask: np.ndarray
    ) -> Access:
        elements = (addresses.astype(np.int64) - self.address) // self.itemsize
        line, text = _line_of_the_kernel()
        lanes = np.broadcast_to(mask, elements.shape).copy()
        return Access(kind, tuple(program), self.name, elements, lanes, self.itemsize,
                      self.num_elements, line, text)  # fmt: skip


def _line_of_the_kernel() -> tuple[int, str]:
    """The line that is being interpreted: the nearest caller outside of Triton and this package."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_NOT_KERNELS):
        frame = frame.f_back
    if frame is None:
        return 0, ""
    return frame.f_lineno, linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()


# ------------------------------------------------------------------------------------- launching


def launch(
    kernel: Any,
    grid: tuple[int, ...],
    arguments: Mapping[str, Any],
    first: int = 0,
    **constants: Any,
) -> Trace:
    """Launch a learner's kernel: watched, errors as they were raised.

    Args:
        arguments: what is passed, in order; the names are those that messages use.
        first: number of the grid's first program along axis 0: the last ones of a large grid.
    """
    tensors = {n: x for n, x in arguments.items() if isinstance(x, torch.Tensor)}
    most = MOST if first else math.inf
    with watch(most, **tensors) as trace, np.errstate(all="ignore"), plain_errors(), _from(first):
        kernel[grid](*arguments.values(), **constants)
    return trace


@contextmanager
def _from(first: int) -> Iterator[None]:
    """Count the programs of launches from `first` on, where they are interpreted."""
    if not (first and can_watch()):
        yield
        return

    def shifted(builder: Any, x: int, y: int, z: int) -> None:
        builder.grid_idx = (first + x, y, z)

    def extended(builder: Any, x: int, y: int, z: int) -> None:
        builder.grid_dim = (first + x, y, z)

    with (
        patch.object(InterpreterBuilder, "set_grid_idx", shifted),
        patch.object(InterpreterBuilder, "set_grid_dim", extended),
    ):
        yield


def run(
    see: Observer,
    kernel: Any,
    grid: tuple[int, ...],
    arguments: Mapping[str, Any],
    explain: Callable[[Access], str] | None = None,
    **constants: Any,
) -> Trace:
    """Launch a learner's kernel, and note an access beyond a tensor's end, which ends the case.

    Args:
        arguments: what is passed, in order; the names are those that messages use.
        explain: what to say of such an access, where no known mistake explains it.
    """
    trace = launch(kernel, grid, arguments, **constants)
    see_strays(see, trace, explain)
    return trace


def see_strays(see: Observer, trace: Trace, explain: Callable[[Access], str] | None = None) -> None:
    """Note which elements beyond a tensor's end were accessed; the first one ends the case."""
    beyond = {}
    for stray in trace.strays:
        elements = stray.elements[stray.stray]
        low, high = beyond.get((stray.kind, stray.name), (elements.min(), elements.max()))
        ends = min(low, elements.min()), max(high, elements.max())
        beyond[stray.kind, stray.name] = tuple(map(int, ends))
    see.note("accesses beyond the end", beyond)
    if trace.strays:
        stray = trace.strays[0]
        found = Found(f"stray {stray.kind} of {stray.name}", stray.text)
        see.found(found, told(stray), explain(stray) if explain else "")


@contextmanager
def plain_errors() -> Iterator[None]:
    """Raise what a kernel raised, where the interpreter would raise that something was raised."""
    try:
        yield
    except Exception as error:
        left_kernel = inner = error
        while isinstance(inner, InterpreterError) and inner.__cause__ is not None:
            inner = inner.__cause__
            if left_kernel is error:
                left_kernel = inner
        if inner is error:
            raise
        explain_slip(inner)
        calls = calls_of(left_kernel)
        own = [x for x in calls if not x.tb_frame.f_code.co_filename.startswith(_NOT_KERNELS)]
        if own:
            own[-1].tb_next = None  # the kernel's own line is the last; Triton's are left out
        raise inner.with_traceback(left_kernel.__traceback__) from None


def told(stray: Access) -> str:
    """Say which program accessed what does not exist."""
    beyond = np.sort(stray.elements[stray.stray])
    verb = "loads" if stray.kind == "load" else "stores to"
    first, last = f"{stray.name}[{beyond[0]:,}]", f"[{beyond[-1]:,}]"
    which = first if len(beyond) == 1 else f"{first} to {last}"
    return (
        f"{stray.who} {verb} {which}, but {stray.name} has {stray.num_elements:,} "
        f"element{'s' * (stray.num_elements != 1)}."
    )
