"""22.3: a kernel registered as an operator of torch, with a fake that torch.compile can trace."""

import itertools
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch._dynamo  # takes a second, and may not be interrupted by a time limit
from torch._subclasses.fake_tensor import FakeTensorMode

from yaie.course.core.observe import Case, Observer

_numbers = itertools.count()


def cases() -> Iterator[Case]:
    for dtype in ("float32", "float16"):
        for shape in ((3, 16), (5, 66), (1, 2), (0, 8)):
            yield Case(f"x of {dtype} {list(shape)}", look=at_result, dtype=dtype, shape=shape)
    for dtype in ("float32", "float16"):
        yield Case(f"the fake, given {dtype} [3, 16]", look=at_fake, dtype=dtype, shape=(3, 16))
    yield Case("a program compiled by torch.compile", look=at_graphs)


def observe(define: Callable[[str], None], case: Case, see: Observer) -> None:
    namespace = f"exercise_22_3_{next(_numbers)}"  # one that was never used before
    with see.call("define_silu_and_mul(namespace)"):
        define(namespace)
    names = [name.partition("::") for name in torch._C._dispatch_get_all_op_names()]
    defined = sorted(name for space, _, name in names if space == namespace)
    missing = "" if "silu_and_mul" in defined else f"are {defined}, expected ['silu_and_mul']"
    because = "The full name of the operator is the namespace, two colons, silu_and_mul."
    see.note("the operators in the namespace afterwards", defined, missing, because)
    see.stop_if_wrong()
    operator = getattr(torch.ops, namespace).silu_and_mul
    schema = operator.default._schema
    written = [a.name for a in schema.arguments if a.alias_info and a.alias_info.is_write]
    read = "The operator only reads x, so the schema is `silu_and_mul(Tensor x) -> Tensor`."
    see.equal("the arguments that the schema says are written", written, [], read)
    with unlogged():
        case.look(operator, case, see)


@contextmanager
def unlogged() -> Iterator[None]:
    """Without torch's log of what a fake raised, the fake of a known mistake included."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


def tensor(case: Case) -> Any:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(case.shape, generator=generator).to(getattr(torch, case.dtype))


def at_result(operator: Any, case: Case, see: Observer) -> None:
    """The result, and whether x stays what it was."""
    x = tensor(case)
    before = x.clone()
    with see.call("silu_and_mul(x)"):
        out = operator(x)
    read = "The schema says `Tensor x`: the operator only reads it."
    see.equal("x afterwards", x, before, read)
    gate, up = before.double().chunk(2, dim=-1)
    want = (gate * torch.sigmoid(gate) * up).to(before.dtype)
    formula = f"It is silu of the first {case.shape[1] // 2} columns times the others."
    see.close("the result", out, want, formula, rtol=2e-3, atol=1e-5)
    shared = x.numel() and out.untyped_storage()._cdata == x.untyped_storage()._cdata
    new = "The schema has no alias, so it promises a new tensor."
    see.true("the result", not shared, "shares memory with x", new)


def at_fake(operator: Any, case: Case, see: Observer) -> None:
    """The fake's answer beside the real one."""
    x = tensor(case)
    mode = FakeTensorMode()
    fake_x = mode.from_tensor(x)
    with see.call("the fake"), warnings.catch_warnings(), mode:
        warnings.simplefilter("ignore")
        fake = operator(fake_x)
    see.kind("the fake", fake, torch.Tensor, "an empty tensor")
    promise = "The fake promises what the operator returns for such an x."
    see.equal("its shape", tuple(fake.shape), (3, 8), promise)
    see.equal("its dtype", fake.dtype, x.dtype, promise)
    see.equal("its device", fake.device, x.device, promise)
    see.equal("its strides", fake.stride(), (8, 1), promise)


def at_graphs(operator: Any, case: Case, see: Observer) -> None:
    """One graph, which serves all sizes."""
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
            call = f"the compiled program with {rows} rows and size {size}"
            with see.call(call):
                see.close(f"the result of {call}", compiled(x, weight), program(x, weight))
    torch._dynamo.reset()
    one = "The sizes are symbols while torch.compile traces, so one graph serves all of them."
    see.equal("the number of graphs for three sizes", len(graphs), 1, one)
