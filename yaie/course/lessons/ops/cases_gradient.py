"""The case of the gradients of attention, with its peer."""

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from yaie.bench.cases import Case, Draw, itemsize
from yaie.bench.cases_attention import attention_flops
from yaie.bench.protocol import Call
from yaie.course.lessons.ops.reference.attention import attention


def gradients(heads: int, tokens: int, head_dim: int, dtype: torch.dtype) -> Case:
    """Of q, k and v of one causal sequence over itself, every head with its own K and V."""
    count = tokens * heads * head_dim
    rows = tokens * heads * 4  # bytes of log-sum-exp, and of delta

    def arguments(draw: Draw) -> tuple:
        grad_out, q, k, v = (draw.normal(tokens, heads, head_dim) for _ in range(4))
        out, lse = attention(q, k, v)
        delta = (grad_out.float() * out.float()).sum(-1)
        return grad_out, q, k, v, lse, delta, True, None

    return Case(
        "attention_backward", f"B1 H{heads} S{tokens} d{head_dim} causal", arguments,
        7 * count * itemsize(dtype) + 2 * rows,
        5 * attention_flops(1, heads, tokens, tokens, head_dim, causal=True) // 2,
        oracle=_exact, compiled=False,
        peers={"SDPA, FlashAttention-2": _sdpa},
        kernels={"SDPA, FlashAttention-2": "flash"},
    )  # fmt: skip


def _exact(grad_out, q, k, v, lse, delta, causal, scale) -> tuple:
    """In float64 with every weight in memory, a head at a time."""
    tokens, heads, head_dim = q.shape
    found = [torch.empty(q.shape, dtype=torch.float64, device=q.device) for _ in "qkv"]
    hidden = torch.ones(tokens, tokens, dtype=torch.bool, device=q.device).triu(1)
    scale = head_dim**-0.5
    for head in range(heads):
        of_grad, of_q, of_k, of_v = (x[:, head].double() for x in (grad_out, q, k, v))
        weights = (of_q @ of_k.T * scale - lse[:, head, None].double()).exp()
        weights = weights.masked_fill(hidden, 0.0)
        of_scores = weights * (of_grad @ of_v.T - delta[:, head, None].double()) * scale
        results = (of_scores @ of_k, of_scores.T @ of_q, weights.T @ of_grad)
        for target, result in zip(found, results, strict=True):
            target[:, head] = result
    return tuple(found)


def _sdpa(grad_out, q, k, v, lse, delta, causal, scale) -> Call:
    """torch's FlashAttention-2: the backward pass alone, of a forward pass that was run before."""
    leaves = [x.transpose(0, 1).unsqueeze(0).detach().requires_grad_() for x in (q, k, v)]
    with torch.enable_grad(), sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        out = F.scaled_dot_product_attention(*leaves, is_causal=True)
    gradient = grad_out.transpose(0, 1).unsqueeze(0)

    def call() -> tuple:
        found = torch.autograd.grad(out, leaves, gradient, retain_graph=True)
        return tuple(x[0].transpose(0, 1) for x in found)

    return call
