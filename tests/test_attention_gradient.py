"""Attention with gradients: gradcheck, and every back end against float64 autograd.

What is expected of the gradients is what autograd says of attention written naively, in float64,
by a function that shares no code with the ones under test.
"""

from __future__ import annotations

import pytest
import torch

from yaie.build import jit
from yaie.course.lessons.ops.attention_gradient import attention_backward, flash_attention
from yaie.emulator import settings
from yaie.ops.attention import attention_forward
from yaie.ops.cuda.launching import SUFFIXES

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
has_gpu = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU"),
]
each_dtype = pytest.mark.parametrize("dtype", SUFFIXES, ids=SUFFIXES.get)


def inputs(shape, dtype, device="cpu", seed=0):
    """q, k and v that want a gradient, gradients of out and of lse, and whether it is causal."""
    num_q, num_k, heads, kv_heads, head_dim, causal = shape
    generator = torch.Generator().manual_seed(seed)

    def draw(*sizes):
        return torch.randn(*sizes, generator=generator, dtype=torch.float64).to(device, dtype)

    q = draw(num_q, heads, head_dim)
    k, v = draw(num_k, kv_heads, head_dim), draw(num_k, kv_heads, head_dim)
    grads = draw(num_q, heads, head_dim), draw(num_q, heads).float()
    return [x.requires_grad_() for x in (q, k, v)], grads, causal


def naive(q, k, v, causal, scale=None):
    """Output and log-sum-exp, with every score in memory."""
    group = q.shape[1] // k.shape[1]
    scale = q.shape[2] ** -0.5 if scale is None else scale
    k, v = (x.repeat_interleave(group, dim=1) for x in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q, k) * scale
    if causal:
        seen = torch.ones(len(q), len(k), dtype=torch.bool).tril(len(k) - len(q))
        scores = scores.masked_fill(~seen.to(q.device), -1e30)  # finite: its gradient is 0
        weights = scores.softmax(-1) * seen.to(q.device)
    else:
        weights = scores.softmax(-1)
    return torch.einsum("hqk,khd->qhd", weights, v), scores.logsumexp(-1).T


def wanted(tensors, grads, causal, scale=None):
    """The gradients of q, k and v in float64; rows that see nothing have none."""
    leaves = [x.detach().double().requires_grad_() for x in tensors]
    (num_q, num_k) = (len(x) for x in tensors[:2])
    out, lse = naive(*leaves, causal, scale)
    blind = torch.arange(num_q, device=out.device) < (num_q - num_k if causal else 0)
    blind |= torch.tensor(num_k == 0, device=out.device)
    grad_out, grad_lse = (g.double().clone() for g in grads)
    grad_out[blind], grad_lse[blind] = 0.0, 0.0
    if num_k == 0 or num_q == 0:
        return [torch.zeros_like(x) for x in leaves]
    return torch.autograd.grad((out, lse), leaves, (grad_out, grad_lse))


def compare(got, want, dtype):
    for name, one, other in zip("qkv", got, want, strict=True):
        assert one.dtype == dtype
        scale = max(1.0, other.abs().max().item() if other.numel() else 0.0)
        error = (one.double() - other).abs().max().item() / scale if other.numel() else 0.0
        assert error <= TOLERANCE[dtype], f"gradient of {name} is off by {error:.1e}"


@pytest.mark.parametrize("shape", [(3, 5, 4, 2, 3, True), (5, 3, 2, 1, 2, True),
                                   (4, 4, 1, 1, 5, False)], ids=str)  # fmt: skip
@pytest.mark.parametrize("scale", [None, 0.7])
def test_gradcheck(shape, scale):
    tensors, _, causal = inputs(shape, torch.float64)

    def output(q, k, v):
        return flash_attention(q, k, v, causal, scale)[0]

    assert torch.autograd.gradcheck(output, tensors)


