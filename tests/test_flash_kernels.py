"""Attention of ragged batches by every rung, in PyTorch, CUDA C++ and Triton, against float64.

Without a GPU the kernels of CUDA C++ run emulated, with every access checked, and those of Triton
interpreted.
"""

import math
from dataclasses import dataclass
from itertools import product

import pytest
import torch
from attention_cases import (
    FLASH,
    RAGGED_RUNGS,
    TRITON,
    Lengths,
    Shape,
    attend,
    attend_paged,
    batch,
    close,
    dtypes_of,
    each,
    each_pair,
    paged_oracle,
    ragged,
    ragged_oracle,
    total_of,
)
from launches import (
    captured,
    each_device,
    each_dtype,
    each_mode,
    gpu_only,
    same_in_each_order,
    starts,
)
from oracles import naive_attention

from yaie.course.lessons.ops.attention import attention_forward
from yaie.ops.attention import paged_attention_forward
from yaie.ops.cuda import flash
from yaie.ops.registry import Unsupported

pytestmark = [
    pytest.mark.usefixtures("poison"),
    pytest.mark.filterwarnings("ignore:All-NaN slice"),  # of Triton's interpreter
]
each_rung = each(RAGGED_RUNGS)
each_cuda_rung = pytest.mark.parametrize("rung", FLASH)


@dataclass(frozen=True)
class Ragged:
    """A batch of sequences that lie end to end."""

    name: str
    lengths: Lengths
    heads: int = 2
    kv_heads: int = 1
    head_dim: int = 64
    causal: bool = True
    scale: float | None = None

    def __str__(self) -> str:
        return f"{self.name}, {self.heads}-{self.kv_heads}x{self.head_dim}"


PROMPTS = tuple((n, n) for n in (0, 1, 17, 33, 63, 64, 65, 127, 128, 129))
CHUNKS = ((1, 40), (17, 130), (64, 64), (3, 3), (0, 9), (5, 0), (20, 10))
FEW, SCALED = ((17, 17), (5, 66)), ((5, 20), (7, 3))
CASES = (
    Ragged("prompts", PROMPTS),
    Ragged("prompts seen whole", PROMPTS[1:8], head_dim=32, causal=False),
    Ragged("chunks", CHUNKS),
    Ragged("chunks seen whole", CHUNKS, 3, 1, 40, causal=False),
    Ragged("one", ((1, 1),), 1, 1, 24),
    Ragged("one seen whole", ((1, 1),), 1, 1, causal=False),
    Ragged("no tokens", ((0, 0), (0, 0))),
    Ragged("no keys", ((3, 0),)),
    Ragged("no keys seen whole", ((3, 0),), causal=False),
    Ragged("decode", tuple((1, n) for n in (0, 1, 17, 127, 128, 129, 300)), 9, 3, 80),
    Ragged("more queries than keys", ((3, 0), (0, 5), (19, 17), (130, 127)), 4, 2, 128),
    Ragged("16 heads share", ((9, 9), (2, 70)), 16, 2, 128),
    *(Ragged("heads", FEW, 3, 3, dim) for dim in (2, 10, 33, 65)),
    *(Ragged("heads", FEW, 2, 1, dim) for dim in (8, 24, 40, 64, 80, 128, 256)),
    *(Ragged(f"scale {scale}", SCALED, head_dim=32, scale=scale) for scale in (0.5, -0.5, 0.0)),
    *(Ragged(f"scale {scale} seen whole", SCALED, head_dim=32, causal=False, scale=scale)
      for scale in (0.5, -0.5, 0.0)),
)  # fmt: skip
LONG = ((700, 700), (1, 1000), (0, 0), (257, 1023), (256, 256), (300, 20), (0, 500))


def check(rung: str, operands: list, causal: bool = True, scale: float | None = None) -> None:
    got = attend(rung, *operands, causal, scale)
    wanted = ragged_oracle(*operands, causal, scale)
    assert got[0].dtype == operands[0].dtype
    close(got, wanted, total=total_of(rung, operands[0].dtype))


@each_pair(RAGGED_RUNGS, CASES)
def test_equals_the_oracle(rung, case, dtype, device):
    sizes = case.heads, case.kv_heads, case.head_dim
    for _ in each_mode(device, rung):
        check(rung, ragged(case.lengths, *sizes, dtype, device), case.causal, case.scale)


