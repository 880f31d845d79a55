"""Attention over the paged cache by every rung, in PyTorch, CUDA C++ and Triton, against float64.

Slots that belong to no context hold NaN, entries of the tables past a context's end name no block,
and outputs and work space hold NaN: none of it may show. Without a GPU the kernels of CUDA C++ run
emulated, with every access checked, and those of Triton interpreted.
"""

import dataclasses
from contextlib import nullcontext

import pytest
import torch
from attention_cases import (
    DECODE,
    FLASH,
    FLASH_PAGED,
    HOPPER_GPU,
    ONCE,
    PAGED_RUNGS,
    TRITON,
    Shape,
    attend_paged,
    batch,
    by_16_bytes,
    close,
    dtypes_of,
    each,
    each_pair,
    paged_oracle,
    total_of,
    with_prefix,
)
from launches import (
    FLOATS,
    HALVES,
    captured,
    checked,
    each_device,
    each_dtype,
    each_mode,
    gpu_only,
    same_in_each_order,
    shifted,
)

from yaie.build import jit
from yaie.course.lessons.ops.cuda import shared_prefix
from yaie.course.lessons.ops.cuda.attention_paged import RUNGS
from yaie.course.lessons.ops.shared_prefix import shared_prefix_attention
from yaie.ops.attention import paged_attention_forward
from yaie.ops.cuda import flash, hopper, paged
from yaie.ops.registry import Unsupported

pytestmark = pytest.mark.usefixtures("poison")
CHUNKS = Shape((1024, 1025, 2100), heads=2, kv_heads=1, head_dim=8)  # of one_block
MIXED = (1, 40, 9, 1, 21, 6, 0, 130, 64)
SHAPES = (
    Shape((0, 1, 17, 70, 0, 5)),
    Shape((40, 3), heads=9, kv_heads=3),
    Shape((33,), heads=1, kv_heads=1, head_dim=33, block_size=5),
    Shape((31, 0, 2), heads=16, kv_heads=1, head_dim=128, block_size=1),
    Shape((9, 50), heads=11, kv_heads=1, head_dim=256, block_size=7),
    Shape((12, 64), heads=6, kv_heads=2, head_dim=20),
    Shape((3,), heads=2, kv_heads=2, head_dim=1, block_size=2),
    Shape((20, 9), heads=5, kv_heads=5, head_dim=80, block_size=4),
    Shape((9, 12, 0, 30), queries=(2, 0, 0, 3), head_dim=16),
    Shape((), head_dim=8),
    Shape((0, 0)),
    Shape((40, 9, 0, 0), queries=(1, 3, 50, 49)),
    Shape((5, 40, 100), heads=8),
    Shape((0, 17, 1, 0, 33, 16, 0), heads=4, kv_heads=4, block_size=1),
    Shape((90, 3), heads=16, kv_heads=1, head_dim=128, block_size=3),
    Shape((31, 64), heads=3, kv_heads=1, head_dim=128, block_size=32),
    Shape((9, 12, 0, 30), queries=(2, 0, 0, 3), heads=9, kv_heads=3),
    Shape((40, 7, 0), queries=(0, 2, 1)),
    Shape((1, 17, 33, 5, 128, 129), heads=1, kv_heads=1, head_dim=32, block_size=4),
    Shape((20, 17, 33), queries=(3, 16, 2), heads=3, kv_heads=1, head_dim=40),
    Shape(MIXED, queries=(1, 1, 9, 1, 4, 0, 0, 17, 64)),
    Shape(MIXED, queries=(1, 1, 9, 1, 4, 0, 0, 17, 64), head_dim=32, block_size=1),
    Shape((70, 20), queries=(1, 3), heads=40, kv_heads=2, head_dim=32),
)
# Prompts of several tiles, and more queries than keys: for rungs that read a key once per tile.
PROMPTS = (
    Shape((65, 5, 300, 64), queries=(65, 0, 129, 64), heads=2, kv_heads=1, head_dim=8),
    Shape((100, 3), queries=(170, 5), heads=2, kv_heads=1, head_dim=16),
)
LARGE = (
    Shape((100_000, 0, 1, 2500, 17), heads=8, kv_heads=2, head_dim=128),
    Shape(tuple(37 * i % 150 for i in range(300)), heads=2, kv_heads=1, block_size=4),
    Shape((1,) * 1024, heads=4, kv_heads=4, head_dim=128, block_size=1),
    Shape((3000,) * 5, heads=32, kv_heads=8, head_dim=128),
)
LONG = Shape((100_000, 0, 1, 2500), heads=2, kv_heads=1, head_dim=16)
PREFIXES = (  # the batch, and what its sequences have in common
    (Shape((70, 64, 90), heads=8), 64),
    (Shape((70, 66, 80) * 3, heads=16, kv_heads=1, head_dim=128, block_size=3), 66),
    (Shape((20, 33), heads=2, kv_heads=2, block_size=4), 4),
    (Shape((64, 64, 64)), 64),  # nothing is left beside the prefix
)
ALIKE = (*DECODE, *FLASH_PAGED)  # of CUDA C++
READABLE = ("one_block", "grouped", "split")
each_readable = pytest.mark.parametrize("rung", READABLE)


