"""The rungs of flash attention against float64: on the emulator, and on the GPU if there is one.

Results hold NaN before a kernel runs, and so do the parts of a pool that no sequence has; entries
of block tables beyond a context point outside.
"""

from __future__ import annotations

import math
from itertools import accumulate, product

import pytest
import torch
from oracles import naive_attention

from yaie.build import jit
from yaie.emulator import settings
from yaie.ops.attention import attention_forward, paged_attention_forward
from yaie.ops.cuda import flash
from yaie.ops.cuda.flash import RUNGS, Sequences
from yaie.ops.reference import attention
from yaie.ops.registry import Unsupported

has_gpu = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU"),
]
each_device = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=has_gpu)])
each_rung = pytest.mark.parametrize("rung", RUNGS)
# Largest ‖out − wanted‖ / ‖wanted‖.
TOLERANCE = {torch.float32: 3e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}
DTYPES = {name: list(TOLERANCE)[name == "mma" :] for name in RUNGS}
MOST_DIM = {"row": 256, "shared_tile": 128, "mma": 128}
each_dtype = pytest.mark.parametrize(
    ("rung", "dtype"),
    [pytest.param(r, d, id=f"{r}-{str(d)[6:]}") for r, dtypes in DTYPES.items() for d in dtypes],
)
Lengths = list[tuple[int, int]]  # queries and keys of each sequence

LENGTHS: dict[str, Lengths] = {
    "prompts": [(n, n) for n in (0, 1, 17, 33, 63, 64, 65)],
    "chunks": [(1, 40), (17, 130), (64, 64), (3, 3), (0, 9), (5, 0), (20, 10)],
    "one": [(1, 1)],
    "nobody": [(0, 0), (0, 0)],
    "no keys": [(3, 0)],
}
LONG: Lengths = [(700, 700), (1, 1000), (0, 0), (257, 1023), (256, 256), (300, 20), (0, 500)]


@pytest.fixture(autouse=True)
def poison(monkeypatch):
    """Fill memory that is about to be handed to a kernel with NaN."""
    torch.manual_seed(0)
    new_empty = torch.Tensor.new_empty
    monkeypatch.setattr(
        torch.Tensor, "new_empty", lambda *a, **options: new_empty(*a, **options).fill_(math.nan)
    )


def close(got: tuple, wanted: tuple, dtype: torch.dtype) -> None:
    """Same shape, every element written, and near: by norm, and each element."""
    assert got[0].dtype == dtype and got[1].dtype == torch.float32
    for one, other in zip(got, wanted, strict=True):
        one, other = one.cpu().double(), other.cpu().double()
        assert one.shape == other.shape and not one.isnan().any()
        infinite = other.isinf()
        assert torch.equal(one[infinite], other[infinite])
        one, other = one.masked_fill(infinite, 0.0), other.masked_fill(infinite, 0.0)
        tolerance = TOLERANCE[dtype]
        assert (one - other).norm() <= tolerance * other.norm() + 1e-12
        torch.testing.assert_close(one, other, rtol=30 * tolerance, atol=10 * tolerance)


def starts(counts, device) -> torch.Tensor:
    return torch.tensor([0, *accumulate(counts)], dtype=torch.int32, device=device)


