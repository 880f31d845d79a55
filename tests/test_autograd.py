"""What autograd is told of the operators: which have no gradient, and what they write into."""

import importlib
import importlib.util

import pytest
import torch
from launches import (
    as_tuple,
    captured,
    each_device,
    gpu_only,
    ints,
    same,
    skip_unless_it_runs_on,
    starts,
)

from yaie.course.lessons.flat_tree import flatten
from yaie.engine.radix import RadixTree
from yaie.ops import norm, operators, registry
from yaie.ops.kv import reshape_and_cache
from yaie.ops.reference.rotary import rotary_tables

FP8 = torch.float8_e4m3fn
MAPPING = ints([[0, 1], [1, 2]], dtype=torch.int64)


def arguments(name: str, seed: int = 0) -> tuple:
    """What the operator is called with, as torch.library sees it."""
    torch.manual_seed(seed)
    x, y, weight = torch.randn(4, 8), torch.randn(4, 8), torch.randn(8)
    q, k, v = torch.randn(3, 4, 16), torch.randn(5, 2, 16), torch.randn(5, 2, 16)
    pools = torch.randn(4, 2, 2, 16), torch.randn(4, 2, 2, 16)
    eights = tuple(pool.to(FP8) for pool in pools)
    new, slots, scale = (k[:3], v[:3]), ints([7, 0, 3], dtype=torch.int64), torch.tensor([0.5, 2.0])
    tables, begin = ints([[3, 0], [1, 2]]), starts([2, 1])
    ones, room = torch.ones(4), (ints([0] * 3), ints([0] * 3))
    tree = RadixTree(2)
    tree.insert([1, 2, 3, 4], [0, 1])
    flat = flatten(tree)
    return {
        "add": (x, y),
        "add_relu": (x, y),
        "silu_and_mul": (x,),
        "transpose": (x,),
        "row_sum": (x,),
        "softmax": (x,),
        "rms_norm": (x, weight, 1e-6),
        "add_rms_norm": (x, y, weight, 1e-6),
        "rotary": (q, torch.arange(3), *rotary_tables(16, 40)),
        "matmul": (x, y.t().contiguous()),
        "attention": (q, k, v, True, None),
        "attention_backward": (q * 0.5, q, k, v, q.sum(-1), q.mean(-1), True, None),
        "ragged_attention": (q, k, v, starts([1, 2]), starts([3, 2]), True, None),
        "paged_attention": (q, *pools, tables, ints([3, 4]), begin, None),
        "shared_prefix_attention": (q[:2], *pools, ints([[3, 0], [3, 2]]), ints([3, 4]), 2, None),
        "reshape_and_cache": (*new, *pools, slots),
        "reshape_and_cache_fp8": (*new, *eights, slots, scale, scale),
        "copy_blocks": ([pools[0]], [pools[1]], MAPPING),
        "gather_kv": (*pools, tables, begin, 3, None, None, torch.float32),
        "gather_kv_fp8": (*eights, tables, begin, 3, scale, scale, torch.float16),
        "prefix_sum": (ints([1, 2, 3]),),
        "fill_draft_extend_metadata": (ints([1, 2]), ints([5, 6]), 4, *room, 3),
        "match_prefixes": (ints([1, 2, 3]), starts([3]), *flat.arrays, flat.block_size, 2),
        "sample": (x, ones, ints([0] * 4), ones, ones * 0.0, ones.double() * 0.5),
        "gumbel_sample": (x, ones, *[torch.arange(4)] * 2),
    }[name]


def arguments_for(backend: str, name: str) -> tuple:
    """The same as a back end takes them: Hopper's in float16, with KV blocks of 8 tokens."""

    def fitting(x: object) -> object:
        if backend != "cuda_hopper" or not isinstance(x, torch.Tensor) or x.dtype != torch.float32:
            return x
        return (x.repeat(1, 4, 1, 1) if x.ndim == 4 else x).half()

    return tuple(map(fitting, arguments(name)))


def with_gradients(values: tuple, writes: bool) -> tuple:
    """The same; what is read of floating-point numbers requires a gradient."""
    return tuple(
        x.clone().requires_grad_()
        if isinstance(x, torch.Tensor) and x.is_floating_point() and not (writes and x.ndim == 4)
        else x
        for x in values
    )


CALLS = [*registry.operators(), "gather_kv_fp8"]  # the last: gather_kv, of pools of 8 bits