def check(rung: str, operands: list, scale: float | None = None) -> None:
    got = attend_paged(rung, operands, scale)
    assert got[0].dtype == operands[0].dtype
    once = rung.removeprefix("paged ") in READABLE and operands[0].dtype in ONCE
    wanted = paged_oracle(*operands, scale)
    close(got, wanted, once, total=total_of(rung, operands[0].dtype))


# --------------------------------------------------------------------------------------- results


@each_pair([rung for rung in PAGED_RUNGS if rung not in TRITON], SHAPES)
def test_equals_the_oracle(rung, case, dtype, device):
    operands = batch(case, dtype, device)
    for _ in each_mode(device, rung):
        check(rung, operands)
        if rung in DECODE and not case.queries:
            wanted = attend_paged(rung, operands)
            got = attend_paged(rung, [*operands[:5], None])  # one query each: no starts are needed
            assert all(map(torch.equal, got, wanted))


@each_pair(("reference", "tiles 64 96", *FLASH_PAGED), PROMPTS)
def test_prompts_equal_the_oracle(rung, case, dtype, device):
    for _ in each_mode(device, rung):
        check(rung, batch(case, dtype, device))


@each_pair(TRITON, SHAPES)
def test_triton_equals_the_oracle(rung, case, dtype, device, monkeypatch):
    """As many multiprocessors as leave contexts whole, or split them as far as they go; on the CPU
    one or the other."""
    many = (1, 100) if device == "cuda" else (1, 100)[SHAPES.index(case) % 2 :][:1]
    for number in many:
        monkeypatch.setattr("yaie.ops.triton.paged.multiprocessors", lambda device, n=number: n)
        check(rung, batch(case, dtype, device))


@each(PAGED_RUNGS)
def test_tables_without_columns(rung, device):
    """Then no context has a key. An empty tensor has a null address, as a missing one has."""
    operands = batch(Shape((0, 0), queries=(5, 2)), dtypes_of(rung)[0], device)
    operands[3] = operands[3][:, :0]
    check(rung, operands)


@each(PAGED_RUNGS)
def test_any_scale(rung, device):
    for scale in (0.7, 0.0, -0.3):
        check(rung, batch(Shape((40, 3)), torch.float16, device), scale)


@each(PAGED_RUNGS)
def test_scores_that_overflow_an_exponential(rung, device):
    """exp overflows beyond 88: the maximum is subtracted first."""
    shape = Shape((70, 33), head_dim=128)
    check(rung, batch(shape, torch.float16, device, spread=40.0))


@each(FLASH_PAGED)
def test_a_shared_prefix_is_seen_whole(rung, device):
    """Not causal: every query sees all of the context."""
    shape = Shape((3, 33, 0), 6, 2, 32, queries=(5, 70, 2))
    operands = batch(shape, torch.float16, device)
    for _ in each_mode(device, rung):
        got = attend_paged(rung, operands, causal=False)
        close(got, paged_oracle(*operands, causal=False))


@each(READABLE_RUNGS := tuple(f"paged {rung}" for rung in READABLE))
def test_long_contexts(rung, device):
    operands = batch(LONG, torch.float32, device)
    check(rung, operands)
    if rung == "paged split":
        close(paged.split(*operands, None, splits=9), paged_oracle(*operands), once=True)


