"""Paged attention on CUDA: the tensor-core rung, shared prefixes, and who computes what.

Slots that belong to no context hold NaN, entries of the tables behind a context's end no block, and
outputs and work space NaN. Without a GPU the kernels run emulated, at small shapes.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from test_paged_rungs import Shape, batch, each_device, oracle

from yaie.build import jit
from yaie.emulator import settings
from yaie.ops.attention import paged_attention_forward, shared_prefix_attention
from yaie.ops.cuda import paged
from yaie.ops.reference import attention
from yaie.ops.registry import Unsupported

HALVES = (torch.float16, torch.bfloat16)
# ‖out - wanted‖ / ‖wanted‖ of a row, whose weights and results are rounded.
TOLERANCE = {torch.float32: 1e-5, torch.float16: 1e-3, torch.bfloat16: 8e-3}
SHAPES = (
    Shape((5, 40, 100), heads=8),
    Shape((0, 17, 1, 0, 33, 16, 0), heads=4, kv_heads=4, block_size=1),
    Shape((90, 3), heads=16, kv_heads=1, head_dim=128, block_size=3),
    Shape((31, 64), heads=3, kv_heads=1, head_dim=128, block_size=32),
    Shape((9, 12, 0, 30), queries=(2, 0, 0, 3), heads=9, kv_heads=3),
    Shape((40, 7, 0), queries=(0, 2, 1)),
    Shape(()),
)
LARGE = (
    Shape((100_000, 0, 1, 2500, 17), heads=8, kv_heads=2, head_dim=128),
    Shape(tuple(37 * i % 150 for i in range(300)), heads=2, kv_heads=1, block_size=4),
    Shape((1,) * 1024, heads=4, kv_heads=4, head_dim=128, block_size=1),
    Shape((3000,) * 5, heads=32, kv_heads=8, head_dim=128),
)
PREFIXES = (  # the batch, and what its sequences have in common
    (Shape((70, 64, 90), heads=8), 64),
    (Shape((70, 66, 80) * 3, heads=16, kv_heads=1, head_dim=128, block_size=3), 66),
    (Shape((20, 33), heads=2, kv_heads=2, block_size=4), 4),
)
gpu_only = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU"),
]
each_half = pytest.mark.parametrize("dtype", HALVES, ids=str)


@pytest.fixture(autouse=True)
def poisoned(monkeypatch):
    """Memory that nobody has written holds NaN."""
    new_empty = torch.Tensor.new_empty
    monkeypatch.setattr(
        torch.Tensor, "new_empty", lambda *given, **how: new_empty(*given, **how).fill_(torch.nan)
    )


def with_prefix(shape: Shape, shared: int, dtype: torch.dtype, device: str) -> list:
    """The operands of a batch in which every table begins with the blocks of the first one."""
    operands = batch(shape, dtype, device)
    operands[3][:, : shared // shape.block_size] = operands[3][0, : shared // shape.block_size]
    return operands


def check(got, operands) -> None:
    """Compare with float64: each row by its own length, each log-sum-exp by itself."""
    (out, lse), wanted = got, oracle(*(x.cpu() for x in operands))
    errors = torch.linalg.vector_norm(out.cpu().double() - wanted[0], dim=-1)
    assert (errors <= TOLERANCE[out.dtype] * torch.linalg.vector_norm(wanted[0], dim=-1)).all()
    torch.testing.assert_close(lse.cpu().double(), wanted[1], rtol=2e-6, atol=2e-5)


# ------------------------------------------------------------------------------------------ mma


@each_device
@each_half
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_tensor_cores(shape, dtype, device):
    operands = batch(shape, dtype, device)
    check(paged.mma(*operands, None), operands)


@pytest.mark.parametrize("shape", LARGE, ids=str)
@each_half
@pytest.mark.parametrize("device", [pytest.param("cuda", marks=gpu_only)])
def test_any_lengths(shape, dtype, device):
    operands = batch(shape, dtype, device)
    check(paged.mma(*operands, None), operands)


@each_device
@pytest.mark.parametrize("workers", [1, 2, 5, 7, 50])
def test_wherever_the_shares_end(workers, device):
    shape = Shape((5, 130, 0, 47, 16), heads=4, kv_heads=2)
    operands = batch(shape, torch.float16, device)
    check(paged.mma(*operands, None, workers=workers), operands)


@each_device
@pytest.mark.parametrize("scale", [0.7, 0.0, -0.3])
def test_scales(scale, device):
    operands = batch(Shape((40, 3)), torch.float16, device)
    scaled = operands[0].double() * scale * operands[0].shape[2] ** 0.5
    check(paged.mma(*operands, scale), [scaled, *operands[1:]])


@each_device
def test_large_scores(device):
    """exp overflows beyond 88: the maximum is taken off before."""
    operands = batch(Shape((70, 33), head_dim=128), torch.float16, device, spread=40.0)
    check(paged.mma(*operands, None), operands)


@each_device
@pytest.mark.parametrize("name", ["split", "mma"])
def test_queries_may_be_a_slice(name, device):
    operands = batch(Shape((40, 3, 21)), torch.float16, device)
    q = operands[0]
    tokens, heads, head_dim = q.shape
    for wide in (
        torch.full((tokens, 3 * heads, head_dim), torch.nan, dtype=q.dtype, device=device),
        torch.full((tokens, heads, 2 * head_dim), torch.nan, dtype=q.dtype, device=device),
    ):
        part = wide[:, -heads:, -head_dim:].copy_(q)
        check(paged.RUNGS[name](part, *operands[1:], None), operands)


@pytest.mark.parametrize("order", [("forward", 0), ("reverse", 0), ("random", 1)], ids=str)
@pytest.mark.parametrize("file", ["mma", "cascade"])
def test_clean_in_any_order(file, order, monkeypatch):
    """No race, nothing out of bounds, nothing read that nobody wrote."""
    modules = []

    def call(path, name, *arguments):
        modules.append(jit.load(path, checked=True))
        with settings(order=order[0], seed=order[1]):
            getattr(modules[-1], name)(*arguments)
        assert modules[-1].report.clean, modules[-1].report

    monkeypatch.setattr(paged, "call", call)
    if file == "mma":
        operands = batch(Shape((5, 70, 0, 33), heads=6), torch.float16)
        got = paged.mma(*operands, None, workers=3)
    else:
        operands = with_prefix(*PREFIXES[0], torch.float16, "cpu")
        got = paged.cascade(*operands[:5], PREFIXES[0][1], None)
    check(got, operands)
    assert modules[-1].name == f"paged/{file}.cu"


def test_a_wait_that_is_too_weak_shows():
    """Emulated copies are made when they are waited for, so the pipeline's counts are tested."""
    operands = batch(Shape((200,)), torch.float16)
    _, given = paged.arguments(*operands, None)
    right = (jit.CSRC / "paged/mma.cu").read_text()
    weak = right.replace("cp_async_wait<STAGES - 2>", "cp_async_wait<STAGES - 1>")
    assert weak != right
    out, wanted = given[6], oracle(*operands)[0]
    for source, is_right in ((right, True), (weak, False)):
        workspace = torch.full((4 + 2 * 2 * 65,), torch.nan)
        jit.load(source, name="waits.cu").paged_mma_f16(*given, workspace, 0, 1)
        assert torch.allclose(out.double(), wanted, rtol=1e-3, atol=1e-3) == is_right