def operator_of(name: str) -> str:
    return "gather_kv" if name == "gather_kv_fp8" else name


def run(name: str, values: tuple, backend: str) -> tuple:
    return as_tuple(getattr(operators, operator_of(name)).default(*values, backend=backend))


def tensors_of(values: tuple) -> list[torch.Tensor]:
    """All of them, those in lists too."""
    every = [x for value in values for x in (value if isinstance(value, list) else [value])]
    return [x for x in every if isinstance(x, torch.Tensor)]


def on(device: str, values: tuple) -> tuple:
    """The same on a device, lists too."""
    return tuple(
        [x.to(device) for x in value]
        if isinstance(value, list)
        else value.to(device)
        if isinstance(value, torch.Tensor)
        else value
        for value in values
    )


WRITING = (
    "reshape_and_cache",
    "reshape_and_cache_fp8",
    "copy_blocks",
    "fill_draft_extend_metadata",
)
GIVING = ("prefix_sum", "match_prefixes", "sample", "gumbel_sample")  # numbers of tokens
FUNCTIONS = [name for name in CALLS if name not in WRITING + GIVING]
BACKENDS = [
    pytest.param(name, backend, id=f"{name}-{backend}")
    for name in CALLS
    for backend in registry.backends(operator_of(name))
    if backend != "triton" or importlib.util.find_spec("triton")
]
each_backend = pytest.mark.parametrize(("name", "backend"), BACKENDS)


@each_backend
def test_a_backward_pass_says_what_to_call_instead(name, backend):
    """And does not leave a part of the gradient out; the forward pass is what it is without."""
    if name in WRITING:
        pytest.skip("returns nothing")
    values = with_gradients(arguments_for(backend, name), False)
    with torch.no_grad():
        wanted = run(name, values, backend)
    results = run(name, values, backend)
    for result, other in zip(results, wanted, strict=True):
        assert torch.equal(result, other)
        assert result.requires_grad == (name in FUNCTIONS)
        if result.requires_grad:
            with pytest.raises(
                NotImplementedError, match=f"yaie::{operator_of(name)} has no gradient here"
            ):
                result.float().sum().backward(retain_graph=True)
    with torch.inference_mode():
        assert all(map(torch.equal, run(name, values, backend), wanted))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_function_that_is_named_exists_and_has_a_gradient(name):
    values = with_gradients(arguments(name), False)
    with pytest.raises(NotImplementedError) as raised:
        run(name, values, "reference")[0].float().sum().backward()
    path = next(word for word in str(raised.value).split() if word.startswith("yaie.")).strip(",")
    module, _, function = path.rpartition(".")
    results = as_tuple(getattr(importlib.import_module(module), function)(*values))
    if "fp8" not in name:
        results[0].float().sum().backward()
        assert values[0].grad is not None


@each_backend
def test_versions_of_what_is_written_rise_by_one(name, backend):
    """For every back end alike, or autograd would not notice that what it saved is gone."""
    for mode in (torch.enable_grad, torch.no_grad, torch.inference_mode):
        values = arguments_for(backend, name)
        tensors = tensors_of(values)
        with mode():
            run(name, values, backend)
        schema = getattr(operators, operator_of(name)).default._schema
        written = [
            id(x)
            for v, argument in zip(values, schema.arguments, strict=False)
            if argument.alias_info is not None and argument.alias_info.is_write
            for x in (v if isinstance(v, list) else [v])
        ]
        assert bool(written) == (name in WRITING)
        assert [x._version for x in tensors] == [int(id(x) in written) for x in tensors]


@pytest.mark.parametrize("backend", ["reference", "cuda"])
def test_what_was_written_has_no_gradient_either(backend):
    keys, values, *pools, slots = arguments("reshape_and_cache")
    keys.requires_grad_()
    reshape_and_cache(keys, values, *pools, slots, backend=backend)
    assert torch.equal(pools[0].flatten(0, 1)[slots], keys)
    with pytest.raises(
        NotImplementedError, match=r"call the plain function yaie\.ops\.reference\.kv"
    ):
        (pools[0].sum() + keys.sum()).backward()
    fresh = [torch.randn(4, 2, 2, 16)], [torch.randn(4, 2, 2, 16, requires_grad=True) * 2.0]
    operators.copy_blocks.default(*fresh, MAPPING, backend=backend)
    with pytest.raises(NotImplementedError, match="yaie::copy_blocks has no gradient here"):
        fresh[1][0].sum().backward()