@pytest.mark.parametrize("shape", LARGE, ids=str)
@each_dtype(HALVES)
@gpu_only
def test_large_batches(shape, dtype, device):
    check("paged mma", batch(shape, dtype, device))


@each(ALIKE)
def test_queries_and_pools_at_any_address(rung, device):
    """Queries may be a slice of a product; tensor cores want pools at multiples of 16 bytes."""
    for shape in (Shape((40, 3, 21)), Shape((12, 64), heads=6, kv_heads=2, head_dim=128)):
        q, *others = batch(shape, torch.float16, device)
        tokens, heads, head_dim = q.shape
        wide = [q.new_full((tokens, 3 * heads, head_dim), torch.nan)]
        wide += [q.new_full((tokens, heads, 2 * head_dim), torch.nan)]
        parts = [x[:, -heads:, -head_dim:].copy_(q) for x in wide]
        if not by_16_bytes(rung):
            odd = q.new_full((tokens, heads * head_dim + 3), torch.nan)
            parts += [odd[:, 3:].view(q.shape).copy_(q)]
        for part in parts:
            check(rung, [part, *others])
        for moved in (0, 1) if not by_16_bytes(rung) else ():
            pools = [shifted(x) if i == moved else x for i, x in enumerate(others[:2])]
            with checked(device):
                check(rung, [q, *pools, *others[2:]])


@each(READABLE_RUNGS)
def test_a_nan_among_the_keys_is_not_hidden(rung, device):
    """The engine knows a request that went wrong by it."""
    operands = batch(Shape((20, 3)), torch.float32, device)
    key_pool, tables = operands[1], operands[3]
    key_pool[tables[0, 0], 5, 1, 7] = torch.nan
    out, lse = attend_paged(rung, operands)
    assert out[0, 2:].isnan().all() and lse[0, 2:].isnan().all()  # the heads of KV head 1
    assert out[0, :2].isfinite().all() and out[1].isfinite().all()


@each_readable
def test_chunks_follow_each_other_in_order(rung):
    with checked():
        check(f"paged {rung}", batch(CHUNKS, torch.float32))


@pytest.mark.parametrize("rung", ALIKE)
def test_same_bits_in_any_order(rung):
    shapes = (SHAPES[0], SHAPES[8], SHAPES[15])
    if rung.removeprefix("paged ") in READABLE:
        shapes += (SHAPES[4], CHUNKS)
    for shape in shapes:
        dtype = torch.float16 if by_16_bytes(rung) else torch.float32
        if rung == "paged mma":
            shape = dataclasses.replace(shape, head_dim=64)
        operands = batch(shape, dtype)
        got = same_in_each_order(lambda operands=operands: attend_paged(rung, operands))
        close(got, paged_oracle(*operands))


# ---------------------------------------------------------------------------- shares of the work


@each_device
@pytest.mark.parametrize(("splits", "part"), [(1, 1), (1, 70), (2, 35), (5, 16), (70, 1), (4, 9)])
def test_any_split(splits, part, device):
    """The last split takes what is left, however many there are."""
    operands = batch(SHAPES[0], torch.float32, device)
    q = operands[0]
    parts = q.new_empty(splits, *q.shape), q.new_empty(splits, *q.shape[:2])
    with checked(device):
        got = paged.decode(
            *("paged/split.cu", "split", *operands, None), workspace=(*parts, part, splits)
        )
    close(got, paged_oracle(*operands), once=True)


@each_device
@pytest.mark.parametrize("workers", [1, 2, 5, 7, 50])
def test_wherever_the_shares_end(workers, device):
    for contexts in ((5, 130, 0, 47, 16), (*(0,) * 40, 70, *(0,) * 40)):
        operands = batch(Shape(contexts, heads=4, kv_heads=2), torch.float16, device)
        for _ in each_mode(device):
            close(paged.mma(*operands, None, workers=workers), paged_oracle(*operands))


