"""Attention's batches, ragged and paged, their results, and every implementation of attention.

Memory that belongs to no sequence holds NaN, and entries of a block table past a context's end name
no block, so a kernel that reads them cannot pass.
"""

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise, product

import pytest
import torch
from launches import FLOATS, GPU, HALVES, name_of, on_gpu, starts
from oracles import naive_attention

from yaie.course.lessons.ops.attention import attention_forward
from yaie.course.lessons.ops.cuda.attention_hopper import RUNGS as HOPPER
from yaie.course.lessons.ops.cuda.attention_paged import RUNGS as PAGED
from yaie.course.lessons.ops.reference.flash import flash_attention
from yaie.ops.cuda import flash
from yaie.ops.reference import attention as reference
from yaie.ops.registry import compute

State = tuple[torch.Tensor, torch.Tensor]
Lengths = Sequence[tuple[int, int]]  # queries and keys of each sequence

INF = float("inf")
NO_BLOCK = 1 << 30
REFERENCES = ("reference", "tiles 7 1", "tiles 1 7", "tiles 64 7", "tiles 64 96")
HOPPER_GPU = GPU and torch.cuda.get_device_capability() == (9, 0)
TRITON = ("triton",) if importlib.util.find_spec("triton") else ()
# A sum in float32 is near to one in float64; a result in half precision is rounded at least once.
TOTAL = {torch.float64: 1e-12, torch.float32: 3e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}
ROW = TOTAL | {torch.float32: 1e-5}
ONCE = {torch.float32: 2e-5, torch.float16: 2**-10, torch.bfloat16: 2**-7}


def close(got: State, wanted: State, once: bool = False, total: float | None = None) -> None:
    """Compare output and log-sum-exp: by the norm of all rows, of each row, and each element.

    Args:
        once: whether weights are kept in float32, so that only the result is rounded.
        total: largest ‖error‖ / ‖wanted‖ of all rows, by default that of the output's dtype.
    """
    out, lse, dtype = got[0].detach().cpu().double(), got[1].detach().cpu(), got[0].dtype
    want, want_lse = (x.detach().cpu() for x in wanted)
    assert lse.dtype == torch.float32 and out.shape == want.shape and not out.isnan().any()
    errors, norms = (torch.linalg.vector_norm(x, dim=-1) for x in (out - want, want))
    total = total or TOTAL[dtype]
    assert (errors <= max(total, ROW[dtype]) * norms + 1e-12).all()
    assert errors.norm() <= total * norms.norm() + 1e-12
    rtol, atol = (ONCE[dtype], ONCE[dtype] / 8) if once else (30 * total, 10 * total)
    torch.testing.assert_close(out, want, rtol=rtol, atol=atol)
    torch.testing.assert_close(lse.double(), want_lse, rtol=max(total, 2e-6), atol=2e-5)


# ------------------------------------------------------------------------------------- ragged


def ragged(
    lengths: Lengths, heads: int, kv_heads: int, dim: int, dtype: torch.dtype, device: str = "cpu"
) -> list[torch.Tensor]:
    """q, k, v and their starts: heads of one matrix, as a model's projection leaves them."""
    counts = [sum(pair[i] for pair in lengths) for i in (0, 1)]
    fused = torch.full((max(counts), 1 + heads + 2 * kv_heads, dim), torch.nan)
    fused[: counts[0], 1 : 1 + heads] = torch.randn(counts[0], heads, dim)
    fused[: counts[1], 1 + heads :] = torch.randn(counts[1], 2 * kv_heads, dim)
    fused = fused.to(device, dtype)
    q = fused[: counts[0], 1 : 1 + heads]
    k, v = fused[: counts[1], 1 + heads :].split(kv_heads, dim=1)
    return [q, k, v, *(starts([pair[i] for pair in lengths], device) for i in (0, 1))]


def ragged_oracle(q, k, v, starts_q, starts_k, causal=True, scale=None) -> State:
    """Every sequence by itself."""
    queries, *keys = (
        x.split(s.diff().tolist()) for x, s in ((q, starts_q), (k, starts_k), (v, starts_k))
    )
    states = [naive_attention(*each, causal, scale) for each in zip(queries, *keys, strict=True)]
    return tuple(map(torch.cat, zip(*states, strict=True)))


