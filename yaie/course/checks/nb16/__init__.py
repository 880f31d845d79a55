"""Exercises of notebook 16: writing to slots, copying blocks, storing 8-bit floats."""

from __future__ import annotations

from yaie.course.checks.nb16.copies import check_copies, draw_copies
from yaie.course.checks.nb16.eight import check_fp8, draw_fp8
from yaie.course.checks.nb16.write import check_write, draw_write
from yaie.course.core.cuda import operator_by
from yaie.course.core.manifest import Exercise

NOTEBOOK = "16_kv_memory_operations"

EXERCISES = [
    Exercise(
        id="16.1",
        notebook=NOTEBOOK,
        slug="reshape_and_cache",
        title="New keys and values to their slots",
        target="csrc/kv/reshape_and_cache_simple.cu#reshape_and_cache",
        task=(
            "A thread block has one token. Copy its row of keys to its slot of `key_pool` and its "
            "row of values to the same slot of `value_pool`, in units of type `V`: a row has "
            "`size` of them, tokens begin `key_stride` and `value_stride` units apart, and slot s "
            "begins at unit s * size. A negative slot is padding: write nothing. Then, in the "
            "launcher, say how many bytes a unit has: the widest of 1, 2, 4, 8 and 16 that every "
            "address, the row and both strides are multiples of."
        ),
        difficulty=2,
        minutes=20,
        hints=(
            "To the kernel the pool is a list of slots: which block a slot belongs to makes no "
            "difference to where it lies. So it is a copy of rows whose targets stand in a list.",
            "The row may have more units than the thread block has threads, so a thread takes "
            "units threadIdx.x, threadIdx.x + blockDim.x, …. The unit has to divide seven "
            "numbers: four addresses, row_bytes, key_stride and value_stride. Put all their bits "
            "together with |: the lowest bit that is set in any of them is the widest unit that "
            "divides all.",
            "In the kernel:\n"
            "    int64_t token = blockIdx.x, slot = slots[token];\n"
            "    if (...) return;\n"
            "    for (int i = threadIdx.x; ...) {\n"
            "        key_pool[slot * ... + i] = keys[token * ... + i];\n"
            "        // and the value\n"
            "    }\n"
            "In the launcher, where x & -x is the lowest bit of x:\n"
            "    int64_t all = 16 | row_bytes | ... | number(keys) | ...;\n"
            "    unit = ...;",
        ),
        proves=(
            "Every row is in its slot and no other slot was touched, for 17 layouts; padding left "
            "no trace, and 16 bytes move at a time where every address allows it."
        ),
        check=check_write,
        picture=draw_write,
        operator="reshape_and_cache",
        fit=operator_by("yaie.ops.cuda.kv:reshape_and_cache_simple"),
    ),
    Exercise(
        id="16.2",
        notebook=NOTEBOOK,
        slug="copy_blocks",
        title="Copy blocks in every layer, in one launch",
        target="csrc/kv/copy_blocks_simple.cu#copy_blocks",
        task=(
            "For each pair of `mapping`, copy block `source` to block `target` in every pool: "
            "mapping[2 * pair] is the source, mapping[2 * pair + 1] the target. A block has `size` "
            "units of type `V`, and block b of a pool begins at unit b * size. The caller chooses "
            "how many thread blocks there are. The result has to be that of copying the pairs one "
            "after the other, as they are listed, even where a block is the target of one pair and "
            "the source of another."
        ),
        difficulty=2,
        minutes=20,
        hints=(
            "Think of all pools' first blocks, one behind the other: num_pools * size places. What "
            "happens to one place has nothing to do with any other place. Which pieces of work "
            "must then be done by one thread, and which may be shared out?",
            "A place is a pool, i / size, and a unit of the block, i % size. The thread that has a "
            "place takes it through all pairs in their order. Then it goes on by the number of "
            "threads in the grid, and stops at num_pools * size.",
            "    int64_t step = ...;  // threads in the grid\n"
            "    for (int64_t i = ...; i < ...; i += step) {\n"
            "        V* pool = pools[...];\n"
            "        for (int pair = 0; ...) {\n"
            "            int64_t source = mapping[2 * pair], target = ...;\n"
            "            pool[target * size + ...] = pool[source * size + ...];\n"
            "        }\n"
            "    }",
        ),
        proves=(
            "Grids of 1 to 8 thread blocks copy every unit of every pool, blocks that meet are "
            "copied in order and without a race, and no other block was touched."
        ),
        check=check_copies,
        picture=draw_copies,
    ),
    Exercise(
        id="16.3",
        notebook=NOTEBOOK,
        slug="fp8",
        title="Store keys and values in 8 bits",
        target="csrc/kv/reshape_and_cache_fp8.cu#reshape_and_cache_fp8",
        task=(
            "`to_fp8(x, scale)` gives the code of the e4m3 number nearest to x / scale: of two as "
            "near the even one, ±448 for all that is beyond, NaN for NaN. "
            "`__nv_cvt_float_to_fp8(float, saturation, __NV_E4M3)` rounds, and with "
            "`__NV_SATFINITE` saturates; with `__NV_NOSAT` it does not. In the kernel, store this "
            "thread's elements of the token's row in both pools, each with its scale: keys and "
            "values have their own, one for each head if `per_head` is 1, else one for all."
        ),
        difficulty=2,
        minutes=15,
        hints=(
            "The pool's range is fixed, ±448, and the keys' is not. What do you divide by, so that "
            "the largest key comes to lie at 448? And what if a later key is larger still?",
            "A row is all heads of a token, one behind the other, head_dim elements each. "
            "`to_float` converts whatever T is. Divide, then let the conversion round and "
            "saturate: clamping with fminf and fmaxf would turn NaN into 448.",
            "    code = __nv_cvt_float_to_fp8(..., ..., __NV_E4M3);\n"
            "and in the kernel:\n"
            "    for (int i = threadIdx.x; i < size; i += blockDim.x) {\n"
            "        int which = per_head ? ... : 0;\n"
            "        key_pool[slot * size + i] = to_fp8(to_float(keys[...]), key_scale[which]);\n"
            "        // and the value\n"
            "    }",
        ),
        proves=(
            "Every number became the nearest of 253, what is too large became 448, NaN stayed NaN, "
            "and each head had its own scale."
        ),
        check=check_fp8,
        picture=draw_fp8,
    ),
]
