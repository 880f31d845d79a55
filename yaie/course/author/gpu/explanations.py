"""Why the emulator and the real tools differ where they do: for agreement.py."""

_GLOBAL = (
    "racecheck follows shared memory only, as its manual says; this race is in global memory, "
    "which the emulator follows too."
)
_EXITED = (
    "CUDA C++ says nothing of a barrier that only some threads reach. Hardware since Volta waits "
    "for the threads that have not returned, and here the others have: the barrier opens, and "
    "synccheck, which watches the hardware's rule, is silent."
)
_SHUFFLE = (
    "synccheck looks at __syncthreads, __syncwarp and their cooperative groups, not at shuffles; "
    "no tool of compute-sanitizer does. The GPU hands out a value without meaning and goes on."
)

FAULT_EXPLANATIONS = {
    **dict.fromkeys(["blocks_one_address", "blocks_sum", "neighbor_in_place"], _GLOBAL),
    **dict.fromkeys(["global_no_barrier", "no_fence", "device_variable"], _GLOBAL),
    "read_beside_atomic": (
        "racecheck reports pairs of plain accesses. With an atomic on one side it reported none of "
        "six variants of this kernel (add and exchange, int and float, beside a read and beside a "
        "write). The read is in no order with the other warp's additions all the same."
    ),
    "struct_returned": (
        "Thread 32 writes what thread 31, of another warp, has read, in no order with it; but it "
        "reads it too, as the last. racecheck seems to remember the last reader only: of five such "
        "kernels it tells the two whose neighbor reads last, not the three whose writer does."
    ),
    **dict.fromkeys(["early_return", "barrier_in_loop"], _EXITED),
    "warp_against_block": "Undefined, as both say; on this GPU the kernel happens to end.",
    "masks_disagree": (
        "The GPU hangs, as the emulator foretells. synccheck cannot tell: by its manual it does "
        "not notice lanes of a mask that never come."
    ),
    **dict.fromkeys(["returned_lane", "lane_outside_mask", "last_partial_warp"], _SHUFFLE),
    **dict.fromkeys(["not_in_own_mask", "shuffles_in_branches"], _SHUFFLE),
}

# (launcher, memory, operation)
COUNTER_EXPLANATIONS = {
    ("shared_vectors", "global", "load"): (
        "Two lines read in[threadIdx.x]; nvcc loads it once and keeps it in a register, the C++ "
        "compiler under the checks loads it twice. A request costs the same."
    ),
}
