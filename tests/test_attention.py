"""Attention in all its forms, against loops in float64."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import examples, naive_attention, naive_rotary

from yaie.course.lessons.attention_block import RadixAttentionBlock
from yaie.course.lessons.ops.reference.flash import flash_attention
from yaie.ops.reference.attention import attention, causal_mask, merge_states, paged_attention
from yaie.ops.reference.online_softmax import OnlineSoftmax
from yaie.ops.reference.rotary import apply_rotary, rotary_tables

INF = math.inf
HEADS = [(1, 1), (3, 1), (3, 3), (8, 1), (9, 3), (8, 8)]
TOLERANCE = {
    torch.float64: 1e-12,
    torch.float32: 2e-5,
    torch.float16: 2e-3,
    torch.bfloat16: 2e-2,
}


def draw(*shape, dtype=torch.float32, seed=0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(hash((shape, seed)) % 2**31)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def qkv(num_q, num_k, heads=2, kv_heads=1, dim=8, dtype=torch.float32, seed=0):
    return (
        draw(num_q, heads, dim, dtype=dtype, seed=seed),
        draw(num_k, kv_heads, dim, dtype=dtype, seed=seed + 1),
        draw(num_k, kv_heads, dim, dtype=dtype, seed=seed + 2),
    )


def close(state, wanted, tolerance=2e-5, lse_tolerance=2e-5):
    """Compare outputs and log-sum-exps; equal infinities are equal, a NaN never is."""
    for got, want, tol in zip(state, wanted, (tolerance, lse_tolerance), strict=True):
        assert got.shape == want.shape
        torch.testing.assert_close(got.double(), want.double(), rtol=tol, atol=tol)


# ------------------------------------------------------------------------------------- dense


SIZES = [(q, k) for q in (0, 1, 17) for k in (0, 1, 17, 127, 129)] + [(127, 129), (129, 127)]


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("num_q", "num_k"), SIZES)
def test_dense_at_awkward_sizes(num_q, num_k, causal):
    q, k, v = qkv(num_q, num_k, 3, 1, 10)
    wanted = naive_attention(q, k, v, causal)
    state = attention(q, k, v, causal)
    close(state, wanted)
    assert state[0].dtype == q.dtype and state[1].dtype == torch.float32
    for tile in (1, 7, 64):
        close(flash_attention(q, k, v, causal, tile_q=tile, tile_k=tile), wanted)
    close(flash_attention(q, k, v, causal, tile_q=64, tile_k=7), wanted)


@pytest.mark.parametrize(("heads", "kv_heads"), HEADS)
@pytest.mark.parametrize("dim", [2, 64, 80])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_heads_sizes_and_dtypes(heads, kv_heads, dim, dtype):
    q, k, v = qkv(5, 19, heads, kv_heads, dim, dtype)
    wanted = naive_attention(q, k, v)
    tolerance = TOLERANCE[dtype]
    for state in (attention(q, k, v), flash_attention(q, k, v, tile_q=2, tile_k=7)):
        close(state, wanted, tolerance)
        assert state[0].dtype == dtype and state[1].dtype == torch.float32


def test_dense_is_torchs_attention():
    q, k, v = qkv(33, 33, 6, 2, 16, torch.float64)
    wanted = torch.nn.functional.scaled_dot_product_attention(
        *(x.transpose(0, 1).unsqueeze(0) for x in (q, k, v)), is_causal=True, enable_gqa=True
    )
    torch.testing.assert_close(attention(q, k, v)[0], wanted[0].transpose(0, 1))


def test_rows_with_nothing_to_see():
    q, k, v = qkv(5, 2)
    for out, lse in (attention(q, k, v), flash_attention(q, k, v, tile_q=2, tile_k=1)):
        assert out[:3].eq(0).all() and lse[:3].eq(-INF).all()
        assert out[3:].isfinite().all() and lse[3:].isfinite().all()
        assert torch.equal(out[3], v[0].expand(2, -1))  # one key: all the weight


def test_causal_mask_is_aligned_at_the_end():
    assert causal_mask(2, 4).tolist() == [[True, True, True, False], [True, True, True, True]]
    assert causal_mask(3, 2).tolist() == [[False, False], [True, False], [True, True]]


@pytest.mark.parametrize("scale", [1.0, 0.0, 3.5])
def test_scale(scale):
    q, k, v = qkv(4, 9)
    wanted = naive_attention(q, k, v, scale=scale)
    close(attention(q, k, v, scale=scale), wanted)
    close(flash_attention(q, k, v, scale=scale), wanted)


def test_scores_that_would_overflow_an_exponential():
    q, k, v = qkv(3, 40)
    state = naive_attention(q * 100, k * 100, v)
    assert state[1].abs().max() > 1000
    close(attention(q * 100, k * 100, v), state, 1e-4)
    close(flash_attention(q * 100, k * 100, v, tile_k=7), state, 1e-4)


@pytest.mark.parametrize("tiles", [{"tile_q": 0}, {"tile_k": -1}])
def test_tiles_below_one(tiles):
    with pytest.raises(ValueError, match="tile_q and tile_k must be at least 1"):
        flash_attention(*qkv(2, 2), **tiles)


# ------------------------------------------------------------------------------------- states


@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(0, 99), st.booleans())
@examples(60)
def test_online_softmax_in_any_tiles(tiles, seed, mask):
    num_k = sum(tiles)
    scores, values = draw(2, 3, num_k, seed=seed) * 5, draw(2, num_k, 4, seed=seed)
    if mask:
        scores[0, 1, : num_k // 2] = -INF
        scores[1, 2] = -INF
    state = OnlineSoftmax.empty((2, 3), 4, like=scores)
    start = 0
    for tile in tiles:
        state.update(scores[..., start : start + tile], values[:, start : start + tile])
        start += tile
    wanted = scores.double().softmax(-1).nan_to_num(0.0) @ values.double()
    close(state.finish(), (wanted, scores.double().logsumexp(-1)))


def test_online_softmax_of_nothing():
    out, lse = OnlineSoftmax.empty((2,), 3, like=torch.zeros(1)).finish()
    assert out.tolist() == [[0.0] * 3] * 2 and lse.tolist() == [-INF] * 2


@given(st.lists(st.integers(0, 12), min_size=3, max_size=3), st.integers(0, 99))
@examples(60)
def test_merged_parts_are_the_whole(sizes, seed):
    """In any order and any grouping, parts without keys included."""
    q, k, v = qkv(5, sum(sizes), 4, 2, 8, seed=seed)
    parts, start = [], 0
    for size in sizes:
        part = slice(start, start + size)
        parts.append(attention(q, k[part], v[part], causal=False))
        start += size
    a, b, c = parts
    wanted = naive_attention(q, k, v, causal=False)
    close(merge_states(merge_states(a, b), c), wanted)
    close(merge_states(a, merge_states(b, c)), wanted)
    close(merge_states(merge_states(c, a), b), wanted)


def test_merge_of_rows_with_nothing():
    state = attention(*qkv(3, 4))
    nothing = torch.zeros_like(state[0]), torch.full_like(state[1], -INF)
    close(merge_states(state, nothing), state, 0, 0)
    close(merge_states(nothing, state), state, 0, 0)
    close(merge_states(nothing, nothing), nothing, 0, 0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_merge_keeps_the_dtype(dtype):
    q, k, v = qkv(3, 20, dtype=dtype)
    merged = merge_states(
        attention(q, k[:7], v[:7], causal=False), attention(q, k[7:], v[7:], causal=False)
    )
    assert merged[0].dtype == dtype and merged[1].dtype == torch.float32
    close(merged, naive_attention(q, k, v, causal=False), TOLERANCE[dtype])


# ------------------------------------------------------------------------------------- paged


def paged_case(
    counts, lengths, block_size, heads=4, kv_heads=2, dim=8, dtype=torch.float32, seed=0
):
    """A ragged batch in shuffled blocks; whatever nobody may read is NaN, or points outside."""
    generator = torch.Generator().manual_seed(seed)
    needed = [-(-length // block_size) for length in lengths]
    num_blocks, width = sum(needed) + 3, max(needed, default=0) + 2
    order = torch.randperm(num_blocks, generator=generator).tolist()
    pools = [torch.full((num_blocks, block_size, kv_heads, dim), math.nan, dtype=dtype)] * 2
    pools = [pool.clone() for pool in pools]
    tables = torch.full((len(lengths), width), 10**6, dtype=torch.int32)
    queries, wanted = [], []
    for i, (count, length) in enumerate(zip(counts, lengths, strict=True)):
        q, k, v = qkv(count, length, heads, kv_heads, dim, dtype, seed=seed + 10 * i)
        for j in range(needed[i]):
            tables[i, j] = block = order.pop()
            part = slice(j * block_size, min((j + 1) * block_size, length))
            for pool, source in zip(pools, (k, v), strict=True):
                pool[block, : part.stop - part.start] = source[part]
        queries.append(q)
        wanted.append(naive_attention(q, k, v))
    starts = torch.tensor([0, *counts]).cumsum(0, dtype=torch.int32)
    lengths = torch.tensor(lengths, dtype=torch.int32)
    wanted = [torch.cat(parts) for parts in zip(*wanted, strict=True)]
    return (torch.cat(queries), *pools, tables, lengths, starts), wanted


MIXES = {
    "decode": ([1, 1, 1, 1], [1, 17, 33, 5]),
    "prefill": ([7, 1, 16, 33], [7, 1, 16, 33]),
    "chunks": ([3, 16, 2], [20, 17, 33]),
    "mixed": ([1, 9, 1, 4, 16, 1], [40, 9, 1, 21, 16, 16]),
    "one": ([1], [1]),
    "nothing new": ([0, 2, 0, 1], [5, 6, 0, 7]),
    "several tiles": ([65, 0, 129, 64], [65, 5, 300, 64]),
    "more queries than keys": ([170, 5], [100, 3]),
}


@pytest.mark.parametrize("block_size", [1, 4, 16])
@pytest.mark.parametrize("mix", MIXES)
def test_paged_attention_reads_only_what_it_should(mix, block_size):
    arguments, wanted = paged_case(*MIXES[mix], block_size)
    close(paged_attention(*arguments), wanted)
    flash = paged_attention(*arguments, attention=flash_attention)
    close(flash, wanted)


@pytest.mark.parametrize(("heads", "kv_heads"), HEADS)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_paged_heads_and_dtypes(heads, kv_heads, dtype):
    arguments, wanted = paged_case(*MIXES["mixed"], 4, heads, kv_heads, 80, dtype)
    state = paged_attention(*arguments)
    close(state, wanted, TOLERANCE[dtype])
    assert state[0].dtype == dtype and state[1].dtype == torch.float32


def test_paged_scale():
    arguments, _ = paged_case(*MIXES["mixed"], 4)
    zero, _ = paged_attention(*arguments, scale=0.0)
    one, _ = paged_attention(*arguments, scale=1.0)
    assert not torch.allclose(zero, one)
    q, key_pool, value_pool, tables, lengths, starts = arguments
    close(paged_attention(q * 8**0.5, key_pool, value_pool, tables, lengths, starts), (one, _))


@given(
    st.lists(st.tuples(st.integers(1, 12), st.integers(0, 40)), min_size=1, max_size=6),
    st.sampled_from([1, 4, 16]),
    st.integers(0, 99),
)
@examples(40)
def test_paged_attention_of_any_mix(sequences, block_size, seed):
    counts = [count for count, _ in sequences]
    lengths = [count + past for count, past in sequences]
    arguments, wanted = paged_case(counts, lengths, block_size, dim=4, seed=seed)
    close(paged_attention(*arguments), wanted)


def test_a_row_does_not_depend_on_its_neighbors():
    """To the rounding of float32, and with no other sequence's NaN in it."""
    (q, keys, values, tables, lengths, starts), _ = paged_case(*MIXES["mixed"], 4)
    together, _ = paged_attention(q, keys, values, tables, lengths, starts)
    for i, (start, end) in enumerate(zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)):
        alone, _ = paged_attention(
            q[start:end],
            keys,
            values,
            tables[i : i + 1],
            lengths[i : i + 1],
            torch.tensor([0, end - start], dtype=torch.int32),
        )
        torch.testing.assert_close(alone, together[start:end], rtol=1e-6, atol=1e-6)


