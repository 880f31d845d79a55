"""A step that is captured once and replayed: what a CUDA graph does, on any device.

A capture records the operators that a function runs, with the tensors that they ran on. A replay
runs the same operators on the same memory: the function's Python is not looked at again. On a GPU
that is a CUDA graph. On a CPU it is a list of operators, which refuses most of what a graph refuses
and goes wrong where a graph does.

`GraphedSteps` makes a step for batches of any size out of captures for a few sizes. It is the idea
alone, for any step; the engine's own, with its prompts and its one copy of inputs, is
`yaie.engine.graphs`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from yaie.engine.graphs import workspace_in_the_pool

Replay = Callable[[], None]
Tensors = dict[str, torch.Tensor]


class NotCapturable(RuntimeError):
    """An operator needs the CPU to wait for a number, or makes a shape of one."""


def capture_on_gpu(function: Callable[[], Any]) -> tuple[Any, Replay]:
    """Capture a function of no arguments as a CUDA graph.

    The caller has run it once before, so that everything is compiled and loaded.

    Returns:
        What the function returned, and a function that replays it: into the very same tensors.

    Raises:
        RuntimeError: torch's own, if the function does what may not be captured.
    """
    graph = torch.cuda.CUDAGraph()
    with workspace_in_the_pool(), torch.cuda.graph(graph):
        result = function()
    return result, graph.replay


def capture_on_cpu(function: Callable[[], Any]) -> tuple[Any, Replay]:
    """Capture a function as `capture_on_gpu` does, but as a list of operators.

    `tolist` and `numpy` it does not see: the numbers stay what they were, as all Python numbers do.
    Kernels are seen if they are operators.

    Raises:
        NotCapturable: something waits for a number (`item`, `if tensor`), makes a shape of one
            (`nonzero`, a mask as an index), or makes a tensor of a Python list.
    """
    recording = Recording()
    with recording:
        result = function()
    return result, recording.replay


class Recording(TorchDispatchMode):
    """The operators that run inside `with`, in order. See `capture_on_cpu`."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, tuple, dict, Any]] = []

    def __torch_dispatch__(
        self, operator: Any, types: Any, arguments: tuple = (), options: dict | None = None
    ) -> Any:
        options = options or {}
        if why := _refusal(operator, arguments):
            raise NotCapturable(f"{operator.name()} may not be captured: {why}")
        result = operator(*arguments, **options)
        self.calls.append((operator, arguments, options, result))
        return result

    def replay(self) -> None:
        """Run the operators again, on the same tensors; results go where they went before."""
        for operator, arguments, options, before in self.calls:
            now = operator(*arguments, **options)
            if not operator._schema.is_mutable and not _is_view(operator):
                for old, new in zip(_tensors(before), _tensors(now), strict=True):
                    old.copy_(new)

    @property
    def names(self) -> list[str]:
        """Of the operators, those left out that only look at memory in another way."""
        return [operator.name() for operator, *_ in self.calls if not _is_view(operator)]


def _refusal(operator: Any, arguments: tuple) -> str:
    """Why an operator may not be captured; "" if it may."""
    if torch.Tag.data_dependent_output in operator.tags:
        return "the CPU would wait for a number of the GPU's, which has not begun to compute"
    if operator is torch.ops.aten.index.Tensor:
        indices = [index for index in arguments[1] if index is not None]
        if all(index.dtype not in (torch.bool, torch.uint8) for index in indices):
            return ""
    if torch.Tag.dynamic_output_shape in operator.tags:
        return "the shape of its result depends on numbers, and a replay has no other shapes"
    if operator is torch.ops.aten.lift_fresh.default and arguments[0].dim():
        return "a tensor made of Python's numbers would be the same in each replay"
    return ""


def _is_view(operator: Any) -> bool:
    """Whether results share memory with arguments."""
    return any(result.alias_info is not None for result in operator._schema.returns)


def _tensors(result: Any) -> list[torch.Tensor]:
    results = result if isinstance(result, list | tuple) else [result]
    return [tensor for tensor in results if isinstance(tensor, torch.Tensor)]


class GraphedSteps:
    """A step of fixed shapes, captured for a few batch sizes and replayed for any.

    Args:
        step: `{name: tensor [size, ...]}` -> a tensor `[size, ...]`. What a row does to memory that
            the step holds, such as a cache, depends on that row alone.
        padding: `{name: tensor [...]}`, a row that does no harm, for places that no request has.
        capture: `capture_on_gpu` or `capture_on_cpu`.

    Attributes:
        inputs: for each captured size, the tensors that its replay reads.
        outputs: for each captured size, the tensor that its replay writes.
        replays: for each captured size, the function that replays it.
    """

    def __init__(
        self,
        step: Callable[[Tensors], torch.Tensor],
        padding: Mapping[str, torch.Tensor],
        capture: Callable[[Callable[[], Any]], tuple[Any, Replay]],
    ) -> None:
        self.step, self.padding, self.capture = step, dict(padding), capture
        self.inputs: dict[int, Tensors] = {}
        self.outputs: dict[int, torch.Tensor] = {}
        self.replays: dict[int, Replay] = {}

    def add(self, size: int) -> None:
        """Capture the step for batches of up to `size` rows.

        Makes input tensors of `size` rows, all of them padding; runs the step once on them, not
        captured, so that everything is compiled and loaded; captures the step on them; and keeps
        the three things that `inputs`, `outputs` and `replays` are for.
        """
        inputs = {name: torch.stack([row] * size) for name, row in self.padding.items()}
        self.step(inputs)
        self.inputs[size] = inputs
        self.outputs[size], self.replays[size] = self.capture(lambda: self.step(inputs))

    def run(self, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """The step's result for a batch, `[rows, ...]`, by one replay.

        The smallest captured size that the rows fit in is replayed. Its input tensors get the rows,
        followed by padding. The result is the caller's own: a later replay does not change it.

        Args:
            batch: `{name: tensor [rows, ...]}`, with the names of `padding`.

        Raises:
            ValueError: the batch has more rows than any captured size.
        """
        rows = len(next(iter(batch.values())))
        fits = [size for size in self.replays if size >= rows]
        if not fits:
            raise ValueError(f"captured for at most {max(self.replays)} rows, got {rows}")
        size = min(fits)
        for name, tensor in self.inputs[size].items():
            tensor[:rows] = batch[name]
            tensor[rows:] = self.padding[name]
        self.replays[size]()
        return self.outputs[size][:rows].clone()
