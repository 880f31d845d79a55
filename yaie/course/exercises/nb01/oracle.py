"""Attention and rotation in float64, and what the exercises of notebook 01 share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from yaie.course.core.observe import Observer, short


def kv_heads_of(heads: int, kv_heads: int) -> list[int]:
    """Which KV head each query head reads."""
    return [head * kv_heads // heads for head in range(heads)]


def visible(num_q: int, num_k: int, past: int) -> Tensor:
    """Query row i sees the keys 0 to i + past, bool `[num_q, num_k]`."""
    return torch.tensor([[j <= i + past for j in range(num_k)] for i in range(num_q)])


def dense(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    scale: float | None = None,
    key_heads: Sequence[int] | None = None,
) -> tuple[Tensor, Tensor]:
    """Output `[queries, heads, head_dim]` and log-sum-exp `[queries, heads]`, both float64."""
    heads, kv_heads, dim = q.shape[1], k.shape[1], q.shape[2]
    readers = kv_heads_of(heads, kv_heads) if key_heads is None else list(key_heads)
    scale = 1 / math.sqrt(dim) if scale is None else scale
    scores = torch.einsum("qhd,khd->hqk", q.double(), k.double()[:, readers]) * scale
    if mask is not None:
        scores = torch.where(mask, scores, -math.inf)
    out = torch.einsum("hqk,khd->qhd", scores.softmax(dim=2), v.double()[:, readers])
    return out, scores.logsumexp(dim=2).T


def rotate(x: Tensor, positions: Sequence[int], base: float) -> Tensor:
    """Half-split rotation as a product of complex numbers, float64."""
    half = x.shape[-1] // 2
    pairs = torch.complex(x[..., :half].double(), x[..., half:].double())
    turned = pairs * _phases(positions, half, base)
    return torch.cat((turned.real, turned.imag), dim=-1)


def _phases(positions: Sequence[int], half: int, base: float) -> Tensor:
    frequencies = [base ** (-i / half) for i in range(half)]
    angles = torch.tensor([[p * f for f in frequencies] for p in positions]).double()
    return torch.polar(torch.ones_like(angles), angles).unsqueeze(1)


def tables(dim: int, positions: int, base: float) -> tuple[Tensor, Tensor]:
    """Cosines and sines `[positions, dim / 2]`, computed in float64, kept in float32."""
    phases = _phases(range(positions), dim // 2, base).squeeze(1)
    return phases.real.float(), phases.imag.float()


def random_tensor(generator: Any, *shape: int) -> Tensor:
    return torch.randn(shape, generator=generator)


def see_parts(see: Observer, call: str, got: Any, count: int, parts: str) -> tuple:
    """What a call returned, if it is a tuple of `count` values; otherwise the case ends."""
    is_right = isinstance(got, tuple) and len(got) == count
    came = f"{len(got)} values" if isinstance(got, tuple) else short(got)
    see.note(call, came, "" if is_right else f"returned {came}, expected {parts}")
    if not is_right:
        see.stop()
    return got


def heads_in_words(heads: int, kv_heads: int, head_dim: int) -> str:
    plural = ["" if count == 1 else "s" for count in (heads, kv_heads)]
    counts = f"{heads} query head{plural[0]}, {kv_heads} KV head{plural[1]}"
    return f"{counts}, head_dim {head_dim}"