def attend(rung: str, q, k, v, starts_q=None, starts_k=None, causal=True, scale=None) -> State:
    """Ragged attention by one of `RAGGED_RUNGS`; without starts, of one sequence."""
    begin = starts_q, starts_k
    if rung in FLASH:
        return FLASH[rung](q, k, v, causal, scale, flash.Sequences(*begin))
    if rung in REFERENCES:
        if starts_q is None:
            return _reference(rung)(q, k, v, causal, scale)
        return reference.ragged_attention(q, k, v, *begin, causal, scale, _reference(rung))
    return attention_forward(q, k, v, causal, scale, *begin, backend=rung)


def _reference(rung: str):
    tiles = [int(size) for size in rung.split()[1:]]
    if not tiles:
        return reference.attention
    return partial(flash_attention, tile_q=tiles[0], tile_k=tiles[1])


# -------------------------------------------------------------------------------------- paged


@dataclass(frozen=True)
class Shape:
    """A batch: contexts, one query each or as many as `queries` says, and its heads.

    Blocks are scattered in the cache, or follow one another if `in_order`.
    """

    contexts: tuple[int, ...]
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    block_size: int = 16
    queries: tuple[int, ...] = ()
    in_order: bool = False

    def __str__(self) -> str:
        batch = f"{len(self.contexts)} of {max(self.contexts, default=0)}"
        return f"{batch} {self.heads}-{self.kv_heads}x{self.head_dim}-{self.block_size}"


