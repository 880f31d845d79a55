"""Exercises of notebook 22: the last kernel that the model lacks, and who computes an operator."""

from __future__ import annotations

from yaie.course.checks.nb22.compute import check_compute
from yaie.course.checks.nb22.silu import check_silu, draw_silu
from yaie.course.core.cuda import operator_by
from yaie.course.core.manifest import Exercise

NOTEBOOK = "22_back_ends"

EXERCISES = [
    Exercise(
        id="22.1",
        notebook=NOTEBOOK,
        slug="silu_and_mul",
        title="The operator that you have no kernel for",
        target="csrc/activation/silu_and_mul_simple.cu#silu_and_mul_simple",
        task=(
            "A kernel from the first line to the last: name, parameters, index, bound, formula, "
            "and its launch. Row r of `x` holds `size` gates and then `size` ups; `out[r][c]` is "
            "gate / (1 + exp(-gate)) × up, computed in float32 and rounded once. The launcher is "
            "instantiated for float32, float16 and bfloat16, so the kernel is a template; "
            "`to_float(x)` and `from_float<T>(x)` convert. Change the lines between `begin` and "
            "`end` only."
        ),
        difficulty=2,
        minutes=20,
        hints=(
            "Everything in it you have written before: the index and its bound in 13.1, rows in "
            "14.4. New is only that a row of x is twice as long as a row of out.",
            "Thread i has element i of out: row i / size, column i % size. Its gate is `column` "
            "elements behind the start of row `row` of x, which is row × 2 × size, and its up is "
            "size further.",
            "The kernel:\n"
            "    template <typename T>\n"
            "    __global__ void silu_and_mul_simple(const T* x, T* out, int rows, int size) {\n"
            "        int i = ...;\n"
            "        if (...) return;\n"
            "        const T* of_row = x + (size_t)(...) * 2 * size;\n"
            "        float gate = to_float(of_row[...]), up = to_float(of_row[...]);\n"
            "        out[i] = from_float<T>(...);\n"
            "    }\n"
            "Its launch, with ceil_div(a, b) rounding up:\n"
            "    silu_and_mul_simple<<<ceil_div(..., THREADS), THREADS, 0, stream>>>(...);",
        ),
        proves=(
            "Eleven launches in three dtypes agree with float64, gates of ±100 included, no thread "
            "strays, and a warp reads neighbors."
        ),
        check=check_silu,
        picture=draw_silu,
        operator="silu_and_mul",
        fit=operator_by("yaie.ops.cuda.elementwise:silu_and_mul_simple"),
    ),
    Exercise(
        id="22.2",
        notebook=NOTEBOOK,
        slug="compute",
        title="Who computes an operator",
        target="yaie.ops.registry:compute",
        task=(
            "The heart of the registry. `resolve(operator, backend)` gives the function of a back "
            "end, `order(operator, device)` the names that `auto` tries there, best first; a "
            "function raises `Unsupported` for arguments that it cannot do, and "
            "`announce(operator, backend, reason)` warns, once for each reason. Any backend but "
            "AUTO is a demand."
        ),
        difficulty=2,
        minutes=15,
        hints=(
            'There are two cases with two rules. A name: that function or an error. "auto": the '
            "first that does not raise Unsupported. Which exceptions mean what?",
            "Unsupported never leaves a named back end as it is: it becomes a ValueError with "
            "operator, back end and reason. Under auto it means the next of the order, and is "
            "announced, except that of the last, for whom there is no next. Every other exception "
            "is an error and goes to the caller untouched.",
            "Two parts:\n"
            "    if backend != AUTO:\n"
            "        try:\n"
            "            return ...\n"
            "        except Unsupported as reason:\n"
            "            raise ValueError(...) from reason\n"
            "    *better, last = order(...)\n"
            "    for name in better:\n"
            "        try: ...\n"
            "        except Unsupported as reason: ...\n"
            "    return ...",
        ),
        proves=(
            "Names are obeyed, orders and preferences followed, each fallback is said once, and "
            "no error is swallowed."
        ),
        check=check_compute,
    ),
]