@gpu_only
@pytest.mark.parametrize("rung", (*FLASH, *TRITON))
@pytest.mark.parametrize(("heads", "kv_heads", "dim"), [(4, 4, 128), (9, 3, 64), (8, 1, 128)])
def test_long_sequences(rung, heads, kv_heads, dim, device):
    shape = Shape((*(keys for _, keys in LONG[:5]), 5000), heads, kv_heads, dim,
                  queries=(*(count for count, _ in LONG[:5]), 30))  # fmt: skip
    for causal, dtype in product((True, False), dtypes_of(rung)):
        check(rung, ragged(LONG, heads, kv_heads, dim, dtype, device), causal)
        operands = batch(shape, dtype, device)
        if rung in FLASH:
            got = attend_paged(f"flash {rung}", operands, causal=causal)
            close(got, paged_oracle(*operands, causal=causal))
    got = paged_attention_forward(*operands, backend="cuda")
    close(got, paged_oracle(*operands))


@each_rung
def test_one_sequence_needs_no_starts(rung, device):
    q, k, v, *_ = ragged([(70, 90)], 4, 2, 64, torch.float16, device)
    apart = torch.randn(70, 64, 4, device=device).half().transpose(1, 2)  # heads are not contiguous
    for causal in (True, False):
        close(attend(rung, q, k, v, causal=causal), naive_attention(q, k, v, causal))
    if rung not in TRITON:
        close(attend(rung, apart, k, v), naive_attention(apart, k, v))


@each_rung
def test_a_sequence_sees_nothing_of_its_neighbors(rung, device):
    operands = ragged([(30, 30), (40, 40), (30, 30)], 2, 1, 64, torch.float16, device)
    middle = [x[30:70].clone() for x in operands[:3]]
    for x in operands[:3]:
        x[:30] = x[70:] = math.nan
    for causal in (True, False):
        got = attend(rung, *operands, causal)
        close(tuple(x[30:70] for x in got), naive_attention(*middle, causal))


@each_rung
def test_scores_that_grow_and_scores_that_fall(rung, device):
    """The maximum moves in every tile, by little and by much, or never again after the first."""
    q, k, v, *_ = ragged([(66, 200)], 2, 1, 64, torch.float16, device)
    slope = torch.linspace(0.0, 1.0, 200, device=device).half()
    for step in (0.5, 4.0, 40.0, -40.0):
        steep = torch.cat((q[:, :, :63], torch.ones_like(q[:, :, :1])), dim=2)
        rising = torch.cat((k[:, :, :63], (slope * step * 8).view(-1, 1, 1)), dim=2)
        got = attend(rung, steep, rising, v, causal=False)
        close(got, naive_attention(steep, rising, v, False))


@each_cuda_rung
def test_same_bits_in_any_order(rung):
    operands = ragged([(20, 20), (70, 90)], 2, 1, 64, torch.float16)
    got = same_in_each_order(lambda: attend(rung, *operands))
    close(got, ragged_oracle(*operands))


# ----------------------------------------------------------------------------------- operators


@each_device
@each_dtype()
def test_operators(dtype, device):
    q, k, v, *begin = ragged([(20, 33), (1, 1)], 4, 2, 64, dtype, device)
    got = attention_forward(q[:20], k, v, backend="cuda")
    close(got, naive_attention(q[:20], k, v))
    got = attention_forward(q, k, v, True, None, *begin, backend="cuda")
    close(got, ragged_oracle(q, k, v, *begin))


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


@pytest.mark.parametrize(
    ("backend", "dim", "dtype", "message"),
    [
        ("cuda", 264, torch.float32, "'cuda' cannot: head_dim is at most 256, got 264"),
        ("cuda", 64, torch.float64, "take float32, float16 and bfloat16, got"),
    ],
)
def test_what_a_back_end_does_not_take(backend, dim, dtype, message):
    q = torch.zeros(2, 1, dim, dtype=dtype)
    with pytest.raises(ValueError, match=message):
        attention_forward(q, q, q, backend=backend)


@gpu_only
@each_cuda_rung
def test_captured_in_a_cuda_graph(rung, device):
    """No length is known to the host: the graph is right for other lengths too."""
    operands = ragged([(20, 40), (70, 90)], 2, 1, 64, torch.float16, device)
    got, replay = captured(lambda: attend(rung, *operands))
    for lengths in ([(20, 40), (70, 90)], [(90, 1), (0, 129)], [(1, 130), (89, 0)]):
        for target, counts in zip(operands[3:], zip(*lengths, strict=True), strict=True):
            target.copy_(starts(counts))
        for x in got:
            x.fill_(math.nan)
        replay()
        close(got, ragged_oracle(*operands))
    shape = Shape((40, 90), 2, 1, queries=(20, 70))
    operands = batch(shape, torch.float16, device)
    sequences = flash.Sequences(operands[5], None, *operands[3:5])
    got, replay = captured(lambda: flash.best(*operands[:3], True, None, sequences))
    replay()
    close(got, paged_oracle(*operands))