@each_device
def test_short_contexts_are_not_cut(device, monkeypatch):
    """If the tables have room for at most one part of a context, and there is a warp per item, a
    share is one item: nothing is merged, and no memory is allocated for parts."""
    outputs = []
    monkeypatch.setattr(paged, "made", lambda x: outputs.append(x) or x)
    monkeypatch.setattr(paged, "_workers", lambda *_: 10)
    whole, longer, more = (5, 96, 0, 47, 16), (5, 97, 0, 47, 16), (5, 96, 0, 47, 16, 1)
    for contexts, made in ((whole, 2), (longer, 3), (more, 3)):
        operands = batch(Shape(contexts, heads=4, kv_heads=2), torch.float16, device)
        for _ in each_mode(device):
            outputs.clear()
            close(paged.mma(*operands, None), paged_oracle(*operands))
            assert len(outputs) == made
    case = Shape((9, 50), heads=3, kv_heads=1, head_dim=128, queries=(3, 4))
    q, *rest = batch(case, torch.float16, device)
    out, lse = paged.mma(torch.cat((q, q)), *rest, None)  # the second half belongs to none
    close((out[:7], lse[:7]), paged_oracle(q, *rest))
    assert out[7:].isnan().all() and lse[7:].isnan().all()


def test_mma_and_cascade_are_the_same_in_any_order():
    operands = batch(Shape((5, 70, 0, 33), heads=6), torch.float16)
    got = same_in_each_order(lambda: paged.mma(*operands, None, workers=3))
    close(got, paged_oracle(*operands))
    operands = with_prefix(*PREFIXES[0], torch.float16)
    got = same_in_each_order(lambda: shared_prefix.cascade(*operands[:5], PREFIXES[0][1], None))
    close(got, paged_oracle(*operands))


def test_a_wait_that_is_too_weak_shows():
    """Emulated copies are made when they are waited for, so the pipeline's counts are tested."""
    operands = batch(Shape((200,)), torch.float16)
    _, given = paged.arguments(*operands, None)
    right = (jit.CSRC / "paged/mma.cu").read_text()
    weak = right.replace("cp_async_wait<STAGES - 2>", "cp_async_wait<STAGES - 1>")
    assert weak != right
    out, wanted = given[6], paged_oracle(*operands)[0]
    for source, is_right in ((right, True), (weak, False)):
        workspace = torch.full((4 + 2 * 2 * 65,), torch.nan)
        jit.load(source, name="waits.cu").paged_mma_f16(*given, workspace, 0, 1)
        assert torch.allclose(out.double(), wanted, rtol=1e-3, atol=1e-3) == is_right


# --------------------------------------------------------------------------------- shared prefix


@each_device
@each_dtype(HALVES)
@pytest.mark.parametrize(("shape", "shared"), PREFIXES, ids=str)
def test_cascade(shape, shared, dtype, device):
    operands = with_prefix(shape, shared, dtype, device)
    for _ in each_mode(device):
        close(shared_prefix.cascade(*operands[:5], shared, None), paged_oracle(*operands))


@gpu_only
@pytest.mark.parametrize("backend", ["cuda", "reference"])
def test_long_prefix(backend, device):
    shape = Shape(tuple(2048 + i % 50 for i in range(70)), heads=32, kv_heads=8, head_dim=128)
    operands = with_prefix(shape, 2048, torch.bfloat16, device)
    assert shared_prefix.WORTH < 69 * 2048 * 4096
    got = shared_prefix_attention(*operands[:5], 2048, backend=backend)
    close(got, paged_oracle(*operands))


@each_device
@pytest.mark.parametrize("backend", ["reference", "cuda"])
@each_dtype((*FLOATS, torch.float64))
def test_shared_prefix_is_paged_attention(dtype, backend, device, monkeypatch):
    if dtype == torch.float64 and (backend, device) != ("reference", "cpu"):
        pytest.skip("kernels compute in float32")
    monkeypatch.setattr(shared_prefix, "WORTH", 0)
    for shape, shared in (PREFIXES[0], PREFIXES[2]):
        operands = with_prefix(shape, shared, dtype, device)
        for length in (0, shape.block_size, shared):
            got = shared_prefix_attention(*operands[:5], length, backend=backend)
            wanted = paged_oracle(*operands)
            if dtype != torch.float64:
                close(got, wanted)
                continue
            for one, other, tolerance in zip(got, wanted, (1e-7, 1e-6), strict=True):
                torch.testing.assert_close(one.double(), other, rtol=tolerance, atol=tolerance)
    empty = batch(Shape(()), dtype, device)
    out, lse = shared_prefix_attention(*empty[:5], 0, backend=backend)
    assert out.shape == (0, 4, 64) and lse.shape == (0, 4)


