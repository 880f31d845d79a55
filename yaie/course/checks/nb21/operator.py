"""Exercise 21.1: an operator with a fake."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any

from yaie.course.core.expect import close, equal, fail, given, true

_numbers = itertools.count()
SHAPES = [(3, 16), (5, 66), (1, 2), (0, 8)]


def check_operator(define: Callable[[str], None]) -> None:
    """The real operator, then the fake, then one graph for three sizes."""
    operator = define_in_new_namespace(define)
    check_real(operator)
    check_fake(operator)
    check_compiled(operator)


def define_in_new_namespace(define: Callable[[str], None]) -> Any:
    """The operator that `define` registers, in a namespace that nobody has used."""
    import torch

    namespace = f"exercise_21_1_{next(_numbers)}"
    with given(f'define_silu_and_mul("{namespace}")'):
        define(namespace)
    operator = getattr(getattr(torch.ops, namespace), "silu_and_mul", None)
    true(
        operator is not None,
        f"After define_silu_and_mul({namespace!r}) there is no torch.ops.{namespace}.silu_and_mul: "
        "the operator's full name is the namespace, two colons, silu_and_mul. If you made a "
        "torch.library.Library, keep it somewhere: it takes its operators along when nobody holds "
        "it any more.",
    )
    return operator


def check_real(operator: Any) -> None:
    import torch

    from yaie.ops.reference.elementwise import silu_and_mul

    for dtype in (torch.float32, torch.float16):
        for shape in SHAPES:
            x = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)
            before = x.clone()
            what = f"silu_and_mul of {dtype} {list(shape)}"
            with given(what):
                out = call(operator, x)
                equal(
                    x, before, "x afterwards", "The schema says `Tensor x`: it is only read. An "
                    "operator that writes into it has to say so, or torch.compile may move a "
                    "later use of x before it.",
                )  # fmt: skip
                true(
                    not x.numel() or out.untyped_storage()._cdata != x.untyped_storage()._cdata,
                    "the result shares memory with x. The schema has no alias: it promises a new "
                    "tensor.",
                )
                close(out, silu_and_mul(x), "the result", rtol=2e-3, atol=1e-5)


def call(operator: Any, x: Any) -> Any:
    try:
        return operator(x)
    except NotImplementedError as error:
        if "Could not run" not in str(error):
            raise
        fail(
            f"the operator has nothing that computes for tensors on {x.device}. The kernel runs "
            "on every device, so register it for all of them: name no device, or use the key "
            "CompositeExplicitAutograd."
        )


def check_fake(operator: Any) -> None:
    """The fake's answer beside the real one."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode, UnsupportedOperatorException

    from yaie.build.jit import KernelError

    for dtype in (torch.float32, torch.float16):
        x = torch.randn(3, 16).to(dtype)
        real, mode = operator(x), FakeTensorMode()
        fake_x = mode.from_tensor(x)
        what = f"the fake of silu_and_mul, given {dtype} [3, 16]"
        try:
            with warnings.catch_warnings(), mode:
                warnings.simplefilter("ignore")
                fake = operator(fake_x)
        except (UnsupportedOperatorException, RuntimeError, TypeError, ValueError) as error:
            said = f"{type(error).__name__}: {str(error).splitlines()[0]}"
            missing = "no fake impl registered" in said
            if missing or isinstance(error, UnsupportedOperatorException):
                fail(
                    f"{what}: the operator has no fake. Without data torch cannot know what the "
                    "kernel would return, and torch.compile stops there. Register a function that "
                    "returns an empty tensor."
                )
            if isinstance(error, KernelError) or "fake" in said.lower():
                fail(
                    f"{what} raised {said}. The x of a fake has no numbers and no address: make "
                    "an empty result, and launch nothing."
                )
            error.given = what
            raise
        equal(
            tuple(fake.shape), tuple(real.shape), f"{what}: its shape",
            mistakes=[(tuple(x.shape), "That is the shape of x. The result has half its columns.")],
        )  # fmt: skip
        equal(
            fake.dtype, real.dtype, f"{what}: its dtype",
            "Everything that is traced behind the operator would be computed in that one. "
            "x.new_empty takes dtype and device of x.",
        )  # fmt: skip
        equal(fake.device, real.device, f"{what}: its device")
        equal(fake.stride(), real.stride(), f"{what}: its strides")


def check_compiled(operator: Any) -> None:
    """One graph, which serves all sizes."""
    import torch

    graphs = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    def program(x: Any, weight: Any) -> Any:
        return operator(x @ weight).relu()

    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = torch.compile(program, backend=backend, fullgraph=True, dynamic=True)
        for rows, size in ((3, 8), (5, 8), (7, 12)):
            x, weight = torch.randn(rows, 4), torch.randn(4, 2 * size)
            with given(f"the compiled program with {rows} rows and size {size}"):
                close(compiled(x, weight), program(x, weight), "its result")
    torch._dynamo.reset()
    equal(
        len(graphs), 1, "the number of graphs that torch.compile made for three sizes",
        "The fake turned a size into a Python number, so a graph holds for that number alone. "
        "Leave the sizes as they come, x.shape[0] and x.shape[1] // 2: they may be symbols.",
    )  # fmt: skip
