"""Copying and gathering the paged cache, and a cache of 8-bit floats."""

from collections.abc import Sequence

import torch

from yaie.ops import kv
from yaie.ops.attention import check_starts
from yaie.ops.checks import FLOATS, FP8, check_distinct, check_range, check_tensor, known
from yaie.ops.library import define
from yaie.ops.registry import AUTO


def reshape_and_cache(
    keys: torch.Tensor,
    values: torch.Tensor,
    key_pool: torch.Tensor,
    value_pool: torch.Tensor,
    slot_mapping: torch.Tensor,
    *,
    key_scale: torch.Tensor | None = None,
    value_scale: torch.Tensor | None = None,
    backend: str = AUTO,
) -> None:
    """`yaie.ops.kv.reshape_and_cache`, also into pools of float8_e4m3fn.

    Args:
        keys, values, key_pool, value_pool, slot_mapping: see `yaie.ops.kv.reshape_and_cache`.
        key_scale, value_scale: for pools of float8_e4m3fn: float32 `[KV heads]` or `[1]`. What is
            stored is the nearest code to x / scale, and ±448 for what lies beyond; NaN stays.
    """
    arguments = (keys, values, key_pool, value_pool, slot_mapping)
    scales = _check_scales(key_pool, key_scale, value_scale)
    if not scales:
        kv.reshape_and_cache(*arguments, backend=backend)
        return
    kv.reshape_and_cache.check(*arguments)
    _reshape_and_cache_fp8(*arguments, *scales, backend=backend)


def _check_scales(
    key_pool: torch.Tensor, key_scale: torch.Tensor | None, value_scale: torch.Tensor | None
) -> tuple[torch.Tensor, ...]:
    """Both scales of pools of float8_e4m3fn, or nothing for other pools, which have none."""
    names = {"key_scale": key_scale, "value_scale": value_scale}
    if key_pool.dtype != FP8:
        for name, scale in names.items():
            if scale is not None:
                raise ValueError(f"{name} is for pools of float8_e4m3fn, got {key_pool.dtype}")
        return ()
    heads = key_pool.shape[2]
    for name, scale in names.items():
        if scale is None:
            raise ValueError(f"{name} is needed for pools of float8_e4m3fn, got None")
        check_tensor(name, scale, ("heads",), (torch.float32,), like=key_pool)
        if len(scale) not in (1, heads) or len(scale) != len(names["key_scale"]):
            raise ValueError(
                f"key_scale and value_scale must both have shape [{heads}] or both [1], got "
                f"{name} of shape {list(scale.shape)}"
            )
    return key_scale, value_scale


