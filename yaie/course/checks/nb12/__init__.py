"""Exercises of notebook 12: the pieces that the attention kernels in Triton are made of."""

from __future__ import annotations

from yaie.course.checks.nb12.merge import check_merge, draw_merged
from yaie.course.checks.nb12.places import check_places, draw_places
from yaie.course.checks.nb12.seen import check_seen, draw_sorted
from yaie.course.checks.nb12.step import check_online, draw_row
from yaie.course.core.manifest import Exercise

NOTEBOOK = "12_triton_attention"

EXERCISES = [
    Exercise(
        id="12.1",
        notebook=NOTEBOOK,
        slug="online_step",
        title="The online softmax in registers",
        target="yaie.ops.triton.online:online_step, finish",
        task=(
            "Two functions that every attention kernel of the engine calls: the step for one tile "
            "of scores, and the end, which divides and takes the logarithm. They get and return "
            "blocks in registers; nothing is loaded or stored. Exponentials are `tl.exp2`, powers "
            "of 2: `scale` has log2(e) in it. What you need besides: `tl.maximum` of two blocks, "
            "`tl.max(x, 1)` and `tl.sum(x, 1)` along a row, `tl.log2`, `tl.where`, and LN_2, "
            "which the file imports."
        ),
        difficulty=2,
        minutes=20,
        hints=(
            "It is exercise 07.1 with the product with the values left to the caller. What was "
            "summed before, `total` and `out`, is relative to the old maximum; one factor for "
            "each row moves both.",
            "After the step every sum is of 2^(score × scale - new maximum). Since the old "
            "maximum is never below LOWEST, neither is the new one, so -inf - -inf cannot occur "
            "and needs no case of its own. At the end only a total of 0 is special, and only for "
            "the division; 2^maximum × total is the whole sum, so its logarithm to base 2 is "
            "maximum + log2(total).",
            "Five lines and two:\n"
            "    higher = tl.maximum(..., tl.max(scores, 1) * ...)\n"
            "    weights = tl.exp2(... - higher[:, None])\n"
            "    rescale = tl.exp2(... - ...)\n"
            "    total = total * ... + tl.sum(weights, 1)\n"
            "    return weights, higher, total, out * ...\n"
            "\n"
            "    out = out / tl.where(total == 0.0, ..., total)[:, None]\n"
            "    return out, (...) * LN_2",
        ),
        proves=(
            "Steps from any state agree with float64, hidden rows and large scores included, and "
            "whole rows in tiles give the output and the natural log-sum-exp."
        ),
        check=check_online,
        picture=draw_row,
    ),
    Exercise(
        id="12.2",
        notebook=NOTEBOOK,
        slug="seen_keys",
        title="Two loops: what a tile of queries sees",
        target="yaie.ops.triton.flash:seen_keys",
        task=(
            "The flash kernel goes through the keys in two loops: first the tiles that every "
            "query of its tile sees whole, without a mask; then those that need one. Compute, for "
            "a tile of queries, where the first loop ends, where the second ends, and the last "
            "key of each query, which is what the mask compares with. `if CAUSAL:` is decided "
            "when the kernel is compiled. `tl.minimum` and `tl.maximum` work on numbers too; "
            "`a // b` of a negative number rounds towards zero."
        ),
        difficulty=2,
        minutes=15,
        hints=(
            "Write down the position of the tile's first query and of its last one in the "
            "sequence. The first sees the fewest keys, the last the most.",
            "Before query 0 there are num_keys - num_queries tokens, a negative number if there "
            "are more queries than keys. A query at position p sees p + 1 keys. The first loop "
            "may go as far as the first query sees, in whole tiles; the second as far as the last "
            "query sees, and never beyond num_keys.",
            "For CAUSAL; without it the three are constant:\n"
            "    rows = first_row + tl.arange(0, BLOCK_M)\n"
            "    past = ...\n"
            "    last_key = rows + ...\n"
            "    seen_by_all = first_row + ...\n"
            "    end = tl.minimum(num_keys, first_row + BLOCK_M + ...)\n"
            "    return last_key, tl.maximum(seen_by_all, 0) // BLOCK_N * ..., end",
        ),
        proves=(
            "For 63 tiles of prompts, chunks and decode steps the three agree with keys counted "
            "one by one."
        ),
        check=check_seen,
        picture=draw_sorted,
    ),
    Exercise(
        id="12.3",
        notebook=NOTEBOOK,
        slug="places",
        title="Rows of a tile, slots of the cache",
        target="yaie.ops.triton.paged:find_queries, find_slots",
        task=(
            "The paged kernel serves all query heads of a KV head with one tile. `find_queries` "
            "says which query and which head each row of it is. `find_slots` looks up in the "
            "block table where keys lie, and must not load an entry that no wanted key needs. "
            "`x.to(tl.int64)` widens a block."
        ),
        difficulty=2,
        minutes=15,
        hints=(
            "Both are a division with remainder. Row r is one of the `group` rows of its query; "
            "key j is one of the BLOCK_SIZE keys of its block.",
            "Rows 0 to group - 1 are query 0, with the heads kv_head × group and following. Key j "
            "is at offset j % BLOCK_SIZE of the block in entry j // BLOCK_SIZE. The load of that "
            "entry has a lane for each key: lanes with keys from `end` on must not take part. "
            "Block numbers are int32, and block × BLOCK_SIZE may not fit in that.",
            "One line, and two:\n"
            "    return rows // ..., kv_head * ... + rows % ...\n"
            "\n"
            "    block = tl.load(table + ..., mask=..., other=0)\n"
            "    return block.to(...) * BLOCK_SIZE + ...",
        ),
        proves=(
            "Rows and heads agree with a list of them, slots with the table, 32 bits are not too "
            "few, and no entry beyond the context was loaded."
        ),
        check=check_places,
        picture=draw_places,
    ),
    Exercise(
        id="12.4",
        notebook=NOTEBOOK,
        slug="merge",
        title="Merge the splits of a context",
        target="yaie.ops.triton.paged:merge_kernel",
        task=(
            "A whole kernel: program r loads the outputs and log-sum-exps that the splits have "
            "left for row r, and stores the merged output and log-sum-exp. Splits beyond a short "
            "context have left -inf. The log-sum-exps are natural here: `tl.exp`, `tl.log`. "
            "LOWEST, which the file imports, is a finite number below any score. Mask dims beyond "
            "HEAD_DIM, and cast the output to `out_ptr.dtype.element_ty`."
        ),
        difficulty=3,
        minutes=25,
        hints=(
            "It is exercise 07.2 for any number of parts at once: exp(lse) of a split is the sum "
            "that its output was divided by. Multiply back, add up, divide by the sum of all.",
            "Take the largest log-sum-exp off before the exponentials, so that nothing overflows. "
            "If it is -inf no split saw a key: -inf - -inf and 0 / 0 are what to guard, and the "
            "result is zeros and -inf. Entry (s, row) of [SPLITS, rows] is s × num_rows + row.",
            "In this order:\n"
            "    row = tl.program_id(0); splits = tl.arange(...); dims = tl.arange(...)\n"
            "    lse = tl.load(part_lse_ptr + splits * ... + row)          # [SPLITS]\n"
            "    maximum = tl.maximum(tl.max(lse), LOWEST)\n"
            "    weights = ...                                             # [SPLITS]\n"
            "    total = ...\n"
            "    source = (splits * ... + row)[:, None] * HEAD_DIM + dims[None, :]\n"
            "    parts = tl.load(parts_ptr + source, mask=..., other=0.0)  # [SPLITS, DIM]\n"
            "    out = tl.sum(parts * weights[:, None], 0) / ...\n"
            "    tl.store(out_ptr + row * HEAD_DIM + dims, ..., mask=...)\n"
            "    tl.store(lse_ptr + row, maximum + ...)",
        ),
        proves=(
            "Splits of any size merge to what float64 gives, with empty ones, rows without a "
            "context and log-sum-exps of 900 among them."
        ),
        check=check_merge,
        picture=draw_merged,
    ),
]
