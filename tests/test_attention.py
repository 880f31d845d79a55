"""What attention is made of: masks, tiles, partial states, rotary embedding, and a whole block.

`test_flash_kernels` and `test_paged_rungs` compare every implementation of attention.
"""

import math

import pytest
import torch
from attention_cases import ROW, Shape, batch, close, paged_oracle
from hypothesis import given
from hypothesis import strategies as st
from launches import HALVES, each_dtype
from oracles import examples, naive_attention, naive_rotary

from yaie.course.lessons.attention_block import RadixAttentionBlock
from yaie.course.lessons.online_softmax import OnlineSoftmax, merge_states
from yaie.course.lessons.ops.reference.flash import flash_attention, hidden_keys, key_tiles
from yaie.ops.reference.attention import attention, causal_mask, paged_attention
from yaie.ops.reference.online_softmax import safe_softmax
from yaie.ops.reference.rotary import apply_rotary, rotary_tables

INF = math.inf


def draw(*shape, dtype=torch.float32, seed=0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(hash((shape, seed)) % 2**31)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def qkv(num_q, num_k, heads=2, kv_heads=1, dim=8, dtype=torch.float32, seed=0):
    shapes = (num_q, heads, dim), *[(num_k, kv_heads, dim)] * 2
    return [draw(*shape, dtype=dtype, seed=seed + i) for i, shape in enumerate(shapes)]


# ------------------------------------------------------------------------------------- dense


def test_dense_is_torchs_attention():
    q, k, v = qkv(33, 33, 6, 2, 16, torch.float64)
    wanted = torch.nn.functional.scaled_dot_product_attention(
        *(x.transpose(0, 1).unsqueeze(0) for x in (q, k, v)), is_causal=True, enable_gqa=True
    )
    torch.testing.assert_close(attention(q, k, v)[0], wanted[0].transpose(0, 1))


def test_causal_mask_is_aligned_at_the_end():
    assert causal_mask(2, 4).tolist() == [[True, True, True, False], [True, True, True, True]]
    assert causal_mask(3, 2).tolist() == [[False, False], [True, False], [True, True]]


@pytest.mark.parametrize("tiles", [{"tile_q": 0}, {"tile_k": -1}])
def test_tiles_below_one(tiles):
    with pytest.raises(ValueError, match="tile_q and tile_k must be at least 1"):
        flash_attention(*qkv(2, 2), **tiles)


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


# ------------------------------------------------------------------------------------- states


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=str)
def test_safe_softmax(dtype):
    scores = torch.tensor([[1.0, 2.0, -INF], [-INF] * 3, [3e4, 3e4, -3e4]], dtype=dtype)
    weights, lse = safe_softmax(scores)
    wanted = scores.double().softmax(-1).nan_to_num(0.0)
    assert weights.dtype == lse.dtype == dtype
    torch.testing.assert_close(weights.double(), wanted, rtol=2e-3, atol=2e-3)
    lse_wanted = scores.double().logsumexp(-1)
    torch.testing.assert_close(lse.double(), lse_wanted, rtol=2e-3, atol=2e-3)
    assert safe_softmax(scores[:, :0])[1].tolist() == [-INF] * 3


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
    for parts, whole in (
        ((state, nothing), state),
        ((nothing, state), state),
        ((nothing, nothing), nothing),
    ):
        assert all(map(torch.equal, merge_states(*parts), whole))


@each_dtype(HALVES)
def test_merge_keeps_the_dtype(dtype):
    q, k, v = qkv(3, 20, dtype=dtype)
    parts = [attention(q, k[s], v[s], causal=False) for s in (slice(7), slice(7, None))]
    merged = merge_states(*parts)
    assert merged[0].dtype == dtype
    close(merged, naive_attention(q, k, v, causal=False), total=2 * ROW[dtype])


# ------------------------------------------------------------------------------------- paged


@given(
    st.lists(st.tuples(st.integers(1, 12), st.integers(0, 40)), min_size=1, max_size=6),
    st.sampled_from([1, 4, 16]),
)
@examples(40)
def test_paged_attention_of_any_mix(sequences, block_size):
    queries, contexts = tuple(count for count, _ in sequences), tuple(map(sum, sequences))
    operands = batch(Shape(contexts, 4, 2, 4, block_size, queries), torch.float32)
    close(paged_attention(*operands), paged_oracle(*operands))


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


@each_dtype(HALVES)
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
