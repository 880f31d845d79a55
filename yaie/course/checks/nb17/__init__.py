"""Exercises of notebook 17: attention by a warp a row and by tiles, and the gradients of keys."""

from __future__ import annotations

from yaie.course.checks.nb17.backward import check_backward, draw_backward
from yaie.course.checks.nb17.bounds import check_bounds, draw_bounds
from yaie.course.checks.nb17.draft import TILE_LOOP
from yaie.course.checks.nb17.row import check_row, draw_row
from yaie.course.checks.nb17.tile import check_tile, draw_tile
from yaie.course.core.manifest import Exercise

NOTEBOOK = "17_flash_attention_cuda"

EXERCISES = [
    Exercise(
        id="17.1",
        notebook=NOTEBOOK,
        slug="row",
        title="The online softmax of a warp",
        target="csrc/flash/row.cu#flash_row",
        task=(
            "A warp has one query of one head, in `q_row`, spread over its lanes as rows.cuh says. "
            "Walk over the keys 0 to seen - 1: load the key's row and its value's row, take the "
            "score from `dot`, times flash.scale, and bring maximum, total and `sum` up to date as "
            "the online softmax does. Then write the row of out, whose numbers begin at "
            "row × head_dim: the sum divided by the total; and, by one lane, lse at `row`: "
            "maximum + log(total). A query that sees no key gets zeros and -INFINITY. Where key "
            "`key` lies, sequence.place(key, flash.block_size) says, in strides behind k and v; "
            "`of_head` elements further the KV head begins."
        ),
        difficulty=2,
        minutes=20,
        hints=(
            "It is the update of notebook 07, for a tile of one score. Every lane knows the score, "
            "for `dot` hands it to all 32; so every lane keeps the same maximum and total, and its "
            "own elements of the sum of values.",
            "When a larger maximum comes, total and `sum` are both scaled down by exp(old maximum "
            "- new maximum), before the new weight is added. At the first key that is exp(-inf) = "
            "0, which is right. Divide once, at the end. `sum.multiply(factor)`, `sum.add(factor, "
            "row)` and `sum.store(to, head_dim, factor)` do the row's part.",
            "    float maximum = -INFINITY, total = 0.0f;\n"
            "    for (int key = 0; key < seen; ++key) {\n"
            "        int64_t place = sequence.place(...);\n"
            "        k_row.load(flash.k + place * flash.k_stride + of_head, head_dim);\n"
            "        v_row.load(...);\n"
            "        float score = dot(...) * flash.scale, larger = fmaxf(maximum, score);\n"
            "        float correction = expf(...), weight = expf(...);\n"
            "        total = ...;\n"
            "        sum.multiply(...);\n"
            "        sum.add(...);\n"
            "        maximum = larger;\n"
            "    }\n"
            "    sum.store(flash.out + row * head_dim, head_dim, seen > 0 ? ... : 0.0f);\n"
            "    if (threadIdx.x % WARP == 0) flash.lse[row] = ...;",
        ),
        proves=(
            "It is right for 13 batches, some causal, some grouped, some in blocks, in three "
            "dtypes; large scores do not overflow, and each key is asked for once."
        ),
        check=check_row,
        picture=draw_row,
    ),
    Exercise(
        id="17.2",
        notebook=NOTEBOOK,
        slug="tile_loop",
        title="A first draft of the tile loop: three faults",
        target="csrc/flash/shared_tile.cu#flash_shared_tile",
        task=(
            "A thread block of 8 warps has a tile of queries, a warp ROWS of its rows, and every "
            "lane the score of one key for each of them. The loop over the tiles of keys is there, "
            "between the marks: somebody's first draft. It compiles, its log-sum-exp is often "
            "right, and its output hardly ever. It has three faults. Find them, and change as "
            "little as you can."
        ),
        difficulty=3,
        minutes=30,
        hints=(
            "Ask three questions. Does every thread come to every barrier, whatever the number of "
            "queries? What has to be divided by what, and when? Who owns `sums`?",
            "A warp without queries has no row to write, but rows of k and v to bring, and "
            "barriers to come to. A tile's weights and those of earlier tiles must be relative to "
            "one maximum, and be divided by one total, that of all tiles. Four rows of scores are "
            "four averages of the same values.",
            "    float maximum[ROWS], total[ROWS] = {}, sums[ROWS][PARTS] = {}, scores[ROWS];\n"
            "    ...\n"
            "            float correction = expf(maximum[r] - finite);\n"
            "            total[r] = total[r] * ... + ...;\n"
            "            for (int i = 0; i < PARTS; ++i) sums[r][i] *= ...;\n"
            "    ...\n"
            "        store_row(flash, row, sums[r], total[r] > 0.0f ? ... : 0.0f, ...);",
        ),
        proves=(
            "It is right for 15 batches, in three schedules and three dtypes, no thread reads or "
            "overwrites a tile too early, and each key is brought once a tile of queries."
        ),
        check=check_tile,
        picture=draw_tile,
        draft=TILE_LOOP,
    ),
    Exercise(
        id="17.3",
        notebook=NOTEBOOK,
        slug="bounds",
        title="Which keys a tile needs, and a row sees",
        target="csrc/flash/shared_tile.cu#flash_shared_tile",
        task=(
            "Before the loop over tiles, a thread block settles four things. `kv_head`: the KV "
            "head that query head `head` reads; flash.group() query heads share one. `queries`: "
            "how many queries this tile has, HEIGHT or fewer, of the sequence.num_queries that "
            "begin at 0; the tile begins at sequence.first_row. `num_keys`: how many keys the tile "
            "walks along, no more than one of its queries sees. And `seen[r]`: how many keys row r "
            "of this warp sees, whose rows begin at `first` in the tile; 0 if there is no such "
            "query. sequence.seen_by(query, flash.causal) is how many keys a query of the sequence "
            "sees."
        ),
        difficulty=2,
        minutes=15,
        hints=(
            "The last query of a tile sees most. What it does not see, no other query of the tile "
            "does.",
            "There are three counts of rows: from the beginning of the sequence (what seen_by "
            "takes), of the tile (`first` + r), of the warp (r). The last tile of a sequence "
            "may be short; rows behind its queries belong to the next sequence, or to nobody.",
            "    kv_head = head / ...;\n"
            "    queries = min(..., HEIGHT);\n"
            "    num_keys = sequence.seen_by(sequence.first_row + ..., flash.causal);\n"
            "    for (int r = 0; r < ROWS; ++r)\n"
            "        if (first + r < ...) seen[r] = sequence.seen_by(..., flash.causal);",
        ),
        proves=(
            "It is right for 11 batches, whatever comes before the queries and behind them, and no "
            "tile of keys is brought that the mask hides."
        ),
        check=check_bounds,
        picture=draw_bounds,
    ),
    Exercise(
        id="17.4",
        notebook=NOTEBOOK,
        slug="keys_gradient",
        title="The gradients of a key and its value",
        target="csrc/flash/backward.cu#backward_keys",
        task=(
            "A warp owns key `key` of KV head `kv_head`; its rows of k and v are in `k_row` and "
            "`v_row`. Go over all queries that see the key, in all heads of its group: load the "
            "query's row of q and of grad_out, compute the weight again, exp(score - lse), and add "
            "to `v_sum` and `k_sum` what the query gives: weight × grad_out, and weight × "
            "(grad_out · v - delta) × q. Then store both at `own`, the latter times scale. If "
            "causal, query i sees the keys 0 to num_k - num_q + i. Row (query, head) of q and "
            "grad_out has the number query × heads + head, and so has its lse and its delta."
        ),
        difficulty=2,
        minutes=25,
        hints=(
            "The forward pass had a loop over keys for a query; this is the same walk from the "
            "other side. Whatever a key's weight went into sends something back to it.",
            "KV head h serves the query heads h × group to h × group + group - 1, all of which "
            "add to the same sums. Of a causal mask read by columns: key j is seen by query j - "
            "(num_k - num_q) and all after it, or by all if that is below 0. No maximum is needed, "
            "since lse is final.",
            "    int group = heads / kv_heads, first = causal ? max(0, ...) : 0;\n"
            "    for (int head = ...; head < ...; ++head)\n"
            "        for (int query = first; query < num_q; ++query) {\n"
            "            size_t row = (size_t)query * heads + head;\n"
            "            q_row.load(q + row * head_dim, head_dim);\n"
            "            grad_row.load(...);\n"
            "            float weight = expf(dot(...) * scale - ...);\n"
            "            v_sum.add(...);\n"
            "            k_sum.add(weight * (... - delta[row]), ...);\n"
            "        }\n"
            "    k_sum.store(grad_k + own, head_dim, scale);\n"
            "    v_sum.store(...);",
        ),
        proves=(
            "Both gradients are right for 9 batches, causal and grouped ones among them, in three "
            "dtypes, without atomics, and each query that sees the key is asked for once."
        ),
        check=check_backward,
        picture=draw_backward,
    ),
]