def test_an_empty_batch():
    (q, keys, values, *_), _ = paged_case([1], [1], 4)
    nobody = torch.zeros(0, dtype=torch.int32)
    out, lse = paged_attention(
        q[:0], keys, values, nobody.view(0, 2), nobody, torch.zeros(1, dtype=torch.int32)
    )
    assert out.shape == (0, 4, 8) and lse.shape == (0, 4)


# ------------------------------------------------------------------------------------- rotary


@pytest.mark.parametrize("dim", [2, 64, 80])
@pytest.mark.parametrize("base", [10_000.0, 100_000.0])
def test_rotary_is_multiplication_by_complex_numbers(dim, base):
    positions = [0, 1, 2, 17, 100, 1023, 1023, 3]
    x = draw(len(positions), 3, dim, dtype=torch.float64)
    cos, sin = rotary_tables(dim, 1024, base)
    assert cos.dtype == sin.dtype == torch.float32 and cos.shape == sin.shape == (1024, dim // 2)
    # An angle of 1000 radians in float32 is right to 1000 * 2**-24.
    turned = apply_rotary(x, torch.tensor(positions), cos, sin)
    torch.testing.assert_close(turned, naive_rotary(x, positions, base), rtol=0, atol=1e-3)
    exact = positions.index(2) + 1
    near = naive_rotary(x[:exact], positions[:exact], base)
    torch.testing.assert_close(turned[:exact], near, rtol=0, atol=2e-6)
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1), rtol=1e-6, atol=1e-6)
    assert torch.equal(turned[0], x[0])