@pytest.mark.parametrize("worth", [0, 4 << 20])
def test_little_in_common_is_read_again(worth, monkeypatch):
    launched = []
    monkeypatch.setattr(shared_prefix, "WORTH", worth)
    monkeypatch.setattr(paged, "call", lambda file, *_: launched.append(file))
    operands = with_prefix(*PREFIXES[0], torch.float16)
    shared_prefix_attention(*operands[:5], PREFIXES[0][1], backend="cuda")
    assert launched == (["paged/split.cu"] if worth else ["paged/mma.cu", "paged/cascade.cu"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shared_len": 65}, "shared_len must be a multiple of 16, got 65"),
        ({"shared_len": -16}, "shared_len must be a multiple of 16, got -16"),
        ({"shared_len": 64.0}, "shared_len must be an int, got float"),
        ({"shared_len": 1600}, "shared_len is 1600, but block_tables have 8 blocks of 16"),
        ({"shared_len": 80}, "shared_len must be at most 64, got 80"),
        ({"context_lens": torch.tensor([70, 64]).int()}, r"context_lens must have shape \[3\]"),
        ({"context_lens": torch.tensor([70, 64, 999]).int()}, "block_tables hold 128 tokens"),
        ({"block_tables": torch.arange(24).view(3, 8).int() % 9}, "begin with the same 4 blocks"),
    ],
)
def test_prefixes_that_do_not_fit(change, message):
    names = ("q", "key_pool", "value_pool", "block_tables", "context_lens")
    operands = with_prefix(*PREFIXES[0], torch.float32)
    given = {**dict(zip(names, operands, strict=False)), "shared_len": 64}
    with pytest.raises((ValueError, TypeError), match=message):
        shared_prefix_attention(**given | change)


# ------------------------------------------------------------------------------------- operators


@each_device
@each_dtype()
@pytest.mark.parametrize("queries", [(), (3, 0, 7, 1), (2, 0, 0, 2), (0, 4, 0, 0)], ids=str)
def test_any_mix_of_queries(queries, dtype, device):
    """One query per sequence, several, none: also where there are as many as sequences."""
    operands = batch(Shape((40, 5, 21, 2), queries=queries), dtype, device)
    got = paged_attention_forward(*operands, backend="cuda")
    close(got, paged_oracle(*operands))


# Decode steps and their padding, then prompts: of one tile or several, without queries, padding.
BOTH = (
    (4, Shape((40, 1, 70, 0, 30, 9, 0), head_dim=64, queries=(1, 1, 1, 0, 17, 2, 9))),
    (3, Shape((40, 0, 0, 0, 12, 150, 0), head_dim=64, queries=(1, 0, 0, 0, 3, 140, 0))),
    (2, Shape((0, 0, 33), heads=6, kv_heads=2, head_dim=128, queries=(0, 0, 33))),
    (5, Shape((5, 6, 7, 8, 300, 20), heads=8, kv_heads=2, head_dim=128, queries=(1,) * 5 + (20,))),
)


each_rung_of_prompts = pytest.mark.parametrize(
    "rung", [paged.best, hopper.pingpong], ids=["best", "pingpong"]
)


@each_device
@each_dtype(HALVES)
@pytest.mark.parametrize(("decodes", "case"), BOTH, ids=str)
@each_rung_of_prompts
def test_decode_steps_beside_prompts(rung, decodes, case, dtype, device, monkeypatch):
    monkeypatch.setattr(paged, "FEW_QUERIES", 0)
    operands = batch(case, dtype, device)
    got = paged.mixed_attention(*operands, decodes, rung)
    close(got, paged_oracle(*operands))