def test_what_autograd_saved_must_not_be_written():
    keys, values, *pools, slots = arguments("reshape_and_cache")
    weight = torch.randn(16, requires_grad=True)
    loss = (pools[0] * weight).sum()  # saves the pool
    reshape_and_cache(keys, values, *pools, slots, backend="cuda")
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@each_device
@each_backend
def test_opcheck(name, backend, device):
    """All that torch.library checks: of the schema, of the fake, and of what a compiler traces. The
    last of it runs the backward pass, so it is left out where there are gradients."""
    skip_unless_it_runs_on(device, backend)
    operator = getattr(operators, operator_of(name)).default
    given = on(device, arguments_for(backend, name))
    tests = ["test_schema", "test_autograd_registration", "test_faketensor"]
    if "fp8" in name:  # it compares by allclose, which torch.float8_e4m3fn has not
        tests.remove("test_schema")
    with_grads = with_gradients(given, name in WRITING)
    torch.library.opcheck(operator, with_grads, {"backend": backend}, test_utils=tests)
    if "fp8" not in name:
        tests.append("test_aot_dispatch_dynamic")
    torch.library.opcheck(operator, given, {"backend": backend}, test_utils=tests)


@gpu_only
@pytest.mark.parametrize("name", [n for n in CALLS if "cuda" in registry.backends(operator_of(n))])
def test_captured_in_a_cuda_graph(name, device):
    """Nothing waits for the host: a graph holds the launch and runs it again on new data.
    Operators that copy, or return integers, must equal the reference in every bit."""
    values, fresh, wanted = (on(device, arguments(name, seed)) for seed in (0, 1, 1))
    got, replay = captured(lambda: run(name, values, "cuda"))
    for old, new in zip(tensors_of(values), tensors_of(fresh), strict=True):
        old.copy_(new)
    replay()
    want = run(name, wanted, "reference")
    for one, other in zip((*got, *tensors_of(values)), (*want, *tensors_of(wanted)), strict=True):
        if name not in FUNCTIONS or name.startswith("gather"):
            assert one is other is None or same(one, other)
        elif isinstance(one, torch.Tensor):
            torch.testing.assert_close(one.float(), other.float(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("compiler", ["eager", "aot_eager"])
@pytest.mark.parametrize("backend", ["reference", "cuda"])
def test_compiled_it_is_the_same(backend, compiler):
    def layer(x, weight, keys, values, key_pool, value_pool, slots):
        reshape_and_cache(keys, values, key_pool, value_pool, slots, backend=backend)
        return norm.rms_norm(x, weight, backend=backend) + x, key_pool.sum() + keys.sum()

    torch._dynamo.reset()
    compiled = torch.compile(layer, fullgraph=True, backend=compiler)
    x, weight, _ = arguments("rms_norm")
    for wanting in (False, True):
        cache = [v.clone() for v in arguments("reshape_and_cache")]
        cache[0].requires_grad_(wanting)
        x, weight = (v.detach().requires_grad_(wanting) for v in (x, weight))
        eager = [v.clone() for v in cache]
        results = compiled(x, weight, *cache)
        torch.testing.assert_close(results, layer(x, weight, *eager))
        assert torch.equal(cache[2], eager[2])
        for result in results:
            assert result.requires_grad == wanting
            if wanting:
                with pytest.raises(NotImplementedError, match=r"yaie::.* has no gradient here"):
                    result.sum().backward(retain_graph=True)
    with torch.inference_mode():
        compiled(x, weight, *(v.detach().clone() for v in cache))


@gpu_only
def test_weights_that_require_a_gradient_are_captured_in_a_cuda_graph(device):
    x, weight, _ = on(device, arguments("rms_norm"))
    weight.requires_grad_()
    out, replay = captured(lambda: norm.rms_norm(x, weight))
    x.copy_(torch.randn(4, 8))
    replay()
    torch.testing.assert_close(out, norm.rms_norm(x, weight, backend="reference"))
    with pytest.raises(NotImplementedError, match="yaie::rms_norm has no gradient here"):
        out.sum().backward()


# -------------------------------------------------------------------------------- the registry


def test_every_operator_can_be_called_and_is_tested_here():
    for name in CALLS:
        assert hasattr(operators, operator_of(name)) and arguments(name)
