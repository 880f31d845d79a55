"""Operators of `torch.library`: what torch.compile, autograd and CUDA graphs need to know of them.

`torch.ops.yaie.<name>` takes arguments that its caller has checked. At each call it asks the
registry which back end computes. A public function of this package has a body that only checks its
arguments; the decorator `operator` adds the computation.

The operators are for inference. They take tensors that require a gradient, but a backward pass
through an operator raises, whatever back end computed it: no part of a gradient is left out
silently. Autograd differentiates the plain functions, such as those of `yaie.ops.reference`.
"""

import inspect
from collections.abc import Callable, Collection, Sequence
from functools import wraps
from typing import Any

import torch
from torch import _C
from torch.autograd.graph import increment_version
from torch.utils._pytree import tree_leaves

from yaie.ops import plans
from yaie.ops.plans import must_be_seen
from yaie.ops.registry import AUTO, changed, compute, location

_LIBRARY = torch.library.Library("yaie", "DEF")


def operator(
    fake: Callable[..., Any], name: str | None = None, writes: Collection[str] = ()
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Turn a function that checks arguments into an operator. The function's signature, without its
    last parameter `backend`, becomes the operator's schema. The operator checks its arguments and
    computes, or repeats recorded launches: see `planned`. Its attribute `check` is the function.

    Args:
        fake: as for `define`.
        name: of the operator, by default the function's.
        writes: the arguments that the operator writes into; it returns nothing then.
    """

    def decorate(check: Callable[..., Any]) -> Callable[..., Any]:
        called = name or check.__name__
        parameters = list(inspect.signature(check).parameters.values())[:-1]
        defaults = tuple(parameter.default for parameter in parameters)
        # Without defaults, since torch leaves out an argument that equals its default.
        kept, check.__defaults__ = check.__defaults__, None
        schema = torch.library.infer_schema(check, mutates_args=writes)
        check.__defaults__ = kept
        compute = define(called + schema, fake)
        written = [i for i, parameter in enumerate(parameters) if parameter.name in writes]

        def checked(*arguments: Any, backend: str = AUTO, **named: Any) -> Any:
            check(*arguments, **named)
            left = defaults[len(arguments) :]
            if named:
                left = [named.get(p.name, p.default) for p in parameters[len(arguments) :]]
            return compute(*arguments, *left, backend=backend)

        function = planned(called, written=written)(wraps(check)(checked))
        function.check = check
        return function

    return decorate


def planned(*operators: str, written: Sequence[int] = ()) -> Callable[[Callable], Callable]:
    """Make a public function keep its launches on a GPU, unless torch has to see the call or the
    registry was changed for one of the operators that it calls. See `yaie.ops.plans`.

    Args:
        written: which arguments the function writes into.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(*arguments: Any, backend: str = AUTO, **named: Any) -> Any:
            on_gpu = arguments and type(arguments[0]) is torch.Tensor and arguments[0].is_cuda
            if not on_gpu or named or (changed and not changed.isdisjoint(operators)):
                return function(*arguments, backend=backend, **named)
            return plans.launch(function, arguments, backend, written)

        return call

    return decorate


def define(schema: str, fake: Callable[..., Any]) -> Callable[..., Any]:
    """Register an operator, and return a function that calls it. Its name must have a row in the
    registry. Where torch need not see the call, the function goes past the dispatcher, which takes
    the host longer than checking and launching.

    Args:
        schema: as torch.library writes it, `name(Tensor x, ..., *, str backend="auto") -> Tensor`;
            the first argument, a tensor or a list of them, decides the device. An operator that
            writes into its arguments returns nothing.
        fake: the same arguments -> empty results, for tracing without data.
    """
    name = schema.partition("(")[0]

    def run(*arguments: Any, backend: str = AUTO) -> Any:
        first = arguments[0]
        device = (first if isinstance(first, torch.Tensor) else first[0]).device.type
        if not written:
            return compute(name, backend, device, *arguments)
        with _C._AutoDispatchBelowADInplaceOrView():  # torch's own writes do not count again
            compute(name, backend, device, *arguments)
        for i in written:
            increment_version(arguments[i])

    def call(*arguments: Any, backend: str = AUTO) -> Any:
        return (known if must_be_seen(arguments) else run)(*arguments, backend=backend)

    def run_fake(*arguments: Any, backend: str = AUTO) -> Any:
        return fake(*arguments)

    def autograd(keys: _C.DispatchKeySet, *arguments: Any, **options: str) -> Any:
        def below() -> Any:
            with _C._AutoDispatchBelowAutograd():
                return known.redispatch(keys & _C._after_autograd_keyset, *arguments, **options)

        if not (_C.is_grad_enabled() and _C._any_requires_grad(*arguments)):
            return below()
        targets = tree_leaves([arguments[i] for i in written])
        others = tree_leaves([x for i, x in enumerate(arguments) if i not in written])
        sources = [x for x in others if isinstance(x, torch.Tensor)]
        results = _Refused.apply((below, len(targets), name), *targets, *sources)
        return None if written else results

    _LIBRARY.define(schema)
    _LIBRARY.impl(name, run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"yaie::{name}", run_fake)
    known = getattr(torch.ops.yaie, name).default  # to torch
    kinds = [argument.alias_info for argument in known._schema.arguments]
    written = [i for i, kind in enumerate(kinds) if kind is not None and kind.is_write]
    _LIBRARY.impl(name, autograd, "Autograd", with_keyset=True)
    return call


class _Refused(torch.autograd.Function):
    """A call whose results, or the tensors that it writes into, raise in a backward pass."""

    @staticmethod
    def forward(ctx: Any, what: tuple[Callable[[], Any], int, str], *tensors: torch.Tensor) -> Any:
        call, num_written, ctx.name = what
        ctx.kinds = [(x.shape, x.dtype) for x in tensors]
        results = call()
        ctx.mark_dirty(*tensors[:num_written])
        return tensors[:num_written] if num_written else results

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        gradient = next(g for g in gradients if g is not None)
        return None, *(
            _no_gradient(gradient, *kind, ctx.name) if needed else None
            for needed, kind in zip(ctx.needs_input_grad[1:], ctx.kinds, strict=True)
        )


# An operator too: torch.compile traces the backward pass together with the forward one, and has to
# leave the error for the moment when it runs.
def _raise(gradient: torch.Tensor, size: Any, dtype: torch.dtype, name: str) -> Any:
    raise NotImplementedError(
        f"yaie::{name} has no gradient here: it is for inference. For a gradient call the plain "
        f"function {location(name, 'reference').replace(':', '.')}, or call the operator under "
        "torch.no_grad() if none is wanted"
    )


_LIBRARY.define("no_gradient(Tensor gradient, SymInt[] size, ScalarType dtype, str name) -> Tensor")
_LIBRARY.impl("no_gradient", _raise, "CompositeExplicitAutograd")
torch.library.register_fake(
    "yaie::no_gradient", lambda gradient, size, dtype, name: gradient.new_empty(size, dtype=dtype)
)
_no_gradient = torch.ops.yaie.no_gradient.default
