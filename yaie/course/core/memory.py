"""A main memory that counts what is read from it and written to it.

    memory = Memory()
    q, k, v = (memory.place(x, name) for x, name in ((q, "q"), (k, "k"), (v, "v")))
    flash_forward(q, k, v, ...)
    memory.read, memory.written, memory.events

A tensor that is placed in it behaves as it did, with three rules. Indexing it is a load: what
comes out is an ordinary tensor, close to the processor, and what is computed from that costs
nothing here. Assigning to a part of it is a store. And an operation on the tensor itself is a
kernel of its own, which reads it whole and writes its result to this memory. A transposed or
reshaped view is the same memory under another name, and no traffic; nor does an operation read a
tensor of which it takes only the dtype, the device or the shape.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_map_only

_MAKES_ROOM = {"empty_like", "new_empty", "empty_strided", "new_empty_strided"}
_FILLS = {"zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full"}
_FILLS |= {"rand_like", "randn_like", "randint_like"}
_AS = {"to", "type_as", "view_as", "reshape_as", "expand_as"}  # they read their first tensor only


@dataclass(frozen=True)
class Access:
    """Rows `start` to `end` of a tensor passed between memory and processor."""

    kind: str  # "read" or "write"
    name: str
    start: int
    end: int
    bytes: int


class Memory:
    """Counts the traffic of the tensors placed in it."""

    def __init__(self) -> None:
        self.events: list[Access] = []

    def place(self, tensor: torch.Tensor, name: str) -> torch.Tensor:
        """The same tensor, watched. Events carry its name."""
        placed = tensor.detach().as_subclass(_Placed)
        placed.memory, placed.label = self, name
        return placed

    @property
    def read(self) -> int:
        """Bytes read so far."""
        return sum(event.bytes for event in self.events if event.kind == "read")

    @property
    def written(self) -> int:
        """Bytes written so far."""
        return sum(event.bytes for event in self.events if event.kind == "write")

    def note(self, kind: str, tensor: torch.Tensor, name: str, start: int, end: int) -> None:
        """Count an access of all elements of `tensor`."""
        size = tensor.numel() * tensor.element_size()
        self.events.append(Access(kind, name, start, end, size))


class _Placed(torch.Tensor):
    """A tensor in a Memory; see the rules above."""

    memory: Memory
    label: str

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None):
        kwargs = kwargs or {}
        inputs = [x for x in tree_flatten((args, kwargs))[0] if isinstance(x, _Placed)]
        plain_args, plain_kwargs = tree_map_only(_Placed, _plain, (args, kwargs))
        result = function(*plain_args, **plain_kwargs)
        name = getattr(function, "__name__", "")
        memory = inputs[0].memory
        if name in _AS:
            if not isinstance(args[0], _Placed):
                return result
            inputs = inputs[:1]
        if name in ("__getitem__", "__setitem__") and isinstance(args[0], _Placed):
            part = plain_args[0][plain_args[1]]
            kind = "read" if name == "__getitem__" else "write"
            memory.note(kind, part, args[0].label, *_rows(args[1], len(args[0])))
            return result
        read = inputs
        if name in _FILLS or name == "new_tensor":  # the first tensor gives its dtype or shape
            given = (args[1:], kwargs) if name == "new_tensor" else ()
            read = [x for x in tree_flatten(given)[0] if isinstance(x, _Placed)]
        in_place = name.endswith("_") and not name.endswith("__")
        if "out" in kwargs:
            in_place, read = True, [x for x in tree_flatten(args)[0] if isinstance(x, _Placed)]
        return _keep(result, name, inputs, read, memory, in_place)


def _keep(
    result: Any, name: str, inputs: list[_Placed], read: list[_Placed], memory: Memory,
    in_place: bool,
) -> Any:  # fmt: skip
    """Put what an operation on whole tensors returned into memory, and count its traffic."""
    tensors = [x for x in tree_flatten(result)[0] if isinstance(x, torch.Tensor)]
    if not tensors:
        return result  # a shape, a dtype, a number
    sources = {x.untyped_storage().data_ptr(): x for x in map(_plain, inputs)}
    if name in _MAKES_ROOM:
        return tree_map_only(torch.Tensor, lambda x: memory.place(x, "out"), result)
    if not in_place and all(x.untyped_storage().data_ptr() in sources for x in tensors):
        return tree_map_only(torch.Tensor, lambda x: memory.place(x, inputs[0].label), result)
    for x in read:
        memory.note("read", x, x.label, 0, len(x) if x.ndim else 1)
    for x in tensors:
        memory.note("write", x, name, 0, len(x) if x.ndim else 1)
    return tree_map_only(torch.Tensor, lambda x: memory.place(x, name), result)


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.as_subclass(torch.Tensor)


def _rows(index: Any, length: int) -> tuple[int, int]:
    """The rows that an index takes, as far as it says."""
    first = index[0] if isinstance(index, tuple) and index else index
    if isinstance(first, slice):
        start, end, _ = first.indices(length)
        return start, max(start, end)
    if isinstance(first, int):
        return first % length, first % length + 1
    return 0, length
