"""Kernels that hand tensors to the functions of these exercises, and store what comes back."""

from __future__ import annotations

from yaie.course.core.triton import tl, triton


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
    tl.store(queries_ptr + rows, queries)
    tl.store(heads_ptr + rows, heads)


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