@each_dtype
@pytest.mark.parametrize("backend", ["reference", "cuda"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_gradients_of_both_results(shape, backend, dtype):
    tensors, grads, causal = inputs(shape, dtype)
    results = flash_attention(*tensors, causal, 0.3, backend="reference")
    saved = [x.detach() for x in (*tensors, *results)]
    q, k, v, out, lse = saved
    delta = (grads[0].float() * out.float()).sum(-1) - grads[1]
    got = attention_backward(grads[0], q, k, v, lse, delta, causal, 0.3, backend=backend)
    compare(got, wanted(tensors, grads, causal, 0.3), dtype)
    torch.autograd.backward(results, grads)
    compare([x.grad for x in tensors], wanted(tensors, grads, causal, 0.3), dtype)


@each_dtype
@pytest.mark.parametrize("shape", LARGE, ids=str)
@pytest.mark.parametrize("device", [pytest.param("cuda", marks=has_gpu)])
def test_gradients_on_a_gpu(shape, dtype, device):
    tensors, grads, causal = inputs(shape, dtype, device)
    results = flash_attention(*tensors, causal)
    torch.autograd.backward(results, grads)
    compare([x.grad for x in tensors], wanted(tensors, grads, causal), dtype)


@pytest.mark.parametrize("device", [pytest.param("cuda", marks=has_gpu)])
def test_both_passes_are_captured_in_a_cuda_graph(device):
    tensors, grads, _ = inputs((70, 90, 4, 2, 64, True), torch.float16, device)
    q, k, v = (x.detach() for x in tensors)

    def gradients():
        out, lse = attention_forward(q, k, v)
        delta = (grads[0].float() * out.float()).sum(-1) - grads[1]
        return attention_backward(grads[0], q, k, v, lse, delta)

    gradients()  # compiles
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = gradients()
    q.copy_(q.flip(0))
    graph.replay()
    for one, other in zip(captured, gradients(), strict=True):
        torch.testing.assert_close(one, other, rtol=0.0, atol=0.0)


# ---------------------------------------------------------------------------------- the launcher


def launch(shape, dtype, checked=False, move=lambda x: x):
    """The gradients as the launcher left them in memory that held NaN."""
    tensors, grads, causal = inputs(shape, dtype)
    out, lse = attention_forward(*(x.detach() for x in tensors), causal, backend="reference")
    delta = (grads[0].float() * out.float()).sum(-1) - grads[1]
    given = [move(x.detach()) for x in (grads[0], *tensors, lse, delta)]
    got = [move(torch.full_like(x, torch.nan, requires_grad=False)) for x in tensors]
    num_q, num_k, *sizes, _ = shape
    module = jit.load("flash/backward.cu", checked)
    getattr(module, f"attention_backward_{SUFFIXES[dtype]}")(
        *given, *got, num_q, num_k, *sizes, shape[4] ** -0.5, int(causal)
    )
    assert not checked or not (num_q or num_k) or module.report.clean, module.report
    compare(got, wanted(tensors, grads, causal), dtype)
    return got


def shifted(x):
    """The same, an element behind an address that is a multiple of 16."""
    room = torch.empty(x.numel() + 1, dtype=x.dtype, device=x.device)
    return room[1:].view(x.shape).copy_(x)


@each_dtype
@pytest.mark.parametrize("shape", SHAPES[1:6], ids=str)
def test_clean_at_any_address_and_the_same_in_any_order(shape, dtype):
    forward = launch(shape, dtype, checked=True, move=shifted)
    for order, seed in (("reverse", 0), ("random", 1)):
        with settings(order=order, seed=seed):
            assert all(map(torch.equal, forward, launch(shape, dtype)))


@each_dtype
def test_nothing_to_do(dtype):
    for shape in SHAPES[7:9]:
        launch(shape, dtype, checked=True)


# ----------------------------------------------------------------------------------- the function


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
        flash_attention(q[:, :3], k, v)
    with pytest.raises(ValueError, match="head_dim may be up to 256"):
        wide = torch.zeros(2, 1, 257)
        row = torch.zeros(2, 1)
        attention_backward(*[wide] * 4, row, row, backend="cuda")


def test_gradients_of_gradients_are_refused():
    (q, k, v), _, _ = inputs((3, 5, 2, 2, 4, True), torch.float64)
    out, _ = flash_attention(q, k, v)
    (grad,) = torch.autograd.grad(out.sum(), q, create_graph=True)
    with pytest.raises(NotImplementedError, match="attention_backward has no gradient here"):
        grad.sum().backward()


@pytest.mark.parametrize("backend", ["reference", "cuda"])
def test_compiled_as_one_graph(backend):
    (q, k, v), _, _ = inputs((6, 6, 2, 1, 16, True), torch.float32)

    def loss(q, k, v):
        return flash_attention(q * 2, k, v, backend=backend)[0].square().sum()

    torch._dynamo.reset()
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    want = torch.autograd.grad(loss(q, k, v), (q, k, v))
    got = torch.autograd.grad(compiled(q, k, v), (q, k, v))
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one, other)
