"""Recorded launches: a repeated call on a GPU skips checks and the choice of a back end.

The first call of an operator with certain shapes, strides, dtypes, alignments and numbers is
checked, finds its back end, and is recorded: the memory that it makes, and its launches. Later
calls that torch's guards recognize make the same memory and start the same launches, on the
stream that is current then. A plan holds no tensor. A call is kept only if each address that it
launched with belongs to an argument or to memory that it made: then the result depends on nothing
else.

A plan is a Python function whose text is written for its call, as torch.compile writes one around
its kernels: code for any number of tensors takes half as long again. Its __doc__ is the text, and
notebook 22 shows one.

A call from Python is planned if its arguments are positional. The model calls torch's operators
instead (`torch.ops.yaie`), whose launches CUDA graphs record.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import _C, Tensor
from torch._C._dynamo import guards
from torch.autograd import _profiler_enabled, profiler
from torch.autograd.graph import increment_version
from torch.compiler import is_compiling, is_dynamo_compiling

MOST, MOST_ALIKE = 4096, 16  # kinds of calls, and plans per kind: the newest are kept
TENSORS = frozenset({Tensor, torch.nn.Parameter})
MISSED = object()  # what a plan returns for the arguments of another call
# They make memory of a shape, strides and a dtype on the current card in a third of the time of
# torch.empty (an H100's host: notebooks/data/22_host_h100.json).
_EMPTY = {"cuda": guards._empty_strided_cuda, "cpu": guards._empty_strided_cpu}
_PLAIN = TENSORS | {int, float, bool, type(None)}
# Per operator, back end, number of arguments and size of the first tensor: functions of the
# arguments.
_plans: dict[tuple, list[Callable[[tuple], Any]]] = {}
_compile = lru_cache(MOST)(compile)  # other shapes and numbers have the same text


class _Thread(threading.local):
    recording: Plan | None = None


_thread = _Thread()


class Plan:
    """A call that is recorded, as lines of the function that repeats it. There x0 is argument 0,
    y3 memory that the call makes, and at_x0 an address; `names` has what else the lines name."""

    def __init__(self, arguments: tuple) -> None:
        self.index = arguments[0].get_device()
        self.tensors = {f"x{i}": x for i, x in enumerate(arguments) if type(x) in TENSORS}
        # The guard accepts tensors of the same type, dtype, card, sizes and strides, under the same
        # modes of torch, and which require a gradient as now.
        given, dynamic = self.tensors.values(), ("dynamic_dims_sizes", "dynamic_dims_strides")
        check = guards.TensorGuards(*given, **dict.fromkeys(dynamic)).check
        self.names = {"check": check, "torch": torch, "_C": _C, "MISSED": MISSED}
        differ = [f"not check({', '.join(self.tensors)})"]
        if any(x.requires_grad for x in given):  # no gradient is recorded: see must_be_seen
            differ.append("_C.is_grad_enabled()")
        for i, x in enumerate(arguments):
            if type(x) in TENSORS:
                past = x.data_ptr() & 15
                differ.append(f"(at_x{i} := x{i}.data_ptr()) & 15{f' != {past}' if past else ''}")
            else:  # 1, 1.0 and True are equal, but not all are allowed
                differ.append(f"type(x{i}) is not {self.name(type(x))} or x{i} != {self.name(x)}")
        self.conditions = [
            f"{''.join(f'x{i}, ' for i in range(len(arguments)))}= arguments",
            f"if {' or '.join(differ)}: return MISSED",
        ]
        self.lines = [
            f"if _C._cuda_getDevice() != {self.index}:",
            f" with torch.cuda.device({self.index}): return plan(arguments)",
            f"stream = _C._cuda_getCurrentRawStream({self.index})",
        ]
        self.launches, self.is_whole, self.is_provisional = 0, True, False

    def name(self, value: Any) -> str:
        """A name for a value in the lines."""
        name = f"v{len(self.names)}"
        self.names[name] = value
        return name

    def note(self, line: str, values: Iterable[Any], **names: Any) -> None:
        """Record a launch on the current card. Its line has the fields {values}, for addresses of
        tensors and numbers, and those of `names`. If a tensor is neither given nor made in the
        call, the call cannot be kept."""
        own = {x.data_ptr(): f"at_{name}" for name, x in self.tensors.items()}
        passed = [own.get(x.data_ptr()) if isinstance(x, Tensor) else self.name(x) for x in values]
        self.is_whole &= None not in passed
        names = {field: self.name(value) for field, value in names.items()}
        self.lines.append(line.format(values=", ".join(map(str, passed)), **names))
        self.launches += 1

    def finish(self, call: Callable, written: Sequence[int], result: Any) -> Callable[[tuple], Any]:
        """The function that repeats the call, which wrote into the arguments `written` and returned
        `result`; or one that calls the operator, `call`, if the call cannot be kept."""
        names = {id(None): "None", **{id(x): name for name, x in self.tensors.items()}}
        results = [names.get(id(x)) for x in (result if isinstance(result, tuple) else [result])]
        lines = ["return call(*arguments)"]
        if self.is_whole and self.launches and None not in results:
            counted = [f"increment_version(x{i})" for i in written]
            lines = [*self.lines, *counted, f"return {', '.join(results)}"]
        text = "\n ".join(["def plan(arguments):", *self.conditions, *lines])
        name = f"plan {hash(text):x}"  # by which a traceback finds the text
        source = {"__name__": name, "__loader__": SimpleNamespace(get_source=lambda _: text)}
        self.names |= {"call": call, "increment_version": increment_version, **source}
        exec(_compile(text, name, "exec"), self.names)
        self.names["plan"].__doc__ = text
        return self.names["plan"]


def made(x: Tensor) -> Tensor:
    """Note in the plan that is recorded, if any, to allocate memory like x's; returns x."""
    if plan := _thread.recording:
        make = partial(_EMPTY[x.device.type], tuple(x.shape), x.stride(), x.dtype)
        y = f"y{len(plan.tensors)}"
        plan.lines += [f"{y} = {plan.name(make)}()", f"at_{y} = {y}.data_ptr()"]
        plan.is_whole &= x.is_contiguous() and x.numel() > 0
        plan.tensors[y] = x
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
    if is_dynamo_compiling() or profiler._is_profiler_enabled or _C._len_torch_function_stack():
        return operator(*arguments, backend=backend)
    like = operator, backend, len(arguments), arguments[0].numel()
    for plan in _plans.get(like, ()):
        result = plan(arguments)
        if result is not MISSED:
            return result
    if recording() or must_be_seen(arguments):  # a tensor that is transformed has no address
        return operator(*arguments, backend=backend)
    # A plan tells arguments apart by their addresses: an empty tensor has none, and a tensor that
    # is given twice could be two tensors in the next call.
    addresses = [x.data_ptr() for x in arguments if type(x) in TENSORS]
    if 0 in addresses or len(set(addresses)) < len(addresses):
        return operator(*arguments, backend=backend)
    _thread.recording = plan = Plan(arguments)
    try:
        result = operator(*arguments, backend=backend)
    finally:
        _thread.recording = None
    if len(_plans) >= MOST:
        forget()
    if not plan.is_provisional:
        known = _plans.setdefault(like, [])
        known.insert(0, plan.finish(partial(operator, backend=backend), written, result))
        del known[MOST_ALIKE:]
    return result