def gather_kv(
    key_pool: torch.Tensor,
    value_pool: torch.Tensor,
    block_tables: torch.Tensor,
    cu_seqlens: torch.Tensor,
    num_tokens: int,
    *,
    key_scale: torch.Tensor | None = None,
    value_scale: torch.Tensor | None = None,
    dtype: torch.dtype = torch.float32,
    backend: str = AUTO,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The keys and values of some sequences, out of the paged cache into contiguous memory.

    Args:
        key_pool, value_pool: `[num_blocks, block_size, KV heads, head_dim]`.
        block_tables: int32 `[batch, max_blocks]`; a row may hold anything past its
            sequence's last block.
        cu_seqlens: int32 `[batch + 1]`, where each sequence's tokens begin in the results, and
            where the last one's end.
        num_tokens: of all sequences, `cu_seqlens[-1]`. Given by the caller, which knows it, so that
            nothing waits for a GPU to return it.
        key_scale, value_scale, dtype: of pools of float8_e4m3fn: float32 `[KV heads]` or `[1]`, and
            in what dtype the results are wanted. Other pools have none, and keep their dtype.

    Returns:
        keys, values `[num_tokens, KV heads, head_dim]`.
    """
    shape = ("num_blocks", "block_size", "kv_heads", "head_dim")
    check_tensor("key_pool", key_pool, shape, (*FLOATS, FP8), contiguous=True)
    shape, of_pool = tuple(key_pool.shape), (key_pool.dtype,)
    check_tensor("value_pool", value_pool, shape, of_pool, like=key_pool, contiguous=True)
    wanted = ("batch", "max_blocks")
    check_tensor("block_tables", block_tables, wanted, (torch.int32,), like=key_pool)
    wanted = (len(block_tables) + 1,)
    check_tensor("cu_seqlens", cu_seqlens, wanted, (torch.int32,), like=key_pool)
    _check_sequences(block_tables, cu_seqlens, num_tokens, shape)
    if not _check_scales(key_pool, key_scale, value_scale):
        dtype = key_pool.dtype
    elif dtype not in FLOATS:
        raise TypeError(f"dtype must be float32, float16, bfloat16 or float64, got {dtype}")
    arguments = (key_pool, value_pool, block_tables, cu_seqlens, num_tokens)
    return _gather_kv(*arguments, key_scale, value_scale, dtype, backend=backend)


def _check_sequences(
    tables: torch.Tensor, starts: torch.Tensor, num_tokens: int, pool_shape: Sequence[int]
) -> None:
    """Check that starts begin at 0, end at num_tokens, never fall, and fit the tables."""
    if not isinstance(num_tokens, int) or isinstance(num_tokens, bool):
        raise TypeError(f"num_tokens must be an int, got {type(num_tokens).__name__}")
    if num_tokens < 0:
        raise ValueError(f"num_tokens must be 0 or more, got {num_tokens}")
    if not known(starts):
        return
    check_starts("cu_seqlens", starts.tolist(), num_tokens, "the results")
    num_blocks, block_size = pool_shape[:2]
    needed = (starts.diff() + block_size - 1) // max(block_size, 1)
    if len(needed) and needed.max() > tables.shape[1]:
        raise ValueError(
            f"block_tables has {tables.shape[1]} blocks per sequence, cu_seqlens needs "
            f"{int(needed.max())}"
        )
    used = torch.arange(tables.shape[1]) < needed[:, None]
    check_range("block_tables", tables[used], num_blocks)


def copy_blocks(
    key_pools: Sequence[torch.Tensor],
    value_pools: Sequence[torch.Tensor],
    block_mapping: torch.Tensor,
    *,
    backend: str = AUTO,
) -> None:
    """Copy blocks within the cache, in every layer.

    Args:
        key_pools, value_pools: one tensor per layer,
            `[num_blocks, block_size, KV heads, head_dim]`; written in place.
        block_mapping: int64 `[pairs, 2]`, source and target of each copy; no target twice. Sources
            are read before any target is written.
    """
    check_tensor("block_mapping", block_mapping, ("pairs", 2), (torch.int64,))
    check_distinct("block_mapping", block_mapping[:, 1], "target")
    if len(key_pools) != len(value_pools):
        raise ValueError(
            f"key_pools and value_pools must be one per layer, got {len(key_pools)} and "
            f"{len(value_pools)}"
        )
    shape = ("num_blocks", "block_size", "kv_heads", "head_dim")
    for name, pools in (("key_pools", key_pools), ("value_pools", value_pools)):
        for layer, pool in enumerate(pools):
            check_tensor(f"{name}[{layer}]", pool, shape, (*FLOATS, FP8), like=block_mapping)
            check_range("block_mapping", block_mapping, pool.shape[0])
    if key_pools:
        _copy_blocks(list(key_pools), list(value_pools), block_mapping, backend=backend)


def copy_blocks_cuda(
    key_pools: Sequence[torch.Tensor],
    value_pools: Sequence[torch.Tensor],
    block_mapping: torch.Tensor,
) -> None:
    """`copy_blocks` by the CUDA C++ kernel: on a GPU, or on a CPU emulated.

    It has the interface of vLLM's `copy_blocks`: in place, with a list of pools, one per layer,
    and int64 pairs. Other interfaces take one tensor, or return a copy, which needs a second cache.
    """
    copy_blocks(key_pools, value_pools, block_mapping, backend="cuda")


_reshape_and_cache_fp8 = define(
    "reshape_and_cache_fp8(Tensor keys, Tensor values, Tensor(a!) key_pool, "
    "Tensor(b!) value_pool, Tensor slot_mapping, Tensor key_scale, Tensor value_scale, *, "
    'str backend="auto") -> ()',
    lambda *_: None,
)


_gather_kv = define(
    "gather_kv(Tensor key_pool, Tensor value_pool, Tensor block_tables, Tensor cu_seqlens, "
    "SymInt num_tokens, Tensor? key_scale, Tensor? value_scale, ScalarType dtype, *, "
    'str backend="auto") -> (Tensor, Tensor)',
    lambda key_pool, value_pool, tables, starts, num_tokens, key_scale, value_scale, dtype: (
        key_pool.new_empty(num_tokens, *key_pool.shape[2:], dtype=dtype),
        value_pool.new_empty(num_tokens, *key_pool.shape[2:], dtype=dtype),
    ),
)


_copy_blocks = define(
    "copy_blocks(Tensor(a!)[] key_pools, Tensor(b!)[] value_pools, Tensor block_mapping, *, "
    'str backend="auto") -> ()',
    lambda *_: None,
)
