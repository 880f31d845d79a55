"""Kernels that call the functions of these exercises alone, and the engine's with them in it."""

import importlib.util
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from yaie.course.core.triton import tl, triton
from yaie.ops.reference.attention import paged_attention


@triton.jit
def step_kernel(
    scores_ptr,  # [ROWS, KEYS]
    maximum_ptr,  # [ROWS], as the next two: the state before
    total_ptr,
    out_ptr,  # [ROWS, DIM]
    weights_ptr,  # [ROWS, KEYS], as the next three: the results
    new_maximum_ptr,
    new_total_ptr,
    new_out_ptr,
    scale,
    STEP: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    DIM: tl.constexpr,
):
    """One call of `online_step`."""
    rows = tl.arange(0, ROWS)
    scores = rows[:, None] * KEYS + tl.arange(0, KEYS)[None, :]
    outs = rows[:, None] * DIM + tl.arange(0, DIM)[None, :]
    # fmt: off
    weights, maximum, total, out = STEP(
        tl.load(scores_ptr + scores), scale,
        tl.load(maximum_ptr + rows), tl.load(total_ptr + rows), tl.load(out_ptr + outs),
    )
    # fmt: on
    tl.store(weights_ptr + scores, weights)
    tl.store(new_maximum_ptr + rows, maximum)
    tl.store(new_total_ptr + rows, total)
    tl.store(new_out_ptr + outs, out)


@triton.jit
def finish_kernel(
    maximum_ptr,  # [ROWS]
    total_ptr,  # [ROWS]
    state_ptr,  # [ROWS, DIM]
    out_ptr,  # [ROWS, DIM]
    lse_ptr,  # [ROWS]
    FINISH: tl.constexpr,
    ROWS: tl.constexpr,
    DIM: tl.constexpr,
):
    """One call of `finish`."""
    rows = tl.arange(0, ROWS)
    outs = rows[:, None] * DIM + tl.arange(0, DIM)[None, :]
    # fmt: off
    out, lse = FINISH(
        tl.load(maximum_ptr + rows), tl.load(total_ptr + rows), tl.load(state_ptr + outs)
    )
    # fmt: on
    tl.store(out_ptr + outs, out)
    tl.store(lse_ptr + rows, lse)


@triton.jit
def seen_kernel(
    last_key_ptr,  # [BLOCK_M]
    bounds_ptr,  # [2]: unmasked, end
    first_row,
    num_queries,
    num_keys,
    SEEN: tl.constexpr,
    CAUSAL: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """One call of `seen_keys`."""
    last_key, unmasked, end = SEEN(first_row, num_queries, num_keys, CAUSAL, BLOCK_M, BLOCK_N)
    tl.store(last_key_ptr + tl.arange(0, BLOCK_M), last_key)
    tl.store(bounds_ptr, unmasked)
    tl.store(bounds_ptr + 1, end)


@triton.jit
def attend_kernel(
    q_ptr,  # [BLOCK_M, DIM]
    k_ptr,  # [KV heads, tokens, DIM], for messages: the descriptors read it
    v_ptr,
    last_key_ptr,  # [BLOCK_M], as the next two
    maximum_ptr,
    total_ptr,
    out_ptr,  # [BLOCK_M, DIM]
    new_maximum_ptr,  # [BLOCK_M], as the next
    new_total_ptr,
    new_out_ptr,  # [BLOCK_M, DIM]
    k_desc,  # tiles of [1, BLOCK_N, DIM]
    v_desc,
    kv_head,
    first_key,
    begin,
    end,
    num_keys,
    scale,
    ATTEND: tl.constexpr,
    MASKED: tl.constexpr,
    BEYOND: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    DIM: tl.constexpr,
):
    """One call of `attend`."""
    rows = tl.arange(0, BLOCK_M)
    outs = rows[:, None] * DIM + tl.arange(0, DIM)[None, :]
    # fmt: off
    maximum, total, out = ATTEND(
        tl.load(q_ptr + outs), k_desc, v_desc, kv_head, first_key, begin, end, num_keys,
        tl.load(last_key_ptr + rows), scale, tl.load(maximum_ptr + rows), tl.load(total_ptr + rows),
        tl.load(out_ptr + outs), MASKED, BEYOND, BLOCK_M, BLOCK_N, DIM, "ieee",
    )
    # fmt: on
    tl.store(new_maximum_ptr + rows, maximum)
    tl.store(new_total_ptr + rows, total)
    tl.store(new_out_ptr + outs, out)


@triton.jit
def queries_kernel(
    queries_ptr,  # [ROWS]
    heads_ptr,  # [ROWS]
    first_row,
    kv_head,
    group,
    FIND: tl.constexpr,
    ROWS: tl.constexpr,
):
    """One call of `find_queries`."""
    rows = tl.arange(0, ROWS)
    queries, heads = FIND(first_row + rows, kv_head, group)
    # Both go into addresses, as in the engine's kernel: a fraction is an error there.
    tl.store(queries_ptr + rows + 0 * queries, queries)
    tl.store(heads_ptr + rows + 0 * heads, heads)


@triton.jit
def slots_kernel(
    tables_ptr,  # [batch, max_blocks]
    slots_ptr,  # [KEYS]
    sequence,
    max_blocks,
    start,
    end,
    FIND: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    KEYS: tl.constexpr,
):
    """One call of `find_slots`, for the keys from `start` on; only wanted ones are stored."""
    keys = start + tl.arange(0, KEYS)
    slots = FIND(tables_ptr + sequence * max_blocks, keys, end, BLOCK_SIZE)
    tl.store(slots_ptr + tl.arange(0, KEYS), slots, mask=keys < end)


def operator_by(*names: str, home: str = "paged") -> Callable[[Any], Callable[..., Any]]:
    """For `fit`: `paged_attention` by the engine's kernels, with a learner's functions in them.

    Args:
        names: of the functions.
        home: the module of `yaie.ops.triton` whose kernels call them. Those of "flash" know no
            block tables, so each sequence's keys and values are gathered for them.
    """

    def fit(mine: Any) -> Callable[..., Any]:
        spec = importlib.util.find_spec(f"yaie.ops.triton.{home}")
        module = importlib.util.module_from_spec(spec)  # apart from that of the engine
        spec.loader.exec_module(module)
        for name in names:
            setattr(module, name, mine if len(names) == 1 else getattr(mine, name))
        if home == "flash":
            one = partial(_one_sequence, module.ragged_attention)
            return partial(paged_attention, attention=one)
        num_splits = module._num_splits
        module._num_splits = lambda *sizes: max(2, num_splits(*sizes))  # there is always a merge
        return module.paged_attention

    return fit


def _one_sequence(
    attention: Callable[..., Any], q: Any, k: Any, v: Any, causal: bool, scale: Any
) -> Any:
    ends = torch.arange(2, dtype=torch.int32, device=q.device)
    return attention(q, k, v, ends * len(q), ends * len(k), causal, scale)