@given(st.integers(0, 200), st.integers(0, 200), st.integers(0, 300))
@examples(60)
def test_rotary_scores_depend_on_the_distance_only(a, b, shift):
    q, k = draw(1, 1, 32, dtype=torch.float64), draw(1, 1, 32, dtype=torch.float64, seed=1)
    cos, sin = (table.double() for table in rotary_tables(32, 512))

    def score(at_q, at_k):
        turned = (apply_rotary(x, torch.tensor([p]), cos, sin) for x, p in ((q, at_q), (k, at_k)))
        return torch.dot(*(x.flatten() for x in turned)).item()

    assert score(a, b) == pytest.approx(score(a + shift, b + shift), abs=1e-3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_rotary_of_half_precision_is_rounded_once(dtype):
    x, positions = draw(4, 2, 64, dtype=dtype), torch.tensor([0, 9, 5000, 8191])
    cos, sin = rotary_tables(64, 8192)
    turned = apply_rotary(x, positions, cos, sin)
    assert turned.dtype == dtype
    assert torch.equal(turned, apply_rotary(x.float(), positions, cos, sin).to(dtype))


def test_rotary_of_an_odd_head():
    with pytest.raises(ValueError, match="head_dim must be even, got 5"):
        rotary_tables(5, 8)


# ------------------------------------------------------------------------------------- module


def block(**options) -> RadixAttentionBlock:
    torch.manual_seed(0)
    return RadixAttentionBlock(24, 6, 8, max_position_embeddings=64, **options)


@pytest.mark.parametrize("kv_heads", [None, 2, 1])
@pytest.mark.parametrize("chunks", [[11], [1, 10], [4, 4, 3], [1] * 11])
@torch.inference_mode()
def test_block_in_chunks_is_the_whole(kv_heads, chunks):
    module = block(num_kv_heads=kv_heads)
    hidden = draw(2, 11, 24)
    whole = module(hidden)
    past, outputs, start = None, [], 0
    for chunk in chunks:
        out, weights, past = module(hidden[:, start : start + chunk], past, use_cache=True)
        assert weights is None
        outputs.append(out)
        start += chunk
        assert [t.shape for t in past] == [(2, start, kv_heads or 6, 8)] * 2
    torch.testing.assert_close(torch.cat(outputs, dim=1), whole, rtol=1e-5, atol=1e-6)


@torch.inference_mode()
def test_block_is_the_layer_of_transformers():
    llama = pytest.importorskip("transformers.models.llama.modeling_llama")
    from transformers import LlamaConfig

    config = LlamaConfig(
        hidden_size=24,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=64,
        attn_implementation="eager",
    )
    theirs, ours = llama.LlamaAttention(config, 0).eval(), block(num_kv_heads=2)
    theirs.load_state_dict(ours.state_dict())
    hidden = draw(2, 13, 24)
    positions = torch.arange(13).unsqueeze(0)
    mask = torch.full((13, 13), -INF).triu(1).expand(2, 1, 13, 13)
    rotary = llama.LlamaRotaryEmbedding(config)(hidden, positions)
    wanted, _ = theirs(hidden, position_embeddings=rotary, attention_mask=mask)
    torch.testing.assert_close(ours(hidden), wanted, rtol=1e-5, atol=1e-6)


@torch.inference_mode()
def test_block_in_half_precision_keeps_exact_angles():
    module = block()
    wanted = module(draw(1, 60, 24))
    half = module.to(torch.bfloat16)
    assert half.cos.dtype == torch.float32
    out = half(draw(1, 60, 24, dtype=torch.bfloat16))
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.float(), wanted, rtol=0, atol=2e-2)


def test_block_names_what_does_not_fit():
    with pytest.raises(ValueError, match="num_heads must be a multiple of num_kv_heads"):
        block(num_kv_heads=4)
    with pytest.raises(ValueError, match="hidden_states: 60 past and 5 new tokens exceed"):
        past = draw(1, 60, 6, 8)
        block()(draw(1, 5, 24), (past, past))
