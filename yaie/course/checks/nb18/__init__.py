"""Exercises of notebook 18: softmax of a thread block, grouped queries, splits, shared prefixes."""

from __future__ import annotations

from yaie.course.checks.nb18.cascade import check_cascade, draw_cascade
from yaie.course.checks.nb18.grouped import check_grouped, draw_grouped
from yaie.course.checks.nb18.one_block import check_one_block, draw_one_block
from yaie.course.checks.nb18.split import check_split, draw_split
from yaie.course.core.cuda import operator_by
from yaie.course.core.manifest import Exercise

NOTEBOOK = "18_paged_attention_cuda"

EXERCISES = [
    Exercise(
        id="18.1",
        notebook=NOTEBOOK,
        slug="one_block",
        title="The softmax of a thread block",
        target="csrc/paged/one_block.cu#paged_one_block",
        task=(
            "The warps of the thread block have computed the scores of a chunk: `count` of them in "
            "`scores`. Turn them into weights exp(score − best): best is the largest score of "
            "this chunk and of all before it, known to every thread. Bring `best` and `total`, the "
            "sum of the weights so far, up to date, in every thread; say in `rescale` what sums "
            "from before have to be multiplied by. `max_of_warp` and `sum_of_warp` have a place "
            "for each of the WARPS warps. After the last chunk write `out[row * head_dim + d]` and "
            "`lse[row]` of `paged`: zeros and −INFINITY if there was no key."
        ),
        difficulty=2,
        minutes=25,
        hints=(
            "Two reductions, one after the other, and both in two steps: within a warp by "
            "shuffles, then over the warps through shared memory. The second one, of "
            "exp(score − best), can only begin when everybody knows the result of the first.",
            "Three barriers: all scores are written before any is read; all warps' maxima are "
            "written before any is read; all weights and all warps' sums are written before "
            "anybody uses them. best begins at −INFINITY, total at "
            "0, and exp(−INFINITY − best) is 0, so the first chunk needs no case of its own. "
            "warp_sum(x) of common.cuh adds up a warp; for a maximum write the same loop with "
            "fmaxf.",
            "    __syncthreads();\n"
            "    float mine = -INFINITY;\n"
            "    for (int i = threadIdx.x; i < count; i += THREADS) mine = ...;\n"
            "    // shuffles; lane 0 to max_of_warp[warp]; a barrier\n"
            "    float before = best;\n"
            "    for (int w = 0; w < WARPS; ++w) best = ...;\n"
            "    rescale = expf(...);\n"
            "    // weights into scores, their sum: lanes, then warps; a barrier\n"
            "    total = total * ... + ...;\n"
            "and after the loop:\n"
            "    for (int d = threadIdx.x; d < head_dim; d += THREADS)\n"
            "        paged.out[row * head_dim + d] = from_float<T>(...);\n"
            "    if (threadIdx.x == 0) paged.lse[row] = ...;",
        ),
        proves=(
            "Weights, sums and log-sum-exp are right for contexts from 0 to 3,000 tokens in three "
            "schedules and all dtypes, with scores far from zero on both sides, and no barrier is "
            "missing."
        ),
        check=check_one_block,
        picture=draw_one_block,
        operator="paged_attention",
        fit=operator_by("yaie.ops.cuda.paged:one_block"),
    ),
    Exercise(
        id="18.2",
        notebook=NOTEBOOK,
        slug="grouped",
        title="Read a key once for all heads that share it",
        target="csrc/paged/grouped.cu#paged_grouped",
        task=(
            "The thread block has the `heads` query heads q[0], q[1], … of one KV head, and for "
            "each a state. Walk over the keys of `context`: a team of lanes takes a key, loads its "
            "row and the row of values once, and lets every head use them: the score is "
            "`team.sum(dot(q[h], k)) * paged.scale`, and `states[h].add(score, v)` takes it in. "
            "`find_slot(context, key, paged.block_size)` says which slot a key lies in; a slot "
            "holds paged.kv_heads rows of paged.head_dim elements. The warp's teams begin with key "
            "`first_team`. At the end call `finish(team, states, heads, …, …)` with the addresses "
            "of this thread block's first row of paged.out and of paged.lse, row number `row`."
        ),
        difficulty=2,
        minutes=25,
        hints=(
            "Two loops, one in the other: keys outside, heads inside. What is loaded outside is "
            "used inside as often as there are heads. Teams share the keys among them: with 4 "
            "warps of 4 teams, 16 keys in each turn.",
            "All lanes of a warp come to team.sum, so a warp's teams make equally many turns: "
            "loop over the first team's key, and let the others be `inside` or not. Who is not "
            "loads nothing (the table's entry there is garbage) and adds nothing. Let the loop "
            "over heads go to HEADS and skip those from `heads` on: arrays whose index the "
            "compiler knows stay in registers.",
            "    for (int first = first_team; first < context.length; first += ...) {\n"
            "        int key = first + ...;\n"
            "        bool inside = ...;\n"
            "        float k[A_LANE] = {}, v[A_LANE] = {};\n"
            "        if (inside) {\n"
            "            int64_t at = (find_slot(...) * ... + kv_head) * ...;\n"
            "            team.load(paged.key_pool + at, k);  // and v\n"
            "        }\n"
            "        for (int h = 0; h < HEADS; ++h) {\n"
            "            if (h >= heads) continue;\n"
            "            float score = ...;  // all lanes\n"
            "            if (inside) states[h].add(...);\n"
            "        }\n"
            "    }\n"
            "    finish(team, states, heads, paged.out + row * paged.head_dim, ...);",
        ),
        proves=(
            "Every head is right for contexts from 0 to 150 tokens, groups of 1 to 12 heads and "
            "all dtypes, no entry behind a context's end was followed, and each row of keys and "
            "of values was loaded once."
        ),
        check=check_grouped,
        picture=draw_grouped,
        operator="paged_attention",
        fit=operator_by("yaie.ops.cuda.paged:grouped"),
    ),
    Exercise(
        id="18.3",
        notebook=NOTEBOOK,
        slug="split",
        title="Split the context, merge by log-sum-exp",
        target="csrc/paged/split.cu#paged_split",
        task=(
            "In the first kernel say which keys a split has, `begin` to `end` (exclusive): split s "
            "begins with key s * part, has `part` keys, and the last of the `splits` has all that "
            "are left; none goes beyond context.length. A thread block without keys may return. "
            "Each split leaves an output, divided by its own sum, and a log-sum-exp. In the second "
            "kernel merge those of the first `count` splits, which are the ones with keys, to "
            "paged.out and paged.lse of row `row`: split s has left "
            "`parts[(s * rows + row) * paged.head_dim + d]` and `part_lse[s * rows + row]`. With a "
            "count of 0 the row is zeros and −INFINITY."
        ),
        difficulty=2,
        minutes=20,
        hints=(
            "It is exercise 07.2 for any number of states: a weight for each split, the weighted "
            "sum of the parts, divided by the sum of the weights.",
            "The weight of split s is exp(part_lse of s − the largest of them), which is between 0 "
            "and 1. Merged lse: the largest plus the logarithm of the sum of the weights. Each "
            "thread can compute the weights for itself; it owns the elements d = threadIdx.x, "
            "threadIdx.x + MERGERS, …",
            "    begin = ...;\n"
            "    end = split == splits - 1 ? ... : min(...);\n"
            "    if (begin >= end) return;\n"
            "and\n"
            "    float larger = -INFINITY, total = 0.0f;\n"
            "    for (int s = 0; s < count; ++s) larger = ...;\n"
            "    for (int s = 0; s < count; ++s) total += expf(...);\n"
            "    for (int d = threadIdx.x; d < paged.head_dim; d += MERGERS) {\n"
            "        float sum = 0.0f;  // over the splits: weight × part\n"
            "        paged.out[...] = from_float<T>(count > 0 ? ... : 0.0f);\n"
            "    }\n"
            "    if (threadIdx.x == 0) paged.lse[row] = ...;",
        ),
        proves=(
            "Every split saw exactly its keys, and what was merged equals attention over the whole "
            "context, for 1 to 6 splits of equal and unequal length, some of them empty."
        ),
        check=check_split,
        picture=draw_split,
        operator="paged_attention",
        fit=operator_by("yaie.ops.cuda.paged:split"),
    ),
    Exercise(
        id="18.4",
        notebook=NOTEBOOK,
        slug="shared_prefix",
        title="Read a shared prefix once",
        target="yaie.ops.reference.attention:shared_prefix_attention",
        task=(
            "In Python, with two functions that are there: paged_attention computes each "
            "sequence's attention over what its table names, merge_states merges two partial "
            "states. Let each sequence attend to its own tokens, which lie behind the shared "
            "blocks, and all sequences together to the shared ones, with one call of `attention`. "
            "Then merge. shared_len may be 0, and a sequence may have nothing of its own."
        ),
        difficulty=2,
        minutes=15,
        hints=(
            "q is [batch, heads, head_dim]: one query of each of `batch` sequences. To `attention` "
            "it may as well be `batch` queries of a single sequence, whose keys are the shared "
            "ones.",
            "A table without its first entries is the table of the rest, whose context is shorter "
            "by shared_len. cu_seqlens of one query a sequence is 0, 1, 2, …, int32. Each query "
            "sees all shared keys: causal=False. The shared blocks are the first entries of any "
            "table; out of a pool they come as [blocks, block_size, KV heads, head_dim].",
            "    shared_blocks = ...\n"
            "    starts = torch.arange(...)\n"
            "    state = paged_attention(q, key_pool, value_pool, block_tables[:, ...], ...)\n"
            "    if not shared_len:\n"
            "        return state\n"
            "    keys = key_pool[block_tables[0, ...]].flatten(0, 1)  # and values\n"
            "    return merge_states(state, attention(...))",
        ),
        proves=(
            "Merged, both parts are attention over the whole of every context, for sequences with "
            "much, little and nothing of their own, and the shared keys were read once."
        ),
        check=check_cascade,
        picture=draw_cascade,
    ),
]
