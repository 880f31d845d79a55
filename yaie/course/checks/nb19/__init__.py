"""Exercises of notebook 19: a prefix sum, a search, a tree as arrays, and the host's side of it."""

from __future__ import annotations

from yaie.course.checks.nb19.fill import check_fill, draw_fill
from yaie.course.checks.nb19.host import check_host
from yaie.course.checks.nb19.lookup import check_lookup, draw_lookup
from yaie.course.checks.nb19.scan import check_blelloch, draw_blelloch
from yaie.course.core.manifest import Exercise

NOTEBOOK = "19_radix_and_metadata_kernels"

EXERCISES = [
    Exercise(
        id="19.1",
        notebook=NOTEBOOK,
        slug="blelloch",
        title="A prefix sum, up and down a tree",
        target="csrc/scan/blelloch.cu#blelloch",
        task=(
            "One thread block writes all prefix sums of x: out[i] is the sum of the numbers before "
            "i, for i = 0 … n, so out[0] is 0 and out[n] the sum of all. It takes x in tiles of "
            "`width` numbers, two for each thread, a power of two; in `sums` there are as many "
            "places. Sum up groups of 2, 4, 8, … places (each group's sum in its last place), keep "
            "the whole in `total`, put 0 there, and go down again: each group's last place holds "
            "what lies before the group; the left half gets that, the right half that and the left "
            "half's sum. `carry` is what the tiles before this one add up to."
        ),
        difficulty=3,
        minutes=30,
        hints=(
            "Four parts for each tile: fill `sums` (0 beyond n), up, down, and write carry + "
            "sums[i]. On the way up the number of pairs is halved in each step, on the way down it "
            "is doubled. In a step thread k has the k-th group, if there is one.",
            "In a step with groups of 2 × half places, group k ends at place (k + 1) * 2 * half - "
            "1, and its left half ends `half` places earlier. The next step reads what other "
            "threads wrote in this one: a barrier between them, outside of the `if`. On the way "
            "down the old value of the left half's place is still needed after it was "
            "overwritten. Everybody needs `total` for the carry, and only one thread writes it.",
            "    for (int first = 0; first < n; first += width) {\n"
            "        for (int i = threadIdx.x; i < width; i += blockDim.x) sums[i] = ...;\n"
            "        for (int half = 1; half < width; half *= 2) {\n"
            "            // a barrier\n"
            "            int last = ...;\n"
            "            if (last < width) sums[last] += sums[last - half];\n"
            "        }\n"
            "        // a barrier; thread 0: total = ..., and 0 in its place\n"
            "        for (int half = width / 2; half > 0; half /= 2) {\n"
            "            // a barrier, then the same `last`\n"
            "            // left = ..., the left place, the right place\n"
            "        }\n"
            "        // a barrier; out[first + i] = carry + sums[i], where first + i < n\n"
            "        carry += total;\n"
            "    }\n"
            "    if (threadIdx.x == 0) out[n] = ...;",
        ),
        proves=(
            "The sums are right for 11 lengths and widths in three schedules, nobody reads what "
            "another is writing, and it takes about 2 × n additions."
        ),
        check=check_blelloch,
        picture=draw_blelloch,
    ),
    Exercise(
        id="19.2",
        notebook=NOTEBOOK,
        slug="fill_from_ends",
        title="Metadata of every token, by bisection",
        target="csrc/metadata/fill_from_ends.cu#fill_from_ends",
        task=(
            "Give each of num_tokens tokens a thread. ends[b] is how many tokens the requests 0 … "
            "b have together. Find the request b of token t by bisection: it is the first whose "
            "end is greater than t. The token sees max(kv[b] + 1 + t - ends[b], 0) keys: that goes "
            "to expanded[t], and at most topk to cached[t]. num_tokens may be larger than "
            "ends[batch - 1]: nothing is written beyond. The launch is yours as well; batch and "
            "num_tokens may be any."
        ),
        difficulty=2,
        minutes=20,
        hints=(
            "Ends rise, or stay the same where a request has no tokens. So there is one place "
            "where `ends[b] > t` turns from false to true, and it is found by asking in the middle "
            "of what is left.",
            "Keep two indices: everything before `low` ends at or before t, and `high` ends beyond "
            "it or is the last request. If the middle ends beyond t, it may be the one: high = "
            "middle. If not, it is not: low = middle + 1. When the two meet, that is the request. "
            "The launch has thread blocks of a fixed size, say THREADS, and "
            "ceil_div(num_tokens, THREADS) of them.",
            "    int t = blockIdx.x * blockDim.x + threadIdx.x;\n"
            "    if (...) return;\n"
            "    int low = 0, high = batch - 1;\n"
            "    while (low < high) {\n"
            "        int middle = (low + high) / 2;\n"
            "        if (ends[middle] > t) high = ...; else low = ...;\n"
            "    }\n"
            "    int seen = max(..., 0);\n"
            "and in the launcher\n"
            "    fill_from_ends<<<..., THREADS, 0, stream>>>(ends, kv, topk, expanded, cached,\n"
            "                                                batch, num_tokens);",
        ),
        proves=(
            "Every token found its request at 12 batches, empty requests among them, up to 1,025; "
            "nothing is written beyond the last token, and 1,024 requests take about 10 steps."
        ),
        check=check_fill,
        picture=draw_fill,
    ),
    Exercise(
        id="19.3",
        notebook=NOTEBOOK,
        slug="lookup",
        title="The longest cached prefix, in arrays",
        target="csrc/radix/match_simple.cu#match_simple",
        task=(
            "A thread walks down the tree for one prompt, from node 0. Node i's key is "
            "edges[starts[i]] … edges[starts[i + 1] - 1], its children are the nodes children[i] … "
            "children[i + 1] - 1, and block k of its key has the value values[starts[i] / "
            "block_size + k]. Of `prompt`, `whole` tokens are looked up, which is a multiple of "
            "block_size. Find how many of them the tree holds, in whole blocks: lengths[p]. In "
            "whose key that ends: nodes[p], 0 if nothing is found. And the values found go to "
            "`row`, whose max_blocks places are -1 behind them."
        ),
        difficulty=3,
        minutes=30,
        hints=(
            "RadixTree.match without its dictionary: at a node, look for the child whose key "
            "begins like the rest of the prompt, compare as far as both go, and go on from there.",
            "Two children never begin with the same block, so the first child that shares a whole "
            "block is the right one, and if none does, the walk is over. It is over, too, when an "
            "edge fits in part only, and when `whole` tokens are found. Compare no further than "
            "the key's end and the prompt's, and round what agrees down to whole blocks.",
            "    int node = 0, length = 0, child = children[0];\n"
            "    while (length < whole && child < children[node + 1]) {\n"
            "        const int* key = edges + starts[child];\n"
            "        int shared = ...;  // tokens that agree, rounded down\n"
            "        if (shared == 0) {\n"
            "            ++child;\n"
            "            continue;\n"
            "        }\n"
            "        // row[length / block_size + k] = values[starts[child] / block_size + k]\n"
            "        // length, node\n"
            "        if (shared is less than the whole key) break;\n"
            "        child = children[node];\n"
            "    }\n"
            "    // the rest of the row; lengths[p]; nodes[p]",
        ),
        proves=(
            "Lengths, nodes and blocks are those of the sequences that the tree was made of, for "
            "13 trees in several schedules, and no thread left its prompt, its row or the tree."
        ),
        check=check_lookup,
        picture=draw_lookup,
    ),
    Exercise(
        id="19.4",
        notebook=NOTEBOOK,
        slug="fill_on_the_host",
        title="Metadata in torch, without a hidden copy",
        target="yaie.ops.reference.metadata:fill_draft_extend_metadata",
        task=(
            "The same metadata in torch's operators, for all tokens at once, and what has to stand "
            "before any kernel: how many tokens there are, and whether the outputs have room for "
            "them. If the caller gives num_tokens, nothing may be copied from the device to the "
            "host: no .item(), .tolist() or .cpu(), no loop over a tensor, no operator whose "
            "result has a size that only the device knows."
        ),
        difficulty=2,
        minutes=20,
        hints=(
            "First the number of tokens, then the outputs' lengths, then the work. For the work, "
            "think of a column of all tokens 0 … n - 1: which request is each of, and what does it "
            "need to know of its request?",
            "Where requests end is a cumulative sum. The request of token t is the first whose end "
            "is greater than t: torch.searchsorted with right=True finds it for all tokens. And "
            "kv - q + 1 + i is (kv + 1 - end) + t, of which only the bracket depends on the "
            "request. `x[index]` with a tensor of indices stays on the device.",
            "    if num_tokens is None:\n"
            "        num_tokens = int(...)\n"
            "    for each output: if len(out) < num_tokens: raise ValueError(...)\n"
            "    ends = extend_seq_lens.cumsum(0)\n"
            "    tokens = torch.arange(num_tokens, device=...)\n"
            "    request = torch.searchsorted(...)\n"
            "    seen = (... [request] + tokens).clamp(min=0)\n"
            "    out_seqlens_expanded[:num_tokens] = ...\n"
            "    out_nsa_cache_seqlens[:num_tokens] = ...\n"
            "    return num_tokens",
        ),
        proves=(
            "Both lengths are right for 8 batches, outputs that are too short are refused before "
            "anything is written, and with num_tokens given nothing goes to the host."
        ),
        check=check_host,
    ),
]
