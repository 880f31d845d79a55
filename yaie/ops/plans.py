"""Recorded launches: a repeated call on a GPU skips checks and the choice of a back end.

The first call of an operator with certain shapes, strides, dtypes, alignments and numbers is
checked, finds its back end, and is recorded: the memory that it makes, and its launches. Later
calls make the same memory and start the same launches, on the stream that is current then. A plan
holds no tensor. A call is kept only if each address that it launched with belongs to an argument or
to memory that it made: then the result depends on nothing else.

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
from torch.autograd.graph import increment_version

MOST = 4096  # plans kept; when there are more, all are dropped
TENSORS = frozenset({torch.Tensor, torch.nn.Parameter})
# They make memory of a shape, strides and a dtype on the current card in a third of the time of
# torch.empty (an H100's host: notebooks/data/22_host_h100.json).
_EMPTY = {"cuda": guards._empty_strided_cuda, "cpu": guards._empty_strided_cpu}
_plans: dict[tuple, Plan | None] = {}  # None: a call that cannot be kept
Start = Callable[[list[Any], int], None]


class _Thread(threading.local):
    recording: Plan | None = None


_thread = _Thread()


class Plan:
    """The launches of a call. Its tensors are the arguments, then those that it makes."""

    def __init__(self, arguments: Sequence[Any], written: Sequence[int]) -> None:
        self.tensors, self.written = list(arguments), written
        self.index = arguments[0].get_device()
        self.made: list[Callable[[], torch.Tensor]] = []
        self.launches: list[tuple[Start, list[Any], list[tuple[int, int]]]] = []
        self.is_whole, self.is_provisional = True, False

    def note(
        self, start: Start, values: Sequence[Any], addresses: Iterable[tuple[int, int | None]]
    ) -> None:
        """Record a launch on the current card.

        Args:
            start: takes values and the handle of a stream, and launches on that stream.
            values: those of the launch, with addresses in place of tensors.
            addresses: (index, address) of each address in `values`; with None, an address that is
                not that of one tensor, the call cannot be kept.
        """
        own = {x.data_ptr(): i for i, x in enumerate(self.tensors) if type(x) in TENSORS}
        places = [(place, own.get(address)) for place, address in addresses]
        self.is_whole &= None not in dict(places).values()
        self.launches.append((start, list(values), places))

    def finish(self, result: Any) -> Plan | None:
        """The plan, without its tensors, or None if the call cannot be kept."""
        places = {id(x): i for i, x in enumerate(self.tensors) if type(x) in TENSORS}
        results = result if isinstance(result, tuple) else (result,)
        found = [places.get(id(x)) for x in results if x is not None]
        self.result = itemgetter(*found) if found else lambda tensors: None
        del self.tensors
        return self if self.is_whole and self.launches and None not in found else None

    def run(self, arguments: Sequence[Any]) -> Any:
        """Make the memory, launch, and return what the operator returns."""
        if _C._cuda_getDevice() != self.index:
            with torch.cuda.device(self.index):
                return self.run(arguments)
        tensors = [*arguments, *[make() for make in self.made]]
        stream = _C._cuda_getCurrentRawStream(self.index)
        for start, kept, places in self.launches:
            values = kept.copy()
            for place, which in places:
                values[place] = tensors[which].data_ptr()
            start(values, stream)
        for which in self.written:
            increment_version(tensors[which])
        return self.result(tensors)


def made(tensor: torch.Tensor) -> torch.Tensor:
    """Note new memory in the plan that is being recorded, so that later calls allocate the same;
    returns the tensor."""
    if plan := _thread.recording:
        plan.is_whole &= tensor.is_contiguous() and tensor.numel() > 0
        shape, stride = tuple(tensor.shape), tensor.stride()
        plan.made.append(partial(_EMPTY[tensor.device.type], shape, stride, tensor.dtype))
        plan.tensors.append(tensor)
    return tensor


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


def launch(
    operator: Callable[..., Any], arguments: tuple, backend: str, written: Sequence[int]
) -> Any:
    """Call an operator by its plan; without one, make one if possible.

    Args:
        arguments: tensors, the first on a GPU, and numbers.
        written: which of them the operator writes into.
    """
    parts = [operator, backend]
    for x in arguments:
        if type(x) in TENSORS:
            parts += (x.shape, x.stride(), x.dtype, x.get_device(), x.data_ptr() & 15)
        else:
            parts += (type(x), x)  # 1, 1.0 and True are equal, but not all are allowed
    key = tuple(parts)
    plan = _plans.get(key)
    if plan is not None:
        return plan.run(arguments)
    # A plan tells arguments apart by their addresses: an empty tensor has none, and a tensor that
    # is given twice could be two tensors in the next call.
    addresses = [x.data_ptr() for x in arguments if type(x) in TENSORS]
    is_clear = 0 not in addresses and len(set(addresses)) == len(addresses)
    if key in _plans or recording() or not is_clear:
        return operator(*arguments, backend=backend)
    _thread.recording = plan = Plan(arguments, written)
    try:
        result = operator(*arguments, backend=backend)
    finally:
        _thread.recording = None
    if len(_plans) >= MOST:
        forget()
    if not plan.is_provisional:
        _plans[key] = plan.finish(result)
    return result
