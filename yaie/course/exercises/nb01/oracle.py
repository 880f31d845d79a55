"""Attention and rotation in float64, with a knob for every mistake that a check explains."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

NO_RETURN = "Did the function reach its end without `return`?"
NOT_GROUPED = (
    "With {heads} query heads and {kv} KV heads, {group} neighboring query heads share a KV head: "
    "query head h reads KV head h // {group}"
)


def kv_heads_of(heads: int, kv_heads: int) -> list[int]:
    """Which KV head each query head reads."""
    return [head * kv_heads // heads for head in range(heads)]


def visible(num_q: int, num_k: int, past: int) -> Tensor:
    """Query row i sees the keys 0 to i + past, bool `[num_q, num_k]`."""
    import torch

    return torch.tensor([[j <= i + past for j in range(num_k)] for i in range(num_q)])


def dense(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    scale: float | None = None,
    key_heads: Sequence[int] | None = None,
    value_heads: Sequence[int] | None = None,
    axis: int = 2,
    hidden: float = -math.inf,
    mask_after: bool = False,
) -> tuple[Tensor, Tensor]:
    """Output `[queries, heads, head_dim]` and log-sum-exp `[queries, heads]`, both float64.

    Scores are `[heads, queries, keys]`. The knobs: `axis` of the softmax, the score of a `hidden`
    key, `mask_after` the softmax, and which KV head each query head reads.
    """
    import torch

    heads, kv_heads, dim = q.shape[1], k.shape[1], q.shape[2]
    key_heads = kv_heads_of(heads, kv_heads) if key_heads is None else list(key_heads)
    value_heads = key_heads if value_heads is None else list(value_heads)
    scale = 1 / math.sqrt(dim) if scale is None else scale
    scores = torch.einsum("qhd,khd->hqk", q.double(), k.double()[:, key_heads]) * scale
    if mask is not None and not mask_after:
        scores = torch.where(mask, scores, hidden)
    weights = scores.softmax(dim=axis)
    if mask is not None and mask_after:
        weights = weights * mask
    out = torch.einsum("hqk,khd->qhd", weights, v.double()[:, value_heads])
    return out, scores.logsumexp(dim=2).T


def rotate(x: Tensor, positions: Sequence[int], base: float, sign: int = 1) -> Tensor:
    """Half-split rotation as a product of complex numbers, float64."""
    import torch

    half = x.shape[-1] // 2
    pairs = torch.complex(x[..., :half].double(), x[..., half:].double())
    turned = pairs * _phases(positions, half, base, sign)
    return torch.cat((turned.real, turned.imag), dim=-1)


def rotate_rounded(x: Tensor, positions: Sequence[int], base: float) -> Tensor:
    """As `rotate`, with cosines and sines rounded to float16."""
    import torch

    half = x.shape[-1] // 2
    first, second = x[..., :half].double(), x[..., half:].double()
    phases = _phases(positions, half, base, 1)
    c, s = phases.real.half().double(), phases.imag.half().double()
    return torch.cat((first * c - second * s, second * c + first * s), dim=-1)


def rotate_interleaved(x: Tensor, positions: Sequence[int], base: float) -> Tensor:
    """The other layout: components 2i and 2i + 1 are a pair."""
    import torch

    pairs = torch.complex(x[..., 0::2].double(), x[..., 1::2].double())
    turned = pairs * _phases(positions, x.shape[-1] // 2, base, 1)
    return torch.stack((turned.real, turned.imag), dim=-1).flatten(-2)


def _phases(positions: Sequence[int], half: int, base: float, sign: int) -> Tensor:
    import torch

    frequencies = [base ** (-i / half) for i in range(half)]
    angles = torch.tensor([[sign * p * f for f in frequencies] for p in positions]).double()
    return torch.polar(torch.ones_like(angles), angles).unsqueeze(1)


def tables(dim: int, positions: int, base: float) -> tuple[Tensor, Tensor]:
    """Cosines and sines `[positions, dim / 2]`, computed in float64, kept in float32."""
    phases = _phases(range(positions), dim // 2, base, 1).squeeze(1)
    return phases.real.float(), phases.imag.float()


def random_tensor(generator: Any, *shape: int) -> Tensor:
    import torch

    return torch.randn(shape, generator=generator)
