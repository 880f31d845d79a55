"""Operators of `torch.library`: what torch.compile, autograd and CUDA graphs need to know of them.

`torch.ops.yaie.<name>` takes arguments that somebody has checked and asks the registry, at each
call, who computes. The public functions of this package check, then call it.

The operators are for inference. They take tensors that require a gradient, but a backward pass
through one raises, whatever back end computed it, rather than leave a part of the gradient out.
The plain functions, `yaie.ops.reference` and its like, are those that autograd differentiates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import _C
from torch.autograd.graph import increment_version

from yaie.ops.registry import AUTO, compute, location

_LIBRARY = torch.library.Library("yaie", "DEF")


def define(schema: str, fake: Callable[..., Any], plain: str | None = None) -> Callable[..., Any]:
    """Register an operator and return it.

    Args:
        schema: as torch.library writes it, `name(Tensor x, ..., *, str backend="auto") -> Tensor`;
            the first argument is a tensor, or a list of them, on the device to compute on. One that
            writes into its arguments returns nothing.
        fake: the same arguments -> empty results, for tracing without data.
        plain: the function to call for a gradient, which has none of the operator's; the reference
            if not given.
    """
    name = schema.partition("(")[0]

    def run(*arguments: Any, backend: str = AUTO) -> Any:
        first = arguments[0]
        device = (first if isinstance(first, torch.Tensor) else first[0]).device.type
        if not written:
            return compute(name, backend, device, *arguments)
        with _C._AutoDispatchBelowADInplaceOrView():  # who writes by torch does not count again
            compute(name, backend, device, *arguments)
        for i in written:
            increment_version(arguments[i])

    def run_fake(*arguments: Any, backend: str = AUTO) -> Any:
        return fake(*arguments)

    _LIBRARY.define(schema)
    _LIBRARY.impl(name, run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"yaie::{name}", run_fake)
    operator = getattr(torch.ops.yaie, name).default
    written = [i for i, argument in enumerate(operator._schema.arguments) if _is_written(argument)]
    _refuse_gradients(operator, plain or location(name, "reference").replace(":", "."), written)
    return operator


# ------------------------------------------------------------------------------------ autograd


def _refuse_gradients(operator: torch._ops.OpOverload, plain: str, written: list[int]) -> None:
    """Have a backward pass through an operator raise an error that says what to call instead.

    Args:
        written: which arguments the operator writes into.
    """
    name = operator._schema.name

    def keep(ctx: Any, inputs: Any, keyword_only_inputs: Any = None, output: Any = None) -> None:
        ctx.kinds = [(x.shape, x.dtype) if isinstance(x, torch.Tensor) else None for x in inputs]

    def backward(ctx: Any, *gradients: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        gradient = next(g for g in gradients if g is not None)
        return tuple(
            _no_gradient(gradient, *kind, name, plain) if needed else None
            for needed, kind in zip(ctx.needs_input_grad, ctx.kinds, strict=True)
        )

    if not written:
        torch.library.register_autograd(name, backward, setup_context=keep)
        return

    class Written(torch.autograd.Function):
        """`run`, with the first of the tensors, which it writes into, as its results."""

        @staticmethod
        def forward(ctx: Any, run: Callable[[], None], count: int, *tensors: Any) -> tuple:
            run()
            keep(ctx, (run, count, *tensors))
            ctx.mark_dirty(*tensors[:count])
            return tensors[:count]

    Written.backward = staticmethod(backward)

    def autograd(keys: _C.DispatchKeySet, *arguments: Any, **options: str) -> None:
        def run() -> None:
            with _C._AutoDispatchBelowAutograd():
                operator.redispatch(keys & _C._after_autograd_keyset, *arguments, **options)

        if _C.is_grad_enabled() and _C._any_requires_grad(*arguments):
            targets = _tensors(arguments[i] for i in written)
            sources = _tensors(x for i, x in enumerate(arguments) if i not in written)
            Written.apply(run, len(targets), *targets, *sources)
        else:
            run()

    _LIBRARY.impl(operator, autograd, "Autograd", with_keyset=True)


def _is_written(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def _tensors(arguments: Any) -> list[torch.Tensor]:
    """All tensors of some arguments, those of lists among them."""
    lists = (x if isinstance(x, list | tuple) else [x] for x in arguments)
    return [x for each in lists for x in each if isinstance(x, torch.Tensor)]


# An operator too, so that torch.compile, which traces the backward pass together with the forward
# one, leaves the error for who runs it.
def _raise(gradient: torch.Tensor, size: Any, dtype: torch.dtype, name: str, plain: str) -> Any:
    raise NotImplementedError(
        f"{name} has no gradient here: it is for inference. For a gradient call the plain function "
        f"{plain}, or call the operator under torch.no_grad() if none is wanted"
    )


_LIBRARY.define(
    "no_gradient(Tensor gradient, SymInt[] size, ScalarType dtype, str name, str plain) -> Tensor"
)
_LIBRARY.impl("no_gradient", _raise, "CompositeExplicitAutograd")
torch.library.register_fake(
    "yaie::no_gradient",
    lambda gradient, size, dtype, name, plain: gradient.new_empty(size, dtype=dtype),
)
_no_gradient = torch.ops.yaie.no_gradient.default
