"""Attention of ragged batches, dense and in tiles, forward and backward, against float64."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from oracles import naive_attention

from yaie.course.lessons.ops.reference.flash import (
    FlashAttention,
    flash_attention,
    flash_backward,
    flash_forward,
    hidden_keys,
    key_tiles,
)
from yaie.ops.reference.attention import attention, merge_states, ragged_attention
from yaie.ops.reference.online_softmax import safe_softmax

INF = math.inf
HEADS = [(1, 1), (3, 1), (9, 3), (8, 1)]
HEAD_DIMS = [32, 64, 80, 128, 256]
LENGTHS = [0, 1, 17, 127, 128, 129, 1000]


def qkv(num_q, num_k, heads=2, kv_heads=1, dim=8, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shapes = (num_q, heads, dim), (num_k, kv_heads, dim), (num_k, kv_heads, dim)
    return [torch.randn(s, generator=generator, dtype=torch.float64).to(dtype) for s in shapes]


def close(state, wanted, tolerance=2e-5):
    """Compare outputs and log-sum-exps; equal infinities are equal, a NaN never is."""
    for got, want in zip(state, wanted, strict=True):
        assert got.shape == want.shape
        torch.testing.assert_close(got.double(), want.double(), rtol=tolerance, atol=tolerance)


def starts(lengths) -> torch.Tensor:
    return torch.tensor([0, *lengths]).cumsum(0, dtype=torch.int32)


def naive_ragged(q, k, v, counts, lengths, causal=True, scale=None):
    parts = zip(q.split(counts), k.split(lengths), v.split(lengths), strict=True)
    states = [naive_attention(*part, causal, scale) for part in parts]
    return [torch.cat(tensors) for tensors in zip(*states, strict=True)]


# ------------------------------------------------------------------------------------- ragged

RAGGED = {
    "prefill": (LENGTHS, LENGTHS),
    "decode": ([1] * len(LENGTHS), LENGTHS),  # the first has nothing to see
    "chunks": ([0, 1, 17, 5, 127, 64, 100], LENGTHS),
    "more queries than keys": ([3, 0, 19, 130], [0, 5, 17, 127]),
}


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("mix", RAGGED)
def test_ragged(mix, causal):
    counts, lengths = RAGGED[mix]
    q, k, v = qkv(sum(counts), sum(lengths), 2, 1, 16)
    ends = starts(counts), starts(lengths)
    wanted = naive_ragged(q, k, v, counts, lengths, causal)
    tiles = partial(flash_attention, tile_q=64, tile_k=96)
    for state in (
        ragged_attention(q, k, v, *ends, causal),
        ragged_attention(q, k, v, *ends, causal, attention=tiles),
    ):
        close(state, wanted)
        assert state[0].dtype == q.dtype and state[1].dtype == torch.float32


@pytest.mark.parametrize("dim", HEAD_DIMS)
@pytest.mark.parametrize(("heads", "kv_heads"), HEADS)
def test_ragged_heads_and_sizes(heads, kv_heads, dim):
    counts, lengths = [3, 0, 1, 17], [17, 1, 33, 5]
    q, k, v = qkv(sum(counts), sum(lengths), heads, kv_heads, dim)
    ends = starts(counts), starts(lengths)
    for compute in (attention, partial(flash_attention, tile_q=5, tile_k=8)):
        state = ragged_attention(q, k, v, *ends, attention=compute)
        close(state, naive_ragged(q, k, v, counts, lengths))
        assert state[1][-17:-5].eq(-INF).all() and state[0][-17:-5].eq(0).all()


def test_ragged_scale_and_batch_of_none():
    q, k, v = qkv(4, 9)
    ends = starts([4]), starts([9])
    close(ragged_attention(q, k, v, *ends, scale=0.0), naive_attention(q, k, v, scale=0.0))
    out, lse = ragged_attention(q[:0], k[:0], v[:0], starts([]), starts([]))
    assert out.shape == (0, 2, 8) and lse.shape == (0, 2)


# ------------------------------------------------------------------------------------- tiles


@pytest.mark.parametrize("num_k", [0, 1, 7, 16, 17])
@pytest.mark.parametrize("tile_k", [1, 4, 16, 32])
def test_key_tiles_against_the_mask(num_k, tile_k):
    """Every tile is where the mask of all queries and keys says that it must be."""
    tiles = [range(s, min(s + tile_k, num_k)) for s in range(0, num_k, tile_k)]
    for first in range(-3, num_k):
        for last in range(first, num_k):
            whole, seen = key_tiles(first, last, num_k, tile_k)
            assert 0 <= whole <= seen <= len(tiles)
            for j, tile in enumerate(tiles):
                hidden = hidden_keys(range(first, last + 1), tile)
                assert bool(hidden.all()) == (j >= seen)
                assert (not hidden.any()) == (j < whole)
            assert key_tiles(first, last, num_k, tile_k, causal=False) == (len(tiles),) * 2


@pytest.mark.parametrize("dim", HEAD_DIMS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_flash_dtypes(dim, dtype):
    q, k, v = qkv(70, 129, 3, 1, dim, dtype)
    out, lse = flash_attention(q, k, v, tile_q=32, tile_k=48)
    wanted = naive_attention(q, k, v)
    tolerance = {torch.float32: 2e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}[dtype]
    torch.testing.assert_close(out.double(), wanted[0], rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(lse.double(), wanted[1], rtol=2e-5, atol=2e-5)
    assert out.dtype == dtype and lse.dtype == torch.float32


# ------------------------------------------------------------------------------------- gradients

SHAPES = [(4, 4, 2, 2), (5, 9, 3, 1), (1, 6, 4, 2), (6, 3, 2, 1), (3, 0, 2, 1), (0, 3, 2, 1)]


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("num_q", "num_k", "heads", "kv_heads"), SHAPES)
def test_gradcheck(num_q, num_k, heads, kv_heads, causal):
    """Of the output and of the log-sum-exp, which a merge of parts needs as well."""
    inputs = [x.requires_grad_() for x in qkv(num_q, num_k, heads, kv_heads, 3, torch.float64)]

    options = {"causal": causal, "scale": 0.7, "tile_q": 2, "tile_k": 3}
    passes = [partial(function, **options) for function in (flash_forward, flash_backward)]

    def compute(q, k, v):
        out, lse = FlashAttention.apply(q, k, v, *passes)
        return out, lse.masked_fill(lse == -INF, 0.0)

    assert torch.autograd.gradcheck(compute, inputs)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("mix", ["decode", "chunks"])
def test_ragged_gradients(mix, causal):
    counts, lengths = RAGGED[mix]
    ends = starts(counts), starts(lengths)
    grads = []
    for compute in (attention, flash_attention):
        inputs = [x.requires_grad_() for x in qkv(sum(counts), sum(lengths), 3, 1, 32)]
        out, lse = ragged_attention(*inputs, *ends, causal, attention=compute)
        grad_out = qkv(sum(counts), 1, 3, 1, 32, seed=1)[0]
        loss = (out * grad_out).sum() + lse.masked_fill(lse == -INF, 0.0).square().sum()
        grads.append(torch.autograd.grad(loss, inputs))
    for dense, tiled in zip(*grads, strict=True):
        assert tiled.isfinite().all() and tiled.dtype == dense.dtype
        torch.testing.assert_close(tiled, dense, rtol=1e-3, atol=1e-3)


def test_gradients_through_a_merge():
    inputs = [x.requires_grad_() for x in qkv(4, 11, 2, 1, 8, torch.float64)]
    q, k, v = inputs
    grad_out = torch.randn(4, 2, 8, generator=torch.Generator().manual_seed(1)).double()
    whole, _ = attention(q, k, v, causal=False)
    wanted = torch.autograd.grad((whole * grad_out).sum(), inputs)
    parts = [flash_attention(q, k[s], v[s], causal=False) for s in (slice(5), slice(5, None))]
    got = torch.autograd.grad((merge_states(*parts)[0] * grad_out).sum(), inputs)
    for one, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)  # the lse is float32


def test_gradients_keep_the_dtype():
    inputs = [x.requires_grad_() for x in qkv(4, 9, 2, 1, 8, torch.bfloat16)]
    grads = torch.autograd.grad(flash_attention(*inputs)[0].sum(), inputs)
    assert [g.dtype for g in grads] == [torch.bfloat16] * 3


# ------------------------------------------------------------------------------------- softmax


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=str)
def test_safe_softmax(dtype):
    scores = torch.tensor([[1.0, 2.0, -INF], [-INF] * 3, [3e4, 3e4, -3e4]], dtype=dtype)
    weights, lse = safe_softmax(scores)
    wanted = scores.double().softmax(-1).nan_to_num(0.0)
    assert weights.dtype == lse.dtype == dtype
    close((weights, lse), (wanted, scores.double().logsumexp(-1)), 2e-3)
    assert safe_softmax(scores[:, :0])[1].tolist() == [-INF] * 3
