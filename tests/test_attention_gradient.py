"""Gradients of attention by every implementation that has them, against autograd in float64."""

from functools import partial

import pytest
import torch
from attention_cases import INF, ragged, ragged_oracle
from launches import (
    captured,
    checked,
    each_device,
    each_dtype,
    gpu_only,
    same,
    same_in_each_order,
    shifted,
)
from oracles import naive_attention

from yaie.course.lessons.online_softmax import merge_states
from yaie.course.lessons.ops.attention import attention_forward
from yaie.course.lessons.ops.attention_gradient import attention_backward
from yaie.course.lessons.ops.attention_gradient import flash_attention as operator
from yaie.course.lessons.ops.reference.flash import (
    FlashAttention,
    flash_attention,
    flash_backward,
    flash_forward,
)
from yaie.ops.reference.attention import ragged_attention

poisoned = pytest.mark.usefixtures("poison")  # not while torch.compile traces
# A gradient is rounded once; in half precision `out` was rounded, too, before delta was made of it.
TOLERANCE = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
# num_q, num_k, heads, kv_heads, head_dim, causal
SHAPES = (
    *((1, 1, 1, 1, 1, True), (5, 5, 3, 3, 8, True), (3, 9, 4, 2, 32, True), (9, 3, 2, 1, 33, True)),
    *((4, 7, 6, 2, 64, False), (7, 4, 2, 2, 65, False), (2, 3, 2, 1, 256, True)),
    *((0, 4, 2, 1, 16, True), (4, 0, 2, 1, 16, True), (13, 21, 3, 1, 100, True)),
)
LARGE = (
    *((333, 333, 4, 2, 64, True), (100, 257, 6, 1, 128, True), (257, 100, 2, 2, 80, True)),
    *((129, 300, 4, 4, 96, False), (64, 64, 2, 1, 256, False)),
)


def inputs(shape, dtype, device="cpu"):
    """q, k and v that want a gradient, gradients of out and of lse, and whether it is causal."""
    num_q, num_k, heads, kv_heads, head_dim, causal = shape
    generator = torch.Generator().manual_seed(0)

    def draw(*sizes):
        return torch.randn(*sizes, generator=generator, dtype=torch.float64).to(device, dtype)

    q = draw(num_q, heads, head_dim)
    k, v = draw(num_k, kv_heads, head_dim), draw(num_k, kv_heads, head_dim)
    grads = draw(num_q, heads, head_dim), draw(num_q, heads).float()
    return [x.requires_grad_() for x in (q, k, v)], grads, causal


def wanted(tensors, grads, causal, scale=None):
    """The gradients of q, k and v in float64; rows that see nothing have none."""
    leaves = [x.detach().double().requires_grad_() for x in tensors]
    results = naive_attention(*leaves, causal, scale)
    return torch.autograd.grad(results, leaves, [g.double() for g in grads])


def compare(got, want, dtype):
    for name, one, other in zip("qkv", got, want, strict=True):
        assert one.dtype == dtype and one.shape == other.shape
        if one.numel():
            error = (one.double() - other).abs().max() / max(1.0, other.abs().max())
            assert error <= TOLERANCE[dtype], f"gradient of {name} is off by {error:.1e}"


def operands(shape, dtype, device="cpu", scale=None):
    """What the backward pass is given, q, k, v and the two gradients, and whether it is causal."""
    tensors, grads, causal = inputs(shape, dtype, device)
    q, k, v = (x.detach() for x in tensors)
    out, lse = attention_forward(q, k, v, causal, scale, backend="reference")
    delta = (grads[0].float() * out.float()).sum(-1) - grads[1]
    return (grads[0], q, k, v, lse, delta), tensors, grads, causal


# ------------------------------------------------------------------------------ the tiled passes

CHECKED = [(4, 4, 2, 2), (5, 9, 3, 1), (1, 6, 4, 2), (6, 3, 2, 1), (3, 0, 2, 1), (0, 3, 2, 1)]


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("sizes", CHECKED, ids=str)
def test_gradcheck(sizes, causal):
    """Of the output and of the log-sum-exp, which a merge of parts needs as well."""
    tensors, *_ = inputs((*sizes, 3, causal), torch.float64)

    options = {"causal": causal, "scale": 0.7, "tile_q": 2, "tile_k": 3}
    passes = [partial(function, **options) for function in (flash_forward, flash_backward)]

    def tiled(q, k, v):
        out, lse = FlashAttention.apply(q, k, v, *passes)
        return out, lse.masked_fill(lse == -INF, 0.0)

    def by_default(q, k, v):
        return operator(q, k, v, causal)[0]

    assert torch.autograd.gradcheck(tiled, tensors)
    assert torch.autograd.gradcheck(by_default, tensors)


