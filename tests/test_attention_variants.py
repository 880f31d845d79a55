"""Paged attention over selected tokens, and over a cache of 8-bit floats, against float64.

As in tests/test_paged_rungs.py, what belongs to no context holds NaN and tables name no block past
a context's end; entries of a selection past its count name no token.
"""

from functools import partial
from itertools import pairwise

import pytest
import torch
from attention_cases import NO_BLOCK, Shape, batch, close, paged_oracle
from launches import (
    FLOATS,
    HALVES,
    captured,
    each_device,
    each_dtype,
    each_mode,
    each_way,
    gpu_only,
    same_in_each_order,
)
from oracles import naive_attention

from yaie.course.lessons import attention_variants as variants
from yaie.course.lessons.ladders_attention import naive_bytes, prepare_naive
from yaie.course.lessons.ops.cuda.attention_paged import RUNGS
from yaie.ops.cuda import paged
from yaie.ops.registry import Unsupported

pytestmark = pytest.mark.usefixtures("poison")
# ------------------------------------------------------------------------------- selected tokens

SELECTIONS = (  # a batch, and how many tokens a query selects at most
    (Shape((40, 7, 21)), 9),
    (Shape((9, 12, 0, 30), queries=(2, 0, 0, 3), head_dim=64), 6),
    (Shape((130, 3), heads=16, kv_heads=1, head_dim=128, block_size=7), 64),
    (Shape((33, 5), heads=9, kv_heads=1, head_dim=20, block_size=3), 40),
    (Shape((70,), heads=1, kv_heads=1, head_dim=33, block_size=1), 1),
    (Shape((), head_dim=64), 4),
    (Shape((12, 4)), 0),
)
MMA = [pair for pair in SELECTIONS if pair[0].head_dim in (64, 128)]
each_selection = pytest.mark.parametrize(("shape", "most"), SELECTIONS, ids=str)


def selection(shape: Shape, most: int, device: str) -> dict[str, torch.Tensor]:
    """Random different positions in any order, as many as a query sees, at most `most`."""
    generator = torch.Generator().manual_seed(most)
    counts = shape.queries or (1,) * len(shape.contexts)
    seen = [
        context - count + 1 + i
        for context, count in zip(shape.contexts, counts, strict=True)
        for i in range(count)
    ]
    chosen = torch.full((len(seen), most), NO_BLOCK, dtype=torch.int32)
    for row, sees in zip(chosen, seen, strict=True):
        some = torch.randperm(sees, generator=generator)[:most]
        row[: len(some)] = some.int()
    lengths = torch.tensor([min(sees, most) for sees in seen], dtype=torch.int32)
    return {"selected": chosen.to(device), "counts": lengths.to(device)}


