"""Exercises of notebook 20: statistics of a softmax, Gumbel-max, the threshold of top-p."""

from __future__ import annotations

from yaie.course.checks.nb20.gumbel import check_gumbel, draw_gumbel
from yaie.course.checks.nb20.stats import check_stats, draw_stats
from yaie.course.checks.nb20.top_p import check_top_p, draw_top_p
from yaie.course.core.manifest import Exercise

NOTEBOOK = "20_sampling_kernels"

EXERCISES = [
    Exercise(
        id="20.1",
        notebook=NOTEBOOK,
        slug="softmax_stats",
        title="Maximum and sum of a row in one pass",
        target="csrc/sampling/softmax_stats.cu#softmax_stats",
        task=(
            "Write the maximum of each row to best[row], and the sum of exp(x − maximum) to "
            "total[row], reading the row once. `from` is the row; the threads of the thread block, "
            "whole warps, share its columns. `rescale(total, from, to)` brings a sum that is "
            "relative to one maximum to another, and gives 0 where there is nothing yet. `of_warp` "
            "has room for a pair of each warp; `warp`, `lane` and `warps` are there for you."
        ),
        difficulty=2,
        minutes=20,
        hints=(
            "A pair (best, total) says all there is to know of some columns, and two pairs merge "
            "into one: that is notebook 07. A thread goes through its columns with such a pair, "
            "then lanes merge pairs by shuffles, then one thread or all merge the warps' pairs.",
            "The pair of no columns is (−INFINITY, 0). To merge two pairs, take the larger maximum "
            "and rescale both sums to it before adding. A single column is the pair (x, 1). All 32 "
            "lanes come to each shuffle, and there are two shuffles for a pair. Between the writes "
            "to of_warp and the reads stands a barrier.",
            "    Stats mine{-INFINITY, 0.0f};\n"
            "    for (int column = threadIdx.x; column < columns; column += blockDim.x) {\n"
            "        float value = ..., larger = fmaxf(mine.best, value);\n"
            "        mine = {larger, rescale(mine.total, ..., larger) + rescale(1.0f, ...)};\n"
            "    }\n"
            "    for (int lanes = 16; lanes > 0; lanes /= 2) {\n"
            "        // shuffle both members, merge\n"
            "    }\n"
            "    if (lane == 0) of_warp[...] = ...;\n"
            "    // a barrier; then merge `warps` pairs, and thread 0 writes",
        ),
        proves=(
            "Maximum and sum are right for 9 shapes in three schedules and in all dtypes, near "
            "1000, near −1000 and where all is −inf, and every sector of x is loaded once."
        ),
        check=check_stats,
        picture=draw_stats,
    ),
    Exercise(
        id="20.2",
        notebook=NOTEBOOK,
        slug="gumbel",
        title="Draw by a maximum: Gumbel-max",
        target="csrc/sampling/gumbel.cu#gumbel_sample",
        task=(
            "Write to tokens[row] the token with the largest score of the row, of equals the "
            "first, and −1 if nothing is above −inf. Begin with Best best{-INFINITY, -1}. A score "
            "is a token's logit + temperature[row] × noise, with noise = −log(−log(u)) and u = "
            "((random_bits(seed[row], step[row], id) >> 9) + 0.5) × 2^−23. The threads of the "
            "thread block, whole warps, share the tokens of the row at `from`; `better(a, b)` "
            "compares two of them. `of_warp`, `warp`, `lane` and `warps` are there for you."
        ),
        difficulty=2,
        minutes=20,
        hints=(
            "It is an argmax: nothing is summed, nothing is normalized. A thread keeps the best of "
            "its own tokens, and then two bests become one, as two sums did in notebook 14.",
            "Random bits come from the seed and step of the row and the token's id, and from "
            "nothing else: not from the thread, the row's number or the thread block. Two floats "
            "can be equal: `>` within a thread keeps the first, better() decides between threads. "
            "Both members of a Best are shuffled, by all 32 lanes.",
            "    Best best{-INFINITY, -1};\n"
            "    for (int id = threadIdx.x; id < size; id += blockDim.x) {\n"
            "        float u = ..., score = to_float(from[id]) - temperature[row] * logf(...);\n"
            "        if (score > best.score) best = {...};\n"
            "    }\n"
            "    for (int lanes = 16; lanes > 0; lanes /= 2) {\n"
            "        // a Best from two shuffles, then better(best, other)\n"
            "    }\n"
            "    if (lane == 0) of_warp[warp] = best;\n"
            "    // a barrier; then better() over all warps, and thread 0 writes",
        ),
        proves=(
            "Every row draws the same token whatever the schedule, the number of threads and the "
            "rows beside it, no random number makes the noise infinite, and 3,000 draws pass a "
            "chi-square test."
        ),
        check=check_gumbel,
        picture=draw_gumbel,
    ),
    Exercise(
        id="20.3",
        notebook=NOTEBOOK,
        slug="top_p",
        title="The threshold of top-p without a sort",
        target="csrc/sampling/top_p.cu#top_p_threshold",
        task=(
            "Find the smallest logit that top-p keeps of each row, and the mass of all larger "
            "ones: threshold[row] and above[row]. `wanted` is the mass that has to be reached. "
            "descending(x) is a key of 32 bits, smaller for larger logits; float_of(key) is the "
            "logit again, mass_of(x, best[row]) its mass, an integer. In four rounds, take the key "
            "8 bits at a time: a histogram `bins` of the masses says in which of the 256 bins the "
            "cumulative mass, in ascending order of keys, first reaches `wanted`. The next round "
            "looks only at keys that begin with the bits found so far. There are 256 threads."
        ),
        difficulty=3,
        minutes=30,
        hints=(
            "It is how one looks up a word: the first letter says which part of the book, the "
            "second which part of that. A histogram by the first 8 bits has the mass of each part; "
            "add up parts until the next one would reach what is wanted, and go on inside of it.",
            "From round to round two numbers are carried: the bits found (prefix), and the mass of "
            "all keys before those that begin with them. In a round a key counts if its bits "
            "above the 8 at hand are the prefix; in the first round all count (shifting 32 bits by "
            "32 is undefined in C++). A bin is passed over while mass before it plus its own is "
            "less than wanted. Three barriers: after the zeros, after counting, after reading.",
            "    Mass before = 0;\n"
            "    unsigned prefix = 0;\n"
            "    for (int shift = 24; shift >= 0; shift -= 8) {\n"
            "        bins[threadIdx.x] = 0;  // then a barrier\n"
            "        for (...) {\n"
            "            unsigned key = descending(...);\n"
            "            if (shift == 24 || key >> (shift + 8) == ...) atomicAdd(...);\n"
            "        }  // then a barrier\n"
            "        int bin = 0;\n"
            "        while (before + ... < wanted) before += ...;\n"
            "        prefix = prefix << 8 | bin;  // then a barrier\n"
            "    }",
        ),
        proves=(
            "The thresholds are those of a sort, for 5 sizes in three schedules and in all dtypes, "
            "with logits on both sides of zero and with ties."
        ),
        check=check_top_p,
        picture=draw_top_p,
    ),
]