@pytest.mark.parametrize("causal", [True, False])
def test_ragged_gradients(causal):
    lengths = [(0, 0), (1, 1), (17, 17), (5, 127), (127, 128), (64, 129), (1, 0), (1, 300)]
    *tensors, starts_q, starts_k = ragged(lengths, 3, 1, 32, torch.float32)
    grad_out, *_ = ragged(lengths, 3, 1, 32, torch.float32)
    grads = []
    for compute in (ragged_oracle, lambda *given: ragged_attention(*given, None, flash_attention)):
        leaves = [x.detach().clone().requires_grad_() for x in tensors]
        out, lse = compute(*leaves, starts_q, starts_k, causal)
        loss = (out * grad_out).sum() + lse.masked_fill(lse == -INF, 0.0).square().sum()
        grads.append(torch.autograd.grad(loss, leaves))
    for plain, tiled in zip(*grads, strict=True):
        torch.testing.assert_close(tiled, plain, rtol=1e-3, atol=1e-3)


def test_gradients_through_a_merge():
    tensors, grads, _ = inputs((4, 11, 2, 1, 8, False), torch.float64)
    q, k, v = tensors
    parts = [flash_attention(q, k[s], v[s], causal=False) for s in (slice(5), slice(5, None))]
    got = torch.autograd.grad(merge_states(*parts)[0], tensors, grads[0])
    want = wanted(tensors, (grads[0], torch.zeros_like(grads[1])), False)
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)  # the lse is float32


# ---------------------------------------------------------------------------------- the operator


@poisoned
@each_device
@each_dtype()
@pytest.mark.parametrize("backend", ["reference", "cuda"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_gradients_of_both_results(shape, backend, dtype, device):
    given, tensors, grads, causal = operands(shape, dtype, device, 0.3)
    with checked(device):
        got = attention_backward(*given, causal, 0.3, backend=backend)
        compare(got, wanted(tensors, grads, causal, 0.3), dtype)
        results = operator(*tensors, causal, 0.3, backend=backend)
        torch.autograd.backward(results, grads)
        compare([x.grad for x in tensors], wanted(tensors, grads, causal, 0.3), dtype)


@poisoned
@gpu_only
@each_dtype()
@pytest.mark.parametrize("shape", LARGE, ids=str)
def test_large_gradients(shape, dtype, device):
    tensors, grads, causal = inputs(shape, dtype, device)
    torch.autograd.backward(operator(*tensors, causal), grads)
    compare([x.grad for x in tensors], wanted(tensors, grads, causal), dtype)


@gpu_only
def test_both_passes_are_captured_in_a_cuda_graph(device):
    tensors, grads, _ = inputs((70, 90, 4, 2, 64, True), torch.float16, device)
    q, k, v = (x.detach() for x in tensors)

    def gradients():
        out, lse = attention_forward(q, k, v)
        delta = (grads[0].float() * out.float()).sum(-1) - grads[1]
        return attention_backward(grads[0], q, k, v, lse, delta)

    got, replay = captured(gradients)
    q.copy_(q.flip(0))
    replay()
    for one, other in zip(got, gradients(), strict=True):
        torch.testing.assert_close(one, other, rtol=0.0, atol=0.0)


@poisoned
@each_dtype()
@pytest.mark.parametrize("shape", SHAPES[1:6], ids=str)
def test_clean_at_any_address_and_the_same_in_any_order(shape, dtype):
    given, tensors, grads, causal = operands(shape, dtype)
    with checked():
        got = attention_backward(*map(shifted, given), causal, backend="cuda")
    compare(got, wanted(tensors, grads, causal), dtype)
    plain = same_in_each_order(lambda: attention_backward(*given, causal, backend="cuda"))
    assert all(map(same, got, plain))


def test_what_does_not_fit_is_named():
    (q, k, v), (grad_out, grad_lse), _ = inputs((3, 5, 4, 2, 8, True), torch.float32)
    good = {"grad_out": grad_out, "q": q, "k": k, "v": v, "lse": grad_lse, "delta": grad_lse}
    attention_backward(**good)
    bad = {
        "grad_out": grad_out[:, :2],
        "k": k[:, :, :4],
        "v": v[:4],
        "lse": grad_lse.double(),
        "delta": grad_lse[:2],
    }
    for name, tensor in bad.items():
        with pytest.raises((TypeError, ValueError), match=f"^{name} must"):
            attention_backward(**{**good, name: tensor})
    with pytest.raises(ValueError, match="q has 3 heads, not a multiple of the 2"):
        operator(q[:, :3], k, v)
    wide, row = torch.zeros(2, 1, 257), torch.zeros(2, 1)
    with pytest.raises(ValueError, match="head_dim may be up to 256"):
        attention_backward(*[wide] * 4, row, row, backend="cuda")


def test_gradients_of_gradients_are_refused():
    (q, k, v), _, _ = inputs((3, 5, 2, 2, 4, True), torch.float64)
    out, _ = operator(q, k, v)
    (grad,) = torch.autograd.grad(out.sum(), q, create_graph=True)
    with pytest.raises(NotImplementedError, match="attention_backward has no gradient here"):
        grad.sum().backward()


@pytest.mark.parametrize("backend", ["reference", "cuda"])
def test_compiled_as_one_graph(backend):
    (q, k, v), _, _ = inputs((6, 6, 2, 1, 16, True), torch.float32)

    def loss(q, k, v):
        return operator(q * 2, k, v, backend=backend)[0].square().sum()

    torch._dynamo.reset()
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    want = torch.autograd.grad(loss(q, k, v), (q, k, v))
    got = torch.autograd.grad(compiled(q, k, v), (q, k, v))
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one, other)