def exact(q, k, v, causal=True, scale=None) -> tuple:
    """Attention in float64; on a GPU by matrices, for long sequences."""
    if not q.is_cuda:
        return naive_attention(q, k, v, causal, scale)
    q, k, v = q.double(), k.double(), v.double()
    scores = torch.einsum("qhd,khd->hqk", q, k.repeat_interleave(q.shape[1] // k.shape[1], 1))
    scores *= q.shape[2] ** -0.5 if scale is None else scale
    if causal:
        hidden = torch.ones_like(scores[0], dtype=torch.bool).triu(len(k) - len(q) + 1)
        scores.masked_fill_(hidden, -math.inf)
    lse = torch.logsumexp(scores, dim=2)
    weights = torch.exp(scores - lse.unsqueeze(2)).nan_to_num(0.0)
    v = v.repeat_interleave(q.shape[1] // v.shape[1], 1)
    return torch.einsum("hqk,khd->qhd", weights, v), lse.t()


def ragged(lengths: Lengths, heads, kv_heads, dim, dtype, device="cpu") -> tuple:
    """Slices of one matrix, as a model's projection leaves them, and where sequences begin."""
    queries, keys = ([pair[i] for pair in lengths] for i in (0, 1))
    rows = max(sum(queries), sum(keys))
    fused = torch.randn(rows, heads + 2 * kv_heads, dim).to(device, dtype)
    q = fused[: sum(queries), :heads]
    k, v = fused[: sum(keys), heads:].split(kv_heads, dim=1)
    return q, k, v, Sequences(starts(queries, device), starts(keys, device))


def check_ragged(rung, lengths, heads, kv_heads, dim, dtype, device="cpu", causal=True, scale=None):
    q, k, v, sequences = ragged(lengths, heads, kv_heads, dim, dtype, device)
    got = RUNGS[rung](q, k, v, causal, scale, sequences)
    at = (list(accumulate((pair[i] for pair in lengths), initial=0)) for i in (0, 1))
    each = [
        exact(q[i : i + num_q], k[j : j + num_k], v[j : j + num_k], causal, scale)
        for i, j, (num_q, num_k) in zip(*(a[:-1] for a in at), lengths, strict=True)
    ]
    close(got, tuple(map(torch.cat, zip(*each, strict=True))), dtype)


def paged(lengths: Lengths, block_size, heads, kv_heads, dim, dtype, device="cpu") -> tuple:
    """Blocks in random order, and what nobody may read spoiled. Returns the arguments, and what
    each sequence's queries, keys and values are."""
    needed = [-(-context // block_size) for _, context in lengths]
    order = torch.randperm(sum(needed) + 3).tolist()
    shape = (len(order), block_size, kv_heads, dim)
    pools = [torch.full(shape, math.nan, dtype=dtype, device=device) for _ in range(2)]
    tables = torch.full((len(lengths), max(needed) + 2), 10**8, dtype=torch.int32)
    each = []
    for i, (count, context) in enumerate(lengths):
        sources = [torch.randn(context, kv_heads, dim).to(device, dtype) for _ in pools]
        for j in range(needed[i]):
            tables[i, j] = block = order.pop()
            part = slice(j * block_size, min((j + 1) * block_size, context))
            for pool, source in zip(pools, sources, strict=True):
                pool[block, : part.stop - part.start] = source[part]
        each.append((torch.randn(count, heads, dim).to(device, dtype), *sources))
    contexts = torch.tensor([context for _, context in lengths], dtype=torch.int32, device=device)
    q = torch.cat([one[0] for one in each])
    return (
        (q, *pools, tables.to(device), contexts, starts([c for c, _ in lengths], device)),
        each,
    )


def check_paged(rung, lengths, block_size, heads, kv_heads, dim, dtype, device="cpu", causal=True):
    arguments, each = paged(lengths, block_size, heads, kv_heads, dim, dtype, device)
    q, keys, values, tables, contexts, begin = arguments
    sequences = Sequences(begin, None, tables, contexts)
    got = RUNGS[rung](q, keys, values, causal, None, sequences)
    wanted = (exact(*one, causal) for one in each)
    close(got, tuple(map(torch.cat, zip(*wanted, strict=True))), dtype)


# ------------------------------------------------------------------------------------- results


@each_device
@pytest.mark.parametrize("causal", [True, False], ids=["causal", "full"])
@pytest.mark.parametrize("mix", LENGTHS)
@each_rung
def test_any_lengths(rung, mix, causal, device):
    check_ragged(rung, LENGTHS[mix], 2, 1, 64, torch.float16, device, causal)


@each_device
@pytest.mark.parametrize(("heads", "kv_heads"), [(1, 1), (3, 1), (16, 2)])
@each_dtype
def test_any_heads(rung, dtype, heads, kv_heads, device):
    check_ragged(rung, [(9, 9), (2, 70)], heads, kv_heads, 128, dtype, device)


@each_device
@pytest.mark.parametrize("dim", [8, 24, 40, 64, 80, 128, 256])
@each_dtype
def test_any_head_dim(rung, dtype, dim, device):
    if dim > MOST_DIM[rung]:
        pytest.skip("this rung says that it cannot")
    check_ragged(rung, [(17, 17), (5, 66)], 2, 1, dim, dtype, device)


@each_device
@pytest.mark.parametrize("block_size", [1, 5, 16])
@each_rung
def test_keys_in_the_cache(rung, block_size, device):
    mix = [(1, 40), (9, 9), (1, 1), (4, 21), (0, 6), (0, 0), (17, 130), (64, 64)]
    check_paged(rung, mix, block_size, 4, 2, 64, torch.float16, device)


@each_device
@each_dtype
def test_a_shared_prefix_is_seen_whole(rung, dtype, device):
    """Not causal: every query sees all of the context."""
    check_paged(rung, [(5, 3), (70, 33), (2, 0)], 16, 6, 2, 32, dtype, device, causal=False)


@each_device
@pytest.mark.parametrize("scale", [0.5, -0.5, 0.0])
@each_rung
def test_any_scale(rung, scale, device):
    for causal in (True, False):
        lengths = [(5, 20), (7, 3)]
        check_ragged(rung, lengths, 2, 1, 32, torch.float16, device, causal, scale)


@each_device
@each_rung
def test_one_sequence_needs_no_starts(rung, device):
    q, k, v, _ = ragged([(70, 90)], 4, 2, 64, torch.float16, device)
    close(RUNGS[rung](q, k, v), exact(q, k, v), torch.float16)
    close(RUNGS[rung](q, k, v, False), exact(q, k, v, False), torch.float16)
    apart = torch.randn(70, 64, 4).to(device, torch.float16).transpose(1, 2)
    close(RUNGS[rung](apart, k, v), exact(apart, k, v), torch.float16)


@each_device
@each_rung
def test_a_sequence_sees_nothing_of_its_neighbors(rung, device):
    q, k, v, sequences = ragged([(30, 30), (40, 40), (30, 30)], 2, 1, 64, torch.float16, device)
    middle = [x[30:70].clone() for x in (q, k, v)]
    for x in (q, k, v):
        x[:30] = x[70:] = math.nan
    for causal in (True, False):
        got = RUNGS[rung](q, k, v, causal, None, sequences)
        close(tuple(x[30:70] for x in got), exact(*middle, causal), torch.float16)


@each_device
@each_rung
def test_scores_that_grow_and_scores_that_fall(rung, device):
    """The maximum moves in every tile, by little and by much, or never again after the first."""
    q, k, v, _ = ragged([(66, 200)], 2, 1, 64, torch.float16, device)
    slope = torch.linspace(0.0, 1.0, 200, device=device).half()
    for step in (0.5, 4.0, 40.0, -40.0):
        steep = torch.cat((q[:, :, :63], torch.ones_like(q[:, :, :1])), dim=2)
        rising = torch.cat((k[:, :, :63], (slope * step * 8).view(-1, 1, 1)), dim=2)
        got = RUNGS[rung](steep, rising, v, False)
        close(got, exact(steep, rising, v, False), torch.float16)


@each_rung
def test_same_bits_in_any_order(rung):
    q, k, v, sequences = ragged([(20, 20), (70, 90)], 2, 1, 64, torch.float16)
    first = RUNGS[rung](q, k, v, True, None, sequences)
    for order, seed in (("reverse", 0), ("random", 1)):
        with settings(order=order, seed=seed):
            other = RUNGS[rung](q, k, v, True, None, sequences)
        assert all(map(torch.equal, first, other))


@each_rung
def test_clean_in_checked_mode(rung, monkeypatch):
    module = jit.load(f"flash/{rung}.cu", checked=True)
    monkeypatch.setattr(
        flash, "call", lambda file, name, *arguments: getattr(module, name)(*arguments)
    )
    check_ragged(rung, [(3, 3), (33, 70), (0, 1)], 2, 1, 64, torch.float16)
    assert module.report.clean, module.report
    check_paged(rung, [(1, 7), (5, 70)], 4, 3, 1, 128, torch.float16)
    assert module.report.clean, module.report


# ----------------------------------------------------------------------------------- operators


@each_device
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_operators(dtype, device):
    q, k, v, sequences = ragged([(20, 33), (1, 1)], 4, 2, 64, dtype, device)
    got = attention_forward(q[:20], k, v, backend="cuda")
    close(got, exact(q[:20], k, v), dtype)
    begin = sequences.starts_q, sequences.starts_k
    got = attention_forward(q, k, v, True, None, *begin, backend="cuda")
    wanted = attention.ragged_attention(q.double(), k.double(), v.double(), *begin)
    close(got, wanted, dtype)


@each_device
def test_nothing_at_all(device):
    for rung in RUNGS.values():
        q, k = torch.zeros(0, 2, 64), torch.zeros(3, 1, 64)
        out, lse = rung(*(x.to(device, torch.float16) for x in (q, k, k)))
        assert out.shape == q.shape and lse.shape == (0, 2)


@pytest.mark.parametrize("card", [(7, 5), (8, 0), (9, 0)])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("dim", [64, 128, 136, 36])
def test_the_best_rung_that_fits_is_taken(card, dtype, dim, monkeypatch):
    launched = []
    monkeypatch.setattr(flash, "call", lambda file, *_: launched.append(file))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: card)
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    q = torch.zeros(3, 2, dim, dtype=dtype)
    flash.attention(q, q, q, True, None)
    best = "shared_tile" if dim <= 128 else "row"
    if card >= (8, 0) and dtype != torch.float32 and dim in (64, 128):
        best = "mma"
    assert launched == [f"flash/{best}.cu"]


def test_what_tensor_cores_do_not_take():
    q = torch.zeros(2, 1, 64)
    with pytest.raises(Unsupported, match="float16 and bfloat16 here, got"):
        flash.mma(q, q, q)
    for dim in (136, 36):
        q = torch.zeros(2, 1, dim).half()
        with pytest.raises(Unsupported, match=f"multiple of 8 up to 128, got {dim}"):
            flash.mma(q, q, q)
    q, odd = torch.zeros(2, 1, 64).half(), torch.zeros(129).half()[1:].view(2, 1, 64)
    with pytest.raises(Unsupported, match="multiples of 16 bytes"):
        flash.mma(q, odd, q)


def test_what_no_rung_takes():
    q = torch.zeros(2, 1, 264)
    with pytest.raises(ValueError, match="'cuda' cannot: head_dim is at most 256, got 264"):
        attention_forward(q, q, q, backend="cuda")
    q = torch.zeros(2, 1, 64).double()
    with pytest.raises(ValueError, match="take float32, float16 and bfloat16, got"):
        attention_forward(q, q, q, backend="cuda")


# ------------------------------------------------------------------------------------- large


@pytest.mark.parametrize("rung", [pytest.param(rung, marks=has_gpu) for rung in RUNGS])
@pytest.mark.parametrize(("heads", "kv_heads", "dim"), [(4, 4, 128), (9, 3, 64), (8, 1, 128)])
def test_long_sequences(rung, heads, kv_heads, dim):
    for causal, dtype in product((True, False), DTYPES[rung]):
        check_ragged(rung, LONG, heads, kv_heads, dim, dtype, "cuda", causal)
        check_paged(rung, [*LONG[:5], (30, 5000)], 16, heads, kv_heads, dim, dtype, "cuda", causal)


@pytest.mark.parametrize("rung", [pytest.param(rung, marks=has_gpu) for rung in RUNGS])
def test_captured_in_a_cuda_graph(rung):
    """No length is known to the host: the graph is right for other lengths too."""
    q, k, v, sequences = ragged([(20, 40), (70, 90)], 2, 1, 64, torch.float16, "cuda")
    RUNGS[rung](q, k, v, True, None, sequences)  # compiles
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = RUNGS[rung](q, k, v, True, None, sequences)
    for lengths in ([(20, 40), (70, 90)], [(90, 1), (0, 129)], [(1, 130), (89, 0)]):
        for target, counts in zip(sequences, zip(*lengths, strict=True), strict=False):
            target.copy_(starts(counts, "cuda"))
        for x in got:
            x.fill_(math.nan)
        graph.replay()
        wanted = attention.ragged_attention(q.double(), k.double(), v.double(), *sequences[:2])
        close(got, wanted, torch.float16)
    arguments, each = paged([(20, 40), (70, 90)], 16, 2, 1, 64, torch.float16, "cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = flash.paged_prefill(*arguments, None)
    graph.replay()
    wanted = (exact(*one) for one in each)
    close(got, tuple(map(torch.cat, zip(*wanted, strict=True))), torch.float16)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU")
def test_paged_operator_of_long_prompts():
    arguments, each = paged(LONG, 16, 8, 2, 128, torch.bfloat16, "cuda")
    wanted = tuple(map(torch.cat, zip(*(exact(*one) for one in each), strict=True)))
    close(paged_attention_forward(*arguments, backend="cuda"), wanted, torch.bfloat16)
    close(flash.paged_prefill(*arguments, None), wanted, torch.bfloat16)
