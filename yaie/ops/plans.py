"""Recorded launches: a repeated call on a GPU skips checks and the choice of a back end.

The first call of an operator with certain shapes, strides, dtypes, alignments and numbers is
checked, finds its back end, and is recorded: the memory that it makes, and its launches. Later
calls that torch's guards recognize make the same memory and start the same launches, on the
stream that is current then. A plan holds no tensor. A call is kept only if each address that it
launched with belongs to an argument or to memory that it made: then the result depends on nothing
else.

A call from Python is planned if its arguments are positional. The model calls torch's operators
instead (`torch.ops.yaie`), whose launches CUDA graphs record.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from operator import itemgetter
from typing import Any

import torch
from torch import _C
from torch._C._dynamo import guards
from torch.autograd import _profiler_enabled
from torch.autograd.graph import increment_version
from torch.compiler import is_compiling, is_dynamo_compiling

MOST, MOST_ALIKE = 4096, 16  # kinds of calls, and plans per kind: the newest are kept
TENSORS = frozenset({torch.Tensor, torch.nn.Parameter})
STREAM = object()  # stands for the handle of a stream in a recorded launch
# They make memory of a shape, strides and a dtype on the current card in a third of the time of
# torch.empty (an H100's host: notebooks/data/22_host_h100.json).
_EMPTY = {"cuda": guards._empty_strided_cuda, "cpu": guards._empty_strided_cpu}
_PLAIN = TENSORS | {int, float, bool, type(None)}
# Per operator, back end, size of the first tensor and card, and whether gradients are recorded,
# which no guard checks: the guards, alignments and numbers of each call, and its plan, or None if
# the call cannot be kept.
_plans: dict[tuple, list[tuple[guards.TensorGuards, list[int], list[tuple], Plan | None]]] = {}
Start = Callable[[Sequence[Any]], None]


class _Thread(threading.local):
    recording: Plan | None = None


_thread = _Thread()


class Plan:
    """The launches of a call. Its tensors are those given, then those that it makes."""

    def __init__(self, arguments: Sequence[Any], written: Sequence[int]) -> None:
        self.tensors = _tensors(arguments)
        self.written = [len(_tensors(arguments[:i])) for i in written]
        self.index = arguments[0].get_device()
        self.made: list[Callable[[], torch.Tensor]] = []
        self.launches: list[tuple[Start, list[Any], itemgetter]] = []
        self.is_whole, self.is_provisional = True, False

    def note(
        self, start: Start, values: Sequence[Any], addresses: Iterable[tuple[int, int | None]]
    ) -> None:
        """Record a launch on the current card.

        Args:
            start: launches with the values it is given.
            values: those of this launch, with addresses in place of tensors, and STREAM.
            addresses: (index, address) of each address in `values`; with None, an address that is
                not that of one tensor, the call cannot be kept.
        """
        own = {x.data_ptr(): i for i, x in enumerate(self.tensors, len(values))}
        places = {values.index(STREAM): -1, **{i: own.get(address) for i, address in addresses}}
        self.is_whole &= None not in places.values()
        choose = itemgetter(*[places.get(i, i) for i in range(len(values))])
        self.launches.append((start, list(values), choose))

    def finish(self, result: Any) -> Plan | None:
        """The plan, without its tensors, or None if the call cannot be kept."""
        places = {id(x): i for i, x in enumerate(self.tensors)}
        results = result if isinstance(result, tuple) else (result,)
        found = [places.get(id(x)) for x in results if x is not None]
        self.result = itemgetter(*found) if found else lambda tensors: None
        del self.tensors
        return self if self.is_whole and self.launches and None not in found else None

    def run(self, given: Sequence[torch.Tensor], addresses: list[int]) -> Any:
        """Make the memory, launch, and return what the operator returns."""
        if _C._cuda_getDevice() != self.index:
            with torch.cuda.device(self.index):
                return self.run(given, addresses)
        new = [make() for make in self.made]
        addresses += [x.data_ptr() for x in new]
        addresses.append(_C._cuda_getCurrentRawStream(self.index))
        for start, values, choose in self.launches:
            start(choose(values + addresses))
        for which in self.written:
            increment_version(given[which])
        return self.result([*given, *new])


def made(x: torch.Tensor) -> torch.Tensor:
    """Note in the plan that is recorded, if any, to allocate memory like x's; returns x."""
    if plan := _thread.recording:
        plan.is_whole &= x.is_contiguous() and x.numel() > 0
        plan.made.append(partial(_EMPTY[x.device.type], tuple(x.shape), x.stride(), x.dtype))
        plan.tensors.append(x)
    return x


