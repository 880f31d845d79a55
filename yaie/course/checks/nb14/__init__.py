"""Exercises of notebook 14: a padded tile, a tree with its barriers, warp shuffles, RMSNorm."""

from __future__ import annotations

from yaie.course.checks.nb14.normalize import check_normalize, draw_normalize
from yaie.course.checks.nb14.rms_norm import check_rms_norm, draw_rms_norm
from yaie.course.checks.nb14.row_sum import check_row_sum, draw_row_sum
from yaie.course.checks.nb14.transpose import check_transpose, draw_transpose
from yaie.course.core.cuda import operator_by
from yaie.course.core.manifest import Exercise

NOTEBOOK = "14_memory_barriers_warps"

EXERCISES = [
    Exercise(
        id="14.1",
        notebook=NOTEBOOK,
        slug="transpose",
        title="Transpose through a padded tile",
        target="csrc/transpose/transpose.cu#transpose",
        task=(
            "A thread block of 32 × 8 threads turns a tile of 32 × 32 elements; `blockIdx.x` says "
            "which tile across, `blockIdx.y` which tile down. Read the tile from `in` row by row "
            "into shared memory, wait, and write it to `out` row by row. The matrix has any number "
            "of rows and columns, so the last tiles are cut off. Each warp must ask for neighbors "
            "only (4 sectors a request in float32), and no two lanes may meet in a bank "
            "(1 wavefront), in float16 as well."
        ),
        difficulty=2,
        minutes=20,
        hints=(
            "Two copies, each coalesced: global → tile with threadIdx.x along a row of `in`, then "
            "tile → global with threadIdx.x along a row of `out`. Since a row of `out` is a column "
            "of `in`, the second copy reads the tile by columns.",
            "In both copies a thread touches the elements of `in` and `out` only if their row is "
            "less than rows and their column less than columns. In the first, the column is "
            "blockIdx.x * 32 + threadIdx.x; in the second, it is the row that has threadIdx.x in "
            "it. Between them stands a __syncthreads() that all threads reach. A row of the tile "
            "that is one word of 4 bytes longer than 32 elements begins one bank further on.",
            "    __shared__ T tile[TILE][TILE + ...];\n"
            "    int column = blockIdx.x * TILE + threadIdx.x;\n"
            "    for (int step = threadIdx.y; step < TILE; step += STEP) {\n"
            "        int row = blockIdx.y * TILE + step;\n"
            "        if (...) tile[step][threadIdx.x] = ...;\n"
            "    }\n"
            "    __syncthreads();\n"
            "and once more with a `row` that has threadIdx.x in it, a `column` that has `step`, "
            "and tile[threadIdx.x][step].",
        ),
        proves=(
            "It is right at 8 shapes, in three schedules, with no race, and a warp asks for 4 "
            "sectors and 1 wavefront, the fewest there can be."
        ),
        check=check_transpose,
        picture=draw_transpose,
    ),
    Exercise(
        id="14.2",
        notebook=NOTEBOOK,
        slug="row_sum",
        title="Add up rows, a thread block for each",
        target="csrc/reduce/row_sum_shared.cu#row_sum_shared",
        task=(
            "Write the sum of each row of `x` to `out`. A thread block takes the rows blockIdx.x, "
            "blockIdx.x + gridDim.x, …; its threads share the columns, each adds up its own in a "
            "float, and then all the partial sums meet in `partial`, which has one place for each "
            "thread, and are added there in a tree. The caller chooses the number of thread blocks "
            "and of threads: it need not be a power of two."
        ),
        difficulty=2,
        minutes=20,
        hints=(
            "Let half of the threads add the other half's numbers to their own, then half of "
            "those, and so on. After every step all threads have to wait, since the next step "
            "reads what others have just written.",
            "Before each step the first `count` places hold the whole sum between them. With half "
            "= (count + 1) / 2, place i takes in place i + half, if there is one; after a barrier "
            "the first `half` places hold the whole sum. Every thread comes to every barrier, "
            "whether it adds or not. And no thread may write its place for the next row while "
            "another still reads for this one.",
            "    for (int row = blockIdx.x; row < rows; row += gridDim.x) {\n"
            "        float sum = 0.0f;\n"
            "        for (int column = threadIdx.x; ...) sum += to_float(...);\n"
            "        partial[threadIdx.x] = sum;\n"
            "        // a barrier\n"
            "        for (int count = blockDim.x; count > 1;) {\n"
            "            int half = (count + 1) / 2;\n"
            "            if (threadIdx.x + half < count) ...;\n"
            "            // a barrier\n"
            "            count = half;\n"
            "        }\n"
            "        if (threadIdx.x == 0) out[row] = ...;\n"
            "    }",
        ),
        proves=(
            "The sums are right for 10 shapes of grid and thread block in three schedules, no "
            "thread reads what another is writing, and no request costs more than it must."
        ),
        check=check_row_sum,
        picture=draw_row_sum,
    ),
    Exercise(
        id="14.3",
        notebook=NOTEBOOK,
        slug="normalize_rows",
        title="A total by shuffles, known to every thread",
        target="csrc/reduce/normalize_rows.cu#normalize_rows",
        task=(
            "Divide each row by its sum. The rows are shared out as in 14.2, and there are whole "
            "warps: the number of threads is a multiple of 32. Add up a warp's sums by shuffles, "
            "bring the warps' sums together in `of_warp`, and see to it that every thread of the "
            "thread block knows the total, since each has columns to divide. `warp`, `lane` and "
            "`warps` are there for you."
        ),
        difficulty=3,
        minutes=20,
        hints=(
            "__shfl_xor_sync(mask, value, step) gives a lane the value of the lane whose number "
            "differs in the bit `step`. If all add what they get, with steps 16, 8, 4, 2 and 1, "
            "all of them have the sum of all. The warps' sums, at most 32 of them, are a row of "
            "numbers that one warp can add in the same way; and so can every warp.",
            "Whoever is named in the mask must come: shuffle outside of every `if`, with all 32 "
            "lanes, and let those that have nothing bring a 0. Only `warps` places of of_warp are "
            "written. There are two barriers in every turn of the loop: one before of_warp is "
            "read, one before the next row may write it.",
            "    sum of the thread's columns\n"
            "    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(ALL_LANES, ...);\n"
            "    if (lane == 0) of_warp[...] = sum;\n"
            "    // a barrier\n"
            "    float total = lane < ... ? of_warp[...] : 0.0f;\n"
            "    // the same five shuffles, of total\n"
            "    // a barrier\n"
            "    then divide: out[...] = static_cast<T>(... / total)",
        ),
        proves=(
            "Every thread divided by the right total, for 9 shapes in three schedules and all "
            "dtypes, and every lane that a mask named was there."
        ),
        check=check_normalize,
        picture=draw_normalize,
    ),
    Exercise(
        id="14.4",
        notebook=NOTEBOOK,
        slug="rms_norm",
        title="RMSNorm: one pass, one row a thread block",
        target="csrc/norm/rms_norm_simple.cu#rms_norm_simple",
        task=(
            "Normalize a row: out = x / sqrt(mean(x²) + eps) × weight. A thread block of THREADS "
            "threads has one row of `size` columns, from which it reads at `from` and which it "
            "writes at `to`. `block_sum(value)` gives every thread the sum of all threads' values. "
            "Compute in float: `to_float(x)` and `from_float<T>(value)` convert."
        ),
        difficulty=1,
        minutes=12,
        hints=(
            "Two loops over the thread's columns with one sum between them. The first needs x, the "
            "second needs x, the weight, and one number that is the same for the whole row.",
            "All threads call block_sum, once, those without a column too. The mean is over `size` "
            "columns, whatever the number of threads. eps is inside of the root.",
            "    float sum = 0.0f;\n"
            "    for (int column = threadIdx.x; column < size; column += THREADS) ...\n"
            "    float scale = rsqrtf(block_sum(sum) / ... + ...);\n"
            "    for (...) to[column] = from_float<T>(... * scale * ...);",
        ),
        proves=(
            "It agrees with the formula in float64 for 8 sizes, three schedules and three dtypes, "
            "also where float16 could not hold the sum."
        ),
        check=check_rms_norm,
        picture=draw_rms_norm,
        operator="rms_norm",
        fit=operator_by("yaie.ops.cuda.norm:rms_norm_simple"),
    ),
]