def batch(shape: Shape, dtype: torch.dtype, device: str = "cpu", spread: float = 1.0) -> list:
    """q, pools, tables, context_lens and cu_seqlens."""
    generator = torch.Generator().manual_seed(sum(shape.contexts) + shape.head_dim)
    row = (shape.kv_heads, shape.head_dim)
    needed = [-(-context // shape.block_size) for context in shape.contexts]
    order = torch.randperm(sum(needed) + 3, generator=generator)
    order = order.sort().values if shape.in_order else order
    blocks = order.split([*needed, 3])[:-1]
    pools = [torch.full((sum(needed) + 3, shape.block_size, *row), torch.nan) for _ in range(2)]
    tables = torch.full((len(needed), max(needed, default=0) + 2), NO_BLOCK, dtype=torch.int32)
    for i, (mine, context) in enumerate(zip(blocks, shape.contexts, strict=True)):
        tables[i, : len(mine)] = mine.int()
        slots = (mine[:, None] * shape.block_size + torch.arange(shape.block_size)).flatten()
        for pool in pools:
            pool.view(-1, *row)[slots[:context]] = torch.randn(context, *row, generator=generator)
    counts = shape.queries or (1,) * len(needed)
    q = torch.randn(sum(counts), shape.heads, shape.head_dim, generator=generator) * spread
    floats = [tensor.to(device, dtype) for tensor in (q, *pools)]
    lengths = torch.tensor(shape.contexts, dtype=torch.int32, device=device)
    return [*floats, tables.to(device), lengths, starts(counts, device)]


def with_prefix(shape: Shape, shared: int, dtype: torch.dtype, device: str = "cpu") -> list:
    """The operands of a batch in which every table begins with the blocks of the first one."""
    operands = batch(shape, dtype, device)
    operands[3][:, : shared // shape.block_size] = operands[3][0, : shared // shape.block_size]
    return operands


def paged_oracle(q, key_pool, value_pool, tables, contexts, begin, scale=None, causal=True):
    """Every sequence by itself, over the keys and values that its table names."""
    out = torch.zeros(q.shape, dtype=torch.float64, device=q.device)
    lse = torch.full(q.shape[:2], -torch.inf, dtype=torch.float64, device=q.device)
    for i, (rows, context) in enumerate(
        zip(pairwise(begin.tolist()), contexts.tolist(), strict=True)
    ):
        table = tables[i, : -(-context // key_pool.shape[1])].long()
        k, v = (pool[table].flatten(0, 1)[:context] for pool in (key_pool, value_pool))
        mine = slice(*rows)
        out[mine], lse[mine] = naive_attention(q[mine], k, v, causal, scale)
    return out, lse


def attend_paged(rung: str, operands: Sequence, scale=None, causal=True) -> State:
    """Attention over the cache by one of `PAGED_RUNGS`; all are causal but those of `flash`."""
    q, keys, values, tables, contexts, begin = operands
    room, _, name = rung.partition(" ")
    if room == "paged":
        return PAGED[name](*operands, scale)
    if rung in REFERENCES:
        return reference.paged_attention(*operands, scale, attention=_reference(rung))
    if rung in TRITON:
        return compute("paged_attention", rung, q.device.type, *operands, scale)
    sequences = flash.Sequences(begin, None, tables, contexts)
    return FLASH[name](q, keys, values, causal, scale, sequences)


# -------------------------------------------------------------------------------------- rungs

FLASH = flash.RUNGS | {f"hopper_{name}": rung for name, rung in HOPPER.items()}
RAGGED_RUNGS = (*REFERENCES, *FLASH, *TRITON)
FLASH_PAGED = tuple(f"flash {rung}" for rung in FLASH)
DECODE = tuple(f"paged {rung}" for rung in PAGED)
PAGED_RUNGS = ("reference", "tiles 64 96", *DECODE, *FLASH_PAGED, *TRITON)


def dtypes_of(rung: str) -> tuple[torch.dtype, ...]:
    return HALVES if by_16_bytes(rung) else FLOATS


def by_16_bytes(rung: str) -> bool:
    """Whether a rung copies to shared memory beside its threads, in 16 bytes at least."""
    return rung.endswith("mma") or "hopper" in rung


def takes(rung: str, dim: int, group: int, block_size: int = 16) -> bool:
    """Whether a rung takes this head_dim, number of query heads per KV head, and block size."""
    if rung == "paged mma":
        return dim in (64, 128) and group <= 16
    if "hopper" in rung:
        return dim % 8 == 0 and block_size % 8 == 0
    return {
        "shared_tile": dim <= 128,
        "mma": dim <= 128 and dim % 8 == 0,
        "triton": dim % 8 == 0,
    }.get(rung.removeprefix("flash "), True)


def devices_of(rung: str) -> tuple[str, ...]:
    """Where there is a GPU, Triton's kernels are not interpreted."""
    if rung in REFERENCES or ("hopper" in rung and GPU and not HOPPER_GPU):
        return ("cpu",)
    return ("cuda",) if rung in TRITON and GPU else ("cpu", "cuda")


def each(rungs: Sequence[str]) -> pytest.MarkDecorator:
    """Each rung on each device that it runs on, as `rung` and `device`."""
    every = [(rung, device) for rung in rungs for device in devices_of(rung)]
    return pytest.mark.parametrize(
        ("rung", "device"),
        [pytest.param(*one, marks=on_gpu.marks if one[1] == "cuda" else ()) for one in every],
    )


def each_pair(rungs: Sequence[str], cases: Sequence) -> pytest.MarkDecorator:
    """`rung`, `case`, `dtype` and `device`: on the CPU each case in one dtype, in turn, and PyTorch
    in float64, too; on a GPU each in all. Cases have `head_dim`, `heads` and `kv_heads`."""
    every = []
    for number, rung in enumerate(rungs):
        dtypes = dtypes_of(rung)
        fits = [
            case for case in cases
            if takes(rung, case.head_dim, case.heads // case.kv_heads,
                     getattr(case, "block_size", 16))
        ]  # fmt: skip
        for (count, case), device in product(enumerate(fits), devices_of(rung)):
            drawn = [dtypes[(number + count) % len(dtypes)]]
            drawn += [torch.float64] * (rung in REFERENCES)
            for dtype in dtypes if device == "cuda" else drawn:
                name = f"{rung}-{case}-{name_of(dtype)}-{device}"
                marks = on_gpu.marks if device == "cuda" else ()
                every.append(pytest.param(rung, case, dtype, device, id=name, marks=marks))
    return pytest.mark.parametrize(("rung", "case", "dtype", "device"), every)


def total_of(rung: str, dtype: torch.dtype) -> float:
    """A GPU's tensor cores multiply float32 in three parts of 11 bits, and drop the least."""
    return 2e-5 if rung in TRITON and GPU and dtype == torch.float32 else TOTAL[dtype]