def forget() -> None:
    """Drop all plans, after a launcher's source or the choice of a configuration has changed."""
    _plans.clear()


def recording() -> Plan | None:
    """The plan that this thread records, if it records one."""
    return _thread.recording


@contextmanager
def paused() -> Iterator[None]:
    """The plan that this thread records leaves out the launches of the block."""
    plan, _thread.recording = _thread.recording, None
    try:
        yield
    finally:
        _thread.recording = plan


def must_be_seen(arguments: tuple) -> bool:
    """Whether torch has to see a call: it is compiled, traced, profiled, transformed or watched by
    a mode of torch, has arguments other than plain tensors and numbers, or a gradient is wanted."""
    return bool(
        is_compiling()
        or _profiler_enabled()
        or _C._len_torch_function_stack()
        or _C._len_torch_dispatch_stack()
        or _C._get_tracing_state()
        or _C._functorch.peek_interpreter_stack()
        or not _PLAIN.issuperset(map(type, arguments))
        or (_C.is_grad_enabled() and _C._any_requires_grad(*arguments))
        or arguments[0].is_meta
    )


def launch(
    operator: Callable[..., Any], arguments: tuple, backend: str, written: Sequence[int]
) -> Any:
    """Call an operator by its plan; without one, make one if possible.

    Args:
        arguments: the first is a tensor on a GPU.
        written: which of them the operator writes into.
    """
    # The guards do not notice these; the rest of `must_be_seen` is checked when a plan is made.
    if is_dynamo_compiling() or _profiler_enabled() or _C._len_torch_function_stack():
        return operator(*arguments, backend=backend)
    first = arguments[0]
    like = operator, backend, first.numel(), first.get_device(), _C.is_grad_enabled()
    for guard, low, numbers, plan in _plans.get(like, ()):
        tensors = _tensors(arguments) if numbers else arguments
        fits = len(tensors) == len(low) and (not numbers or numbers == _numbers(arguments))
        if fits and guard.check(*tensors):
            addresses = [x.data_ptr() for x in tensors]
            if [address & 15 for address in addresses] == low:
                if plan is None:
                    return operator(*arguments, backend=backend)
                return plan.run(tensors, addresses)
    if recording() or must_be_seen(arguments):  # a tensor that is transformed has no address
        return operator(*arguments, backend=backend)
    # A plan tells arguments apart by their addresses: an empty tensor has none, and a tensor that
    # is given twice could be two tensors in the next call.
    tensors = _tensors(arguments)
    addresses = [x.data_ptr() for x in tensors]
    if 0 in addresses or len(set(addresses)) < len(addresses):
        return operator(*arguments, backend=backend)
    _thread.recording = plan = Plan(arguments, written)
    try:
        result = operator(*arguments, backend=backend)
    finally:
        _thread.recording = None
    if len(_plans) >= MOST:
        forget()
    if not plan.is_provisional:
        # The guard accepts tensors of the same type, dtype, card, sizes and strides, under the same
        # modes of torch, and which require a gradient as now.
        guard = guards.TensorGuards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None)
        low = [address & 15 for address in addresses]
        known = _plans.setdefault(like, [])
        known.insert(0, (guard, low, _numbers(arguments), plan.finish(result)))
        del known[MOST_ALIKE:]
    return result


def _tensors(arguments: Iterable[Any]) -> list[torch.Tensor]:
    return [x for x in arguments if type(x) in TENSORS]


def _numbers(arguments: Sequence[Any]) -> list[tuple[int, type, Any]]:
    """The numbers, with place and type: 1, 1.0 and True are equal, but not all are allowed."""
    return [(i, type(x), x) for i, x in enumerate(arguments) if type(x) not in TENSORS]