# --------------------------------------------------------------------------------- shared prefix


@each_device
@each_half
@pytest.mark.parametrize(("shape", "shared"), PREFIXES, ids=str)
def test_cascade(shape, shared, dtype, device):
    operands = with_prefix(shape, shared, dtype, device)
    check(paged.cascade(*operands[:5], shared, None), operands)


@pytest.mark.parametrize("device", [pytest.param("cuda", marks=gpu_only)])
@pytest.mark.parametrize("backend", ["cuda", "reference"])
def test_long_prefix(backend, device):
    shape = Shape(tuple(2048 + i % 50 for i in range(70)), heads=32, kv_heads=8, head_dim=128)
    operands = with_prefix(shape, 2048, torch.bfloat16, device)
    assert paged.WORTH < 69 * 2048 * 4096
    check(shared_prefix_attention(*operands[:5], 2048, backend=backend), operands)


@each_device
@pytest.mark.parametrize("backend", ["reference", "cuda"])
@pytest.mark.parametrize("dtype", [torch.float32, *HALVES], ids=str)
def test_shared_prefix_is_paged_attention(dtype, backend, device, monkeypatch):
    monkeypatch.setattr(paged, "WORTH", 0)
    for shape, shared in (PREFIXES[0], PREFIXES[2]):
        operands = with_prefix(shape, shared, dtype, device)
        for length in (0, shape.block_size, shared):
            check(shared_prefix_attention(*operands[:5], length, backend=backend), operands)
    empty = batch(Shape(()), dtype, device)
    out, lse = shared_prefix_attention(*empty[:5], 0, backend=backend)
    assert out.shape == (0, 4, 64) and lse.shape == (0, 4)


@pytest.mark.parametrize("worth", [0, 4 << 20])
def test_little_in_common_is_read_again(worth, monkeypatch):
    launched = []
    monkeypatch.setattr(paged, "WORTH", worth)
    monkeypatch.setattr(paged, "call", lambda file, *_: launched.append(file))
    operands = with_prefix(*PREFIXES[0], torch.float16, "cpu")
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
    operands = with_prefix(*PREFIXES[0], torch.float32, "cpu")
    given = {**dict(zip(names, operands, strict=False)), "shared_len": 64}
    with pytest.raises((ValueError, TypeError), match=message):
        shared_prefix_attention(**given | change)


# ------------------------------------------------------------------------------------- operators