def selected_oracle(operands: list, selected: torch.Tensor, counts: torch.Tensor) -> tuple:
    """Each query by itself, over a list of keys looked up one by one."""
    q, keys, values, tables, _, begin = operands
    states = []
    for sequence, tokens in enumerate(pairwise(begin.tolist())):
        for token in range(*tokens):
            places = [
                (tables[sequence, place // keys.shape[1]].item(), place % keys.shape[1])
                for place in selected[token, : counts[token]].tolist()
            ]
            blocks, offsets = torch.tensor(places, dtype=torch.long).view(-1, 2).unbind(1)
            mine = (pool.cpu()[blocks, offsets] for pool in (keys, values))
            states.append(naive_attention(q[token : token + 1].cpu(), *mine, causal=False))
    if not states:
        return q.double().cpu(), q.new_zeros(q.shape[:2], dtype=torch.float64).cpu()
    return tuple(map(torch.cat, zip(*states, strict=True)))


def by_slots(*operands, selected, counts, rung):
    slots = variants.slot_tables(selected, counts, *operands[3:6], operands[1].shape[1])
    return variants.attention_by_slots(*operands, slots=slots, counts=counts, rung=rung)


@each_device
@each_dtype()
@each_selection
def test_selected_tokens(shape, most, dtype, device):
    operands, chosen = batch(shape, dtype, device), selection(shape, most, device)
    wanted = selected_oracle(operands, **chosen)
    close(variants.selected_attention(*operands, None, **chosen), wanted)
    for _ in each_way(device):
        close(variants.selected_attention_cuda(*operands, None, **chosen), wanted, once=True)


@each_device
@pytest.mark.parametrize("rung", ["split", "mma"])
def test_a_selection_is_a_table_of_blocks_of_one_token(rung, device):
    for shape, most in MMA:
        operands, chosen = batch(shape, torch.float16, device), selection(shape, most, device)
        wanted = selected_oracle(operands, **chosen)
        for _ in each_way(device) if rung == "split" else each_mode(device):
            close(by_slots(*operands, None, **chosen, rung=RUNGS[rung]), wanted)


def test_all_tokens_in_any_order_are_full_attention():
    operands = batch(shape := Shape((40, 7, 21)), torch.float32)
    every = selection(shape, 40, "cpu")
    got = same_in_each_order(lambda: variants.selected_attention_cuda(*operands, None, **every))
    close(got, paged_oracle(*operands), once=True)


def test_selections_that_do_not_fit():
    shape = Shape((9, 5))
    operands, chosen = batch(shape, torch.float32), selection(shape, 4, "cpu")
    for change, message in (
        (
            {"selected": chosen["selected"][:1]},
            r"selected must have shape \[2, most\], got \[1, 4\]",
        ),
        ({"selected": chosen["selected"].long()}, "selected must be int32, got int64"),
        ({"counts": chosen["counts"][:1]}, r"counts must have shape \[2\], got \[1\]"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            variants.selected_attention_cuda(*operands, None, **chosen | change)
    with pytest.raises(Unsupported, match="head_dim of up to 256, got 300"):
        wide = batch(Shape((9, 5), head_dim=300), torch.float32)
        variants.selected_attention_cuda(*wide, None, **selection(shape, 4, "cpu"))


# ----------------------------------------------------------------------------------- 8-bit cache

EIGHT = (
    Shape((0, 1, 17, 70, 0, 5)),
    Shape((40, 3), heads=9, kv_heads=3),
    Shape((90, 3), heads=16, kv_heads=1, head_dim=128, block_size=3),
    Shape((40, 7, 0), queries=(0, 2, 1)),
    Shape((31, 64), heads=2, kv_heads=2, head_dim=128, block_size=32),
)


def eight_bits(shape: Shape, dtype: torch.dtype, device: str, per_head: bool) -> tuple[list, dict]:
    """Operands with pools of e4m3, NaN where no token is, and the scales of keys and values."""
    q, *pools, tables, lengths, begin = batch(shape, dtype, device)
    heads = shape.kv_heads if per_head else 1
    scales = [(torch.arange(heads, device=device) + 1) * s for s in (0.011, 0.027)]
    pools = [
        (pool.float() / scale[:, None]).to(torch.float8_e4m3fn)
        for pool, scale in zip(pools, scales, strict=True)
    ]
    operands = [q, *pools, tables, lengths, begin]
    return operands, dict(zip(("key_scale", "value_scale"), scales, strict=True))


def eight_oracle(operands: list, key_scale: torch.Tensor, value_scale: torch.Tensor) -> tuple:
    q, keys, values, *others = operands
    keys, values = (
        pool.float().double() * scale.double()[:, None]
        for pool, scale in ((keys, key_scale), (values, value_scale))
    )
    return paged_oracle(q, keys, values, *others)


@each_device
@each_dtype(HALVES)
@pytest.mark.parametrize("shape", EIGHT, ids=str)
def test_a_cache_of_8_bits(shape, dtype, device):
    for per_head in (False, True):
        operands, scales = eight_bits(shape, dtype, device, per_head)
        wanted = eight_oracle(operands, **scales)
        close(variants.attention_fp8(*operands, None, **scales), wanted)
        for _ in each_mode(device):
            close(variants.attention_fp8_cuda(*operands, None, **scales), wanted)


@each_device
@pytest.mark.parametrize("workers", [1, 5, 50])
def test_8_bits_wherever_the_shares_end(workers, device):
    shape = Shape((5, 130, 0, 47, 16), head_dim=128)
    operands, scales = eight_bits(shape, torch.float16, device, per_head=True)
    run = partial(variants.attention_fp8_cuda, *operands, None, **scales, workers=workers)
    for _ in each_mode(device):
        close(run(), eight_oracle(operands, **scales))
    if device == "cpu" and workers == 5:
        same_in_each_order(run)


def test_8_bits_are_widened_exactly():
    """Of the same numbers in 16 bits the kernel makes the same bits, if the scales are 1."""
    operands, scales = eight_bits(Shape((70, 33)), torch.bfloat16, "cpu", per_head=False)
    ones = {name: torch.ones_like(scale) for name, scale in scales.items()}
    wide = [x.to(torch.bfloat16) if x.element_size() == 1 else x for x in operands]
    got = variants.attention_fp8_cuda(*operands, None, **ones, workers=4)
    assert all(map(torch.equal, got, paged.mma(*wide, None, workers=4)))


def test_8_bit_caches_that_do_not_fit():
    operands, scales = eight_bits(Shape((9, 5)), torch.float16, "cpu", per_head=True)
    with pytest.raises(ValueError, match=r"both have shape \[2\] or both \[1\]"):
        variants.attention_fp8_cuda(*operands, None, **scales | {"key_scale": torch.ones(3)})
    wide = [operands[0], *(x.float() for x in operands[1:3]), *operands[3:]]
    with pytest.raises(ValueError, match="float8_e4m3fn"):
        variants.attention_fp8_cuda(*wide, None, **scales)
    with pytest.raises(Unsupported, match=r"got torch\.float32"):
        variants.attention_fp8_cuda(operands[0].float(), *operands[1:], None, **scales)


@gpu_only
def test_both_in_a_cuda_graph(device):
    operands, scales = eight_bits(Shape((70, 33), heads=8), torch.bfloat16, device, per_head=True)
    chosen = selection(Shape((70, 33)), 9, device)
    floats = batch(Shape((70, 33), heads=8), torch.bfloat16, device)
    for run, wanted in (
        (
            partial(variants.attention_fp8_cuda, *operands, None, **scales),
            eight_oracle(operands, **scales),
        ),
        (
            partial(by_slots, *floats, None, **chosen, rung=paged.mma),
            selected_oracle(floats, **chosen),
        ),
    ):
        got, replay = captured(run)
        for x in got:
            x.fill_(torch.nan)
        replay()
        close(got, wanted)


# -------------------------------------------------------------------------------- naive attention


@pytest.mark.parametrize("causal", [False, True])
@each_dtype(FLOATS)
def test_naive_attention_is_attention(causal, dtype):
    q, k, v = torch.randn(3, 2 * 33, 3, 64).to(dtype)
    got = prepare_naive(2, q, k, v, None, None, causal, None)().flatten(0, 1)
    for i in range(2):
        mine = slice(33 * i, 33 * i + 33)
        want, _ = naive_attention(q[mine], k[mine], v[mine], causal)
        error = (got[mine].double() - want).norm() / want.norm()
        assert error < {torch.float32: 1e-6, torch.float16: 1e-3}.get(dtype, 8e-3)


def test_what_naive_attention_moves():
    """Scores written and read, weights written and read; a mask reads and writes the scores."""
    assert naive_bytes(1, 1024, causal=False) == 4 * 2 * 1024**2
    assert naive_bytes(32, 1024, causal=True) == 32 * 6 * 2 * 1024**2
