"""Triton's interpreter without the work that changes no result: checks take half the time.

It walks through the modules of the language at each launch and at each call of one kernel by
another, to find the functions that it replaces; it computes for each integer addition whether it
overflows, and then asks whether anyone wants to know; and it makes its table of dtypes for each
operation. The functions and the table are found once here, and the unread question is not asked.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any


@cache
def quicken() -> None:
    """Make the interpreter quicker in this process; call it between launches, not in one."""
    import triton.language as tl
    from triton.runtime import interpreter

    builder = interpreter.interpreter_builder
    if not builder.options.debug:  # with it, an overflow is an error
        builder.options = replace(builder.options, sanitize_overflow=False)

    @cache
    def builtins(package: Any) -> list[str]:
        return [name for name in dir(package) if is_builtin(getattr(package, name, None))]

    def patch_builtin(package: Any, *how: Any) -> None:
        for name in builtins(package):
            member = getattr(package, name)
            if is_builtin(member):  # not replaced yet
                interpreter._patch_attr(package, name, member, *how)

    def numpy_dtype(dtype: Any) -> Any:
        element = dtype.element_ty if isinstance(dtype, tl.block_type) else dtype
        is_pointer = isinstance(element, tl.pointer_type)  # which cannot be a key
        return of_dtype(dtype) if is_pointer else of_scalar(element)

    is_builtin, of_dtype = tl.core.is_builtin, interpreter._get_np_dtype
    of_scalar = cache(of_dtype)
    interpreter._patch_builtin = patch_builtin
    interpreter._get_np_dtype = numpy_dtype
