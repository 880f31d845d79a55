"""Exercises of notebook 13: an index and its bound, float4, half precision, a grid-stride loop."""

from __future__ import annotations

from yaie.course.checks.nb13.add import check_vector_add
from yaie.course.checks.nb13.float4 import check_float4, draw_float4
from yaie.course.checks.nb13.relu import check_add_relu, draw_add_relu
from yaie.course.checks.nb13.stride import check_stride
from yaie.course.core.manifest import Exercise

NOTEBOOK = "13_first_cuda_kernel"

EXERCISES = [
    Exercise(
        id="13.1",
        notebook=NOTEBOOK,
        slug="vector_add",
        title="Add two vectors, one element a thread",
        target="csrc/elementwise/vector_add_scalar.cu#vector_add",
        task=(
            "Write a kernel and its launch. In the kernel: which element is this thread's, does it "
            "exist, and its sum. In the launcher: how many thread blocks of `THREADS` threads "
            "cover `n` elements, and the launch on `stream`. Change the lines between `begin` and "
            "`end` only, in both places."
        ),
        difficulty=1,
        minutes=10,
        hints=(
            "Every thread runs the same lines. What differs is threadIdx.x, its number in its "
            "thread block, and blockIdx.x, the number of its thread block. From these two it works "
            "out which element it is responsible for.",
            "Before thread block b there are b thread blocks of blockDim.x threads each. The grid "
            "must have at least n threads, so the division rounds up; those that are left over in "
            "the last thread block must not touch memory.",
            "In the kernel:\n"
            "    int i = ... * blockDim.x + ...;\n"
            "    if (...) out[i] = ...;\n"
            "In the launcher, with (n + THREADS - 1) / THREADS thread blocks:\n"
            "    vector_add<<<thread_blocks, THREADS, 0, stream>>>(x, y, out, n);",
        ),
        proves=(
            "Every element is right for 13 lengths, no thread touched memory that is not there, "
            "and the order of the threads made no difference."
        ),
        check=check_vector_add,
    ),
    Exercise(
        id="13.2",
        notebook=NOTEBOOK,
        slug="float4",
        title="Four elements in one load",
        target="csrc/elementwise/vector_add_float4.cu#vector_add_float4",
        task=(
            "Let each thread add four neighboring elements, read and written 16 bytes at a time "
            "through pointers to `float4` (its members are `x`, `y`, `z`, `w`). Two things stand "
            "in the way: `n` need not be a multiple of 4, and a tensor that is a slice need not "
            "begin at an address that is a multiple of 16. `is_aligned(pointer)` tells about the "
            "second, and `vector_add`, which takes one element a thread, is there for that case."
        ),
        difficulty=2,
        minutes=15,
        hints=(
            "Think of the vector as cut into pieces of four, of which the last may be shorter. A "
            "thread has one piece. Is it whole, or is it the short one, or is it past the end?",
            "Piece number p begins at element 4 × p and is whole if 4 × p + 4 <= n. In a piece "
            "that is not whole the elements up to n - 1 are added one by one. The grid needs a "
            "thread for every piece, the short one included: a thread block covers 4 × THREADS "
            "elements.",
            "In the kernel, with `first` as the piece's first element:\n"
            "    if (first + 4 <= n) {\n"
            "        float4 a = *reinterpret_cast<const float4*>(x + first);\n"
            "        ...\n"
            "        *reinterpret_cast<float4*>(out + first) = make_float4(...);\n"
            "    } else {\n"
            "        for (int i = first; ...) ...\n"
            "    }\n"
            "In the launcher: vector_add_float4 if all three pointers are aligned, else "
            "vector_add, each with its own number of thread blocks.",
        ),
        proves=(
            "It is right for 13 lengths and four ways to be misaligned, stays inside its tensors, "
            "and asks for 16 bytes a thread where it may."
        ),
        check=check_float4,
        picture=draw_float4,
    ),
    Exercise(
        id="13.3",
        notebook=NOTEBOOK,
        slug="add_relu",
        title="Add and ReLU in one pass, in half precision",
        target="csrc/elementwise/add_relu_half2.cu#add_relu",
        task=(
            "Compute relu(x + y) of float16 vectors without writing the sum to memory in between. "
            "A thread has two neighboring elements, a `__half2` of 4 bytes: `__hadd2(a, b)` adds "
            "two pairs, `__hmax2_nan(a, b)` takes the larger of each, and NaN where one is NaN, "
            "`__float2half2_rn(0.0f)` is a pair of zeros. For a single `__half` they are called "
            "`__hadd`, `__hmax_nan` and `__float2half`. The launch is written. The results have to "
            "be those of `torch.relu(x + y)`, every one."
        ),
        difficulty=2,
        minutes=12,
        hints=(
            "It is the shape of 13.2 with two in place of four: whole pairs, and perhaps one "
            "element that is alone.",
            "The pair of a thread begins at element 2 × its number in the grid. Both are there if "
            "first + 2 <= n; otherwise one is, if first < n; otherwise none.",
            "With `first` as the pair's first element:\n"
            "    if (first + 2 <= n) {\n"
            "        __half2 a = *reinterpret_cast<const __half2*>(x + first);\n"
            "        ...\n"
            "        *reinterpret_cast<__half2*>(out + first) = __hmax2_nan(..., zeros);\n"
            "    } else if (...) {\n"
            "        out[first] = ...;  // the same with single numbers\n"
            "    }",
        ),
        proves=(
            "All numbers are PyTorch's, among them NaN, infinities and sums too large for float16, "
            "and odd lengths lose nothing."
        ),
        check=check_add_relu,
        picture=draw_add_relu,
    ),
    Exercise(
        id="13.4",
        notebook=NOTEBOOK,
        slug="grid_stride",
        title="A grid of any size: the grid-stride loop",
        target="csrc/elementwise/vector_add_stride.cu#vector_add",
        task=(
            "Here the caller says how many thread blocks there are, and there may be far fewer "
            "threads than elements, or more. Write the kernel so that the whole vector is added, "
            "every element once, and so that in every turn of the loop the threads of a warp take "
            "neighboring elements."
        ),
        difficulty=2,
        minutes=10,
        hints=(
            "A thread begins with the element it would have had in 13.1. When it has added that "
            "one, which elements are taken by the others, and which is the next that nobody has?",
            "All threads of the grid together take as many elements in one turn as there are "
            "threads: gridDim.x * blockDim.x. After k turns a thread is at its first element plus "
            "k times that number.",
            "A for loop whose three parts are the first element, the bound of 13.1, and the step:\n"
            "    for (long long i = ...; i < n; i += ...) { ... }\n"
            "(long long because i + step may be more than an int can hold.)",
        ),
        proves=(
            "Grids of 1 to 7 thread blocks add every element once, and no request moves a sector "
            "too many."
        ),
        check=check_stride,
    ),
]