@gpu_only
@each_dtype(HALVES)
@each_rung_of_prompts
def test_a_graph_of_both_takes_any_division(rung, dtype, device, monkeypatch):
    """Of the same tokens among as many sequences."""
    monkeypatch.setattr(paged, "FEW_QUERIES", 0)
    decodes, case = BOTH[0]
    operands = batch(case, dtype, device)
    got, replay = captured(lambda: paged.mixed_attention(*operands, decodes, rung))
    for counts in ((1, 0, 0, 0, 20, 3, 7), (0, 0, 0, 0, 31, 0, 0), (1, 1, 1, 1, 1, 1, 25)):
        contexts = [40, 1, 70, 2, 30, 9, 0]
        contexts = [n if count else 0 for n, count in zip(contexts, counts, strict=True)]
        operands[4].copy_(torch.tensor(contexts))
        operands[5][1:].copy_(torch.tensor(counts).cumsum(0))
        operands[3].clamp_(max=len(operands[1]) - 1)
        for x in operands[:3]:
            x.normal_()
        replay()
        close(got, paged_oracle(*operands))


@each_device
@pytest.mark.parametrize("rung", FLASH)
def test_rows_before_the_first_sequence_are_not_written(rung, device):
    if "hopper" in rung and device == "cuda" and not HOPPER_GPU:
        pytest.skip("wgmma needs sm_90a")
    case = Shape((5, 6, 300, 20), heads=4, kv_heads=2, head_dim=64, queries=(1, 1, 140, 3))
    q, *pools, tables, contexts, begin = operands = batch(case, torch.float16, device)
    into = torch.full_like(q, 7), torch.full(q.shape[:2], 7.0, device=device)
    sequences = flash.Sequences(begin[2:], None, tables[2:], contexts[2:])
    assert FLASH[rung](q, *pools, True, None, sequences, into)[0] is into[0]
    wanted = paged_oracle(*operands)
    close([x[2:] for x in into], [x[2:] for x in wanted])
    assert all((x[:2] == 7).all() for x in into)


def test_what_is_not_computed_by_two_kernels(monkeypatch):
    """Nothing is launched then, so the second stream has not begun."""
    monkeypatch.setattr(paged, "_beside", None)
    operands = batch(Shape((40, 30), head_dim=80, queries=(1, 17)), torch.float16)
    with pytest.raises(Unsupported, match="head_dim of 64 or 128"):
        paged.mixed_attention(*operands, 1)


@gpu_only
def test_few_queries_are_computed_by_one_kernel(device):
    few = paged.FEW_QUERIES
    for queries, wanted in ((few - 1, pytest.raises(Unsupported)), (few, nullcontext())):
        operands = batch(Shape((40, 90), queries=(1, queries)), torch.float16, device)
        with wanted:
            close(paged.mixed_attention(*operands, 1), paged_oracle(*operands))


def test_what_the_rungs_do_not_take():
    def refused(message, rung=paged.mma, dtype=torch.float16, move=lambda x: x, **change):
        operands = batch(dataclasses.replace(Shape((9, 5)), **change), dtype)
        operands[1] = move(operands[1])
        with pytest.raises(Unsupported, match=message):
            rung(*operands, None)

    refused("head_dim of 64 or 128", head_dim=80)
    refused("up to 16 query heads per KV head, got 64 and 34 for 2", heads=34)
    refused(r"float16 and bfloat16 here, got torch\.float32", dtype=torch.float32)
    refused("multiples of 16 bytes", move=shifted)
    for name in READABLE:
        wide = {"heads": 1, "kv_heads": 1, "head_dim": 5000, "block_size": 1}
        refused("head_dim of up to", RUNGS[name], **wide)


@gpu_only
@each_dtype()
@pytest.mark.parametrize("shared", [None, 64])
def test_captured_in_a_cuda_graph(shared, dtype, device, monkeypatch):
    """Nothing waits for the host: a graph runs again on new data, and on other lengths."""
    monkeypatch.setattr(shared_prefix, "WORTH", 0)
    operands = with_prefix(*PREFIXES[0], dtype, device)

    def call():
        if shared is None:
            return paged_attention_forward(*operands, backend="cuda")
        return shared_prefix_attention(*operands[:5], shared, backend="cuda")

    got, replay = captured(call)
    for length in (64, 65, 69):
        operands[0].normal_()
        operands[4].fill_(length)
        for pool in operands[1:3]:
            pool.normal_()
        operands[3].clamp_(max=len(operands[1]) - 1)
        replay()
        close(got, paged_oracle(*operands))
