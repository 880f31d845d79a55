"""Attention of ragged batches, dense and in tiles, forward and backward, against float64."""

from __future__ import annotations

import math

import pytest
import torch
from oracles import naive_attention

from yaie.attention import ragged_attention

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
    out, lse = state = ragged_attention(q, k, v, starts(counts), starts(lengths), causal)
    close(state, naive_ragged(q, k, v, counts, lengths, causal))
    assert out.dtype == q.dtype and lse.dtype == torch.float32


@pytest.mark.parametrize("dim", HEAD_DIMS)
@pytest.mark.parametrize(("heads", "kv_heads"), HEADS)
def test_ragged_heads_and_sizes(heads, kv_heads, dim):
    counts, lengths = [3, 0, 1, 17], [17, 1, 33, 5]
    q, k, v = qkv(sum(counts), sum(lengths), heads, kv_heads, dim)
    state = ragged_attention(q, k, v, starts(counts), starts(lengths))
    close(state, naive_ragged(q, k, v, counts, lengths))
    assert state[1][-17:-5].eq(-INF).all() and state[0][-17:-5].eq(0).all()


def test_ragged_scale_and_batch_of_none():
    q, k, v = qkv(4, 9)
    ends = starts([4]), starts([9])
    close(ragged_attention(q, k, v, *ends, scale=0.0), naive_attention(q, k, v, scale=0.0))
    out, lse = ragged_attention(q[:0], k[:0], v[:0], starts([]), starts([]))
    assert out.shape == (0, 2, 8) and lse.shape == (0, 2)
