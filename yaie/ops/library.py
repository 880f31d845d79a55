"""Operators of `torch.library`: what torch.compile, autograd and CUDA graphs need to know of them.

`torch.ops.yaie.<name>` takes arguments that somebody has checked and asks the registry, at each
call, who computes. The public functions of this package check, then call it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from yaie.backends.registry import AUTO, compute

_LIBRARY = torch.library.Library("yaie", "DEF")


def define(schema: str, fake: Callable[..., Any]) -> Callable[..., Any]:
    """Register an operator and return it.

    Args:
        schema: as torch.library writes it, `name(Tensor x, ..., *, str backend="auto") -> Tensor`;
            the first argument is a tensor, or a list of them, on the device to compute on.
        fake: the same arguments -> empty results, for tracing without data.
    """
    name = schema.partition("(")[0]

    def run(*arguments: Any, backend: str = AUTO) -> Any:
        first = arguments[0]
        device = (first if isinstance(first, torch.Tensor) else first[0]).device.type
        return compute(name, backend, device, *arguments)

    def run_fake(*arguments: Any, backend: str = AUTO) -> Any:
        return fake(*arguments)

    _LIBRARY.define(schema)
    _LIBRARY.impl(name, run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"yaie::{name}", run_fake)
    return getattr(torch.ops.yaie, name).default
