"""Slips in a Triton kernel that the interpreter does not report, or reports without a remedy.

The compiler refuses a condition on a block; the interpreter takes every block as true. For an index
on a pointer, or arguments in the wrong order, Triton's error does not say what to write.
"""

import sys
from functools import cache
from pathlib import Path
from typing import Any

CONDITION = (
    "a block of {} values is neither true nor false. `if` and `while` decide for the whole "
    "program; to decide per element, give tl.load and tl.store a mask, or call tl.where. Instead "
    "of `and`, `or`, `not` write &, |, ~; instead of min and max, tl.minimum and tl.maximum."
)
ADDRESSES = (
    "A pointer plus a block of offsets is a block of addresses: tl.load(addresses, mask=...) "
    "returns the numbers there, and tl.store(addresses, block, mask=...) writes them."
)
POINTER = f"a pointer has no index. {ADDRESSES}"
INDEX = "only `:` and `None` index a block: no element, and no part of it, can be taken out."
UNCLEAR = (  # how Triton's error begins if addresses stand in the wrong place, or are only one
    "Unsupported ptr type",
    "Mask argument cannot be block type",
    "Value argument cannot be block type",
)


@cache
def refuse_slips() -> None:
    """Let the interpreter refuse what the compiler refuses; call it between launches."""
    import triton
    import triton.language as tl
    from triton.runtime import interpreter

    tritons = str(Path(triton.__file__).parent)
    patch_tensor, plain_index = interpreter._patch_lang_tensor, tl.tensor.__getitem__

    def patched(tensor: Any, scope: Any) -> None:
        patch_tensor(tensor, scope)
        scope.set_attr(tensor, "__bool__", truth)
        scope.set_attr(tensor, "__getitem__", indexed)
        scope.set_attr(tensor, "__setitem__", stored)

    def truth(block: Any) -> bool:
        data = block.handle.data
        if data.size == 1:
            return bool(data)
        if sys._getframe(1).f_code.co_filename.startswith(tritons):
            return True  # Triton asks whether a block was given
        raise TypeError(CONDITION.format(data.size))

    def indexed(block: Any, index: Any) -> Any:
        try:
            return plain_index(block, index, _semantic=interpreter.interpreter_semantic)
        except (TypeError, ValueError):
            return stored(block, index)

    def stored(block: Any, index: Any, value: Any = None) -> None:
        raise TypeError(POINTER if block.dtype.is_ptr() else INDEX) from None

    interpreter._patch_lang_tensor = patched


def explain(error: Exception) -> None:
    """Add what to write instead, where Triton's own error does not say it."""
    if str(error).startswith(UNCLEAR):
        error.args = (f"{error}. {ADDRESSES}",)