@each_device
@pytest.mark.parametrize("dtype", [torch.float32, *HALVES], ids=str)
@pytest.mark.parametrize("queries", [(), (3, 0, 7, 1), (2, 0, 0, 2), (0, 4, 0, 0)], ids=str)
def test_any_mix_of_queries(queries, dtype, device):
    """One query a sequence, several, none: also where there are as many as sequences."""
    operands = batch(Shape((40, 5, 21, 2), queries=queries), dtype, device)
    check(paged_attention_forward(*operands, backend="cuda"), operands)


@pytest.mark.parametrize("card", [(7, 5), (8, 0), (9, 0)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("shape", [Shape((9,)), Shape((9,), head_dim=80)], ids=str)
def test_the_best_rung_that_fits_is_taken(card, dtype, shape, monkeypatch):
    launched = []
    operands = batch(shape, dtype)
    monkeypatch.setattr(paged, "call", lambda file, *_: launched.append(file))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: card)
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    paged.paged_attention(*operands, None)
    tensor_cores = card >= (8, 0) and dtype == torch.float16 and shape.head_dim == 64
    assert launched == ["paged/mma.cu" if tensor_cores else "paged/split.cu"]


@pytest.mark.parametrize(
    "more, shape, dtype, taken",
    [
        (0, {}, torch.float16, "mma"),
        (1, {}, torch.float16, "prefill"),
        (0, {"head_dim": 80}, torch.float16, "prefill"),
        (0, {"heads": 34}, torch.float16, "prefill"),
        (0, {}, torch.float32, "prefill"),
    ],
)
def test_a_few_queries_are_computed_like_a_decode_step(more, shape, dtype, taken, monkeypatch):
    """On tensor cores: no other rung of decode steps is as fast as the prompts' kernels."""
    launched = []
    monkeypatch.setattr(paged, "call", lambda file, *_: launched.append(Path(file).stem))
    monkeypatch.setattr(paged, "paged_prefill", lambda *_: launched.append("prefill"))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    queries = (paged.FEW_QUERIES - 9 + more, 9)
    operands = batch(Shape((90, 9), queries=queries, **shape), dtype)
    paged.paged_attention(*operands, None)
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    paged.paged_attention(*operands, None)
    assert launched == ["prefill", taken]  # on a CPU, then on a GPU


def test_what_tensor_cores_do_not_take():
    def refused(message, **change):
        operands = batch(dataclasses.replace(Shape((9, 5)), **change), torch.float16)
        with pytest.raises(Unsupported, match=message):
            paged.mma(*operands, None)

    refused("head_dim of 64 or 128", head_dim=80)
    refused("up to 16 query heads a KV head, got 64 and 34 for 2", heads=34)
    operands = batch(Shape((9, 5)), torch.float32)
    with pytest.raises(Unsupported, match=r"float16 and bfloat16 here, got torch\.float32"):
        paged.mma(*operands, None)
    operands = batch(Shape((9, 5)), torch.float16)
    operands[1] = torch.zeros(operands[1].numel() + 1).half()[1:].view_as(operands[1])
    with pytest.raises(Unsupported, match="multiples of 16 bytes"):
        paged.mma(*operands, None)


def calls(device: str = "cpu") -> dict[str, tuple]:
    """The arguments of each operator, as torch.library sees them."""
    operands = with_prefix(*PREFIXES[0], torch.float16, device)
    return {
        "paged_attention": (*operands, None),
        "shared_prefix_attention": (*operands[:5], PREFIXES[0][1], None),
    }


@each_device
@pytest.mark.parametrize("name", calls())
def test_opcheck(name, device):
    operator = getattr(torch.ops.yaie, name).default
    tests = ("test_schema", "test_faketensor")
    torch.library.opcheck(operator, calls(device)[name], {"backend": "cuda"}, test_utils=tests)


@pytest.mark.parametrize("device", [pytest.param("cuda", marks=gpu_only)])
@pytest.mark.parametrize("dtype", [torch.float32, *HALVES], ids=str)
@pytest.mark.parametrize("shared", [None, 64])
def test_captured_in_a_cuda_graph(shared, dtype, device, monkeypatch):
    """Nothing waits for the host: a graph runs again on new data, and on other lengths."""
    monkeypatch.undo()
    monkeypatch.setattr(paged, "WORTH", 0)
    operands = with_prefix(*PREFIXES[0], dtype, device)

    def call():
        if shared is None:
            return paged_attention_forward(*operands, backend="cuda")
        return shared_prefix_attention(*operands[:5], shared, backend="cuda")

    call()  # compiles
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = call()
    for length in (64, 65, 69):
        operands[0].normal_()
        operands[4].fill_(length)
        for pool in operands[1:3]:
            pool.normal_()
        operands[3].clamp_(max=len(operands[1]) - 1)
        graph.replay()
        check(got, operands)


def test_reference_is_paged_attention_of_any_dtype():
    operands = with_prefix(*PREFIXES[0], torch.float64, "cpu")
    out, lse = attention.shared_prefix_attention(*operands[:5], 64)
    wanted = oracle(*operands)
    torch.testing.assert_close(out, wanted[0])
    torch.testing.assert_close(lse.double(), wanted[1], rtol=1e-6, atol=1e-6)
