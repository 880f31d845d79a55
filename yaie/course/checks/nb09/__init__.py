"""Exercises of notebook 09: counted work, the roofline, occupancy."""

from __future__ import annotations

from yaie.course.checks.nb09.occupancy import check_thread_blocks, draw_thread_blocks
from yaie.course.checks.nb09.roof import check_roof, draw_roof
from yaie.course.checks.nb09.work import check_work, draw_work
from yaie.course.core.manifest import Exercise

NOTEBOOK = "09_gpu_memory_and_roofline"

EXERCISES = [
    Exercise(
        id="09.1",
        notebook=NOTEBOOK,
        slug="work",
        title="Count operations and bytes",
        target="yaie.course.lessons.roofline:linear_work, decode_attention_work",
        task=(
            "Count what a linear layer and the attention of a decode step must do at least: "
            "floating-point operations, a multiplication and an addition being two, and bytes "
            "between memory and the chip, each number read once or written once. Return both as "
            "`Work(flops, num_bytes)`."
        ),
        difficulty=1,
        minutes=12,
        hints=(
            "Write the loops that would compute it, and count: how often does the innermost line "
            "run, and how many different numbers does it touch?",
            "Operations belong to pairs: every token with every weight, every query head with "
            "every key. Bytes belong to things: the weights once for the whole batch, keys and "
            "values once for each KV head of each sequence. Inputs and outputs move, too.",
            "linear_work: tokens × weights, twice; itemsize × (weights + inputs + outputs).\n"
            "decode_attention_work:\n"
            "    flops = 4 * batch * context * (which heads?) * head_dim\n"
            "    cache = 2 * batch * context * (which heads?) * head_dim   # keys, values\n"
            "    queries = 2 * batch * (which heads?) * head_dim           # in, out\n"
            "and bytes are itemsize × (cache + queries).",
        ),
        proves="It agrees with loops that count one by one, for 80 random shapes.",
        check=check_work,
        picture=draw_work,
    ),
    Exercise(
        id="09.2",
        notebook=NOTEBOOK,
        slug="roof",
        title="The roofline and its ridge",
        target="yaie.course.lessons.roofline:attainable, ridge_point",
        task=(
            "A device computes at most `peak` operations a second, and moves at most `bandwidth` "
            "bytes a second, both at once. Say how many operations a second it can reach at a "
            "given arithmetic intensity, and at which intensity the two limits meet."
        ),
        difficulty=1,
        minutes=6,
        hints=(
            "Follow the units. Operations a byte, times bytes a second, are operations a second.",
            "Two limits hold at the same time. At the ridge they are equal.",
            "attainable is the smaller of two numbers; ridge_point solves\n"
            "    peak == intensity * bandwidth\n"
            "for the intensity.",
        ),
        proves="It agrees with the time of the slower task for 50 random devices.",
        check=check_roof,
        picture=draw_roof,
    ),
    Exercise(
        id="09.3",
        notebook=NOTEBOOK,
        slug="thread_blocks",
        title="Thread blocks on a multiprocessor",
        target="yaie.course.lessons.roofline:thread_blocks_per_sm",
        task=(
            "A kernel is launched with thread blocks of some threads, each thread with some "
            "registers, each thread block with some shared memory. Say how many thread blocks a "
            "multiprocessor holds at once: the scarcest of four resources decides. The docstring "
            "has the rules of allocation. `round_up` and `WARP` are there for you."
        ),
        difficulty=2,
        minutes=18,
        hints=(
            "Compute four numbers, one for each resource: how many thread blocks would fit if "
            "only that one were scarce? Then think about how the hardware hands it out.",
            "Whole thread blocks, so all divisions round down; whole warps and whole units, so "
            "what one takes is rounded up. A warp's registers lie in one partition: count the "
            "warps that fit into one, then times the partitions.",
            "After the ValueError, and `return 0` for what one thread block may not have:\n"
            "    warps = ...                            # of a thread block\n"
            "    registers_a_warp = round_up(...)\n"
            "    warps_with_registers = sm.partitions * (... // registers_a_warp)\n"
            "    shared_a_block = round_up(...)\n"
            "    return min(four numbers)\n"
            "On capability 7.5 a thread block may take no shared memory at all: mind the division.",
        ),
        proves=(
            "It agrees with placing thread blocks one by one, for 300 random kernels on five "
            "generations of GPUs."
        ),
        check=check_thread_blocks,
        picture=draw_thread_blocks,
    ),
]
