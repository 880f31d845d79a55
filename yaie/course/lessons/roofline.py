"""How fast an operation can be: its work, the roof of a device, and what fits on a multiprocessor.

An operation does floating-point operations (a multiplication and an addition are two) and moves
bytes between the chip and its memory. The device has a limit per second for each. Which of the two
limits binds is decided by their ratio, the arithmetic intensity. Source: Williams, Waterman and
Patterson, "Roofline: an insightful visual performance model", 2009.
"""

from __future__ import annotations

from dataclasses import dataclass

WARP = 32  # threads that execute together


@dataclass(frozen=True)
class Work:
    """What an operation must do at least.

    Attributes:
        flops: floating-point operations.
        num_bytes: each input read once, each output written once.
    """

    flops: int
    num_bytes: int

    def __add__(self, other: Work) -> Work:
        return Work(self.flops + other.flops, self.num_bytes + other.num_bytes)

    def times(self, count: int) -> Work:
        """The work of doing it `count` times."""
        return Work(count * self.flops, count * self.num_bytes)

    @property
    def intensity(self) -> float:
        """Floating-point operations for each byte that moves."""
        return self.flops / self.num_bytes


# ------------------------------------------------------------------------------------- work


def linear_work(tokens: int, in_features: int, out_features: int, itemsize: int = 2) -> Work:
    """The work of a linear layer without bias: every token's row times one matrix of weights.

    The tokens share the matrix, which is read once for all of them.

    Args:
        tokens: rows of the input, `[tokens, in_features]`, and of the output,
            `[tokens, out_features]`.
        itemsize: bytes of a number, of weights, inputs and outputs alike.

    Returns:
        Operations: a multiplication and an addition for each weight and token. Bytes: weights and
        inputs read, outputs written.
    """
    weights = in_features * out_features
    rows = tokens * (in_features + out_features)
    return Work(2 * tokens * weights, itemsize * (weights + rows))


def decode_attention_work(
    batch: int, context: int, num_heads: int, num_kv_heads: int, head_dim: int, itemsize: int = 2
) -> Work:
    """The work of attention in a decode step: one new query for each sequence, over its cache.

    Every query head multiplies its query with each key of its sequence, and each value with a
    weight. The `num_heads // num_kv_heads` query heads of a group read the same keys and values,
    which come from memory once. The softmax between the two products is not counted.

    Args:
        batch: sequences, each with a cache of its own.
        context: tokens of each sequence, the new one included.
        itemsize: bytes of a number, of queries, keys, values and outputs alike.

    Returns:
        Operations of the two products. Bytes: keys, values and queries read, outputs written.
    """
    flops = 4 * batch * context * num_heads * head_dim
    cache = 2 * batch * context * num_kv_heads * head_dim
    queries = 2 * batch * num_heads * head_dim  # in and out
    return Work(flops, itemsize * (cache + queries))


def attention_work(
    batch: int,
    new: int,
    past: int,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    itemsize: int = 2,
) -> Work:
    """The work of causal attention of `new` tokens after `past` cached ones, for each sequence.

    With one new token it is `decode_attention_work`. Scores that the mask hides are not counted.
    """
    visible = new * past + new * (new + 1) // 2
    flops = 4 * batch * visible * num_heads * head_dim
    cache = 2 * batch * (past + new) * num_kv_heads * head_dim
    queries = 2 * batch * new * num_heads * head_dim
    return Work(flops, itemsize * (cache + queries))


# ------------------------------------------------------------------------------------- the roof


def attainable(intensity: float, peak: float, bandwidth: float) -> float:
    """The most operations per second that a device can do at an arithmetic intensity.

    Args:
        intensity: operations per byte.
        peak: operations per second, if no byte had to move.
        bandwidth: bytes per second.

    Returns:
        Operations per second: what computing allows, or what moving allows, whichever is less.
    """
    return min(peak, intensity * bandwidth)


def ridge_point(peak: float, bandwidth: float) -> float:
    """The intensity at which computing takes as long as moving, in operations per byte.

    Below it an operation is memory-bound, above it compute-bound.

    Args:
        peak: operations per second.
        bandwidth: bytes per second.
    """
    return peak / bandwidth


# ------------------------------------------------------------------------------------- occupancy


@dataclass(frozen=True)
class Multiprocessor:
    """What a streaming multiprocessor (SM) has, and what it hands out at a time.

    Attributes:
        threads: resident at most, of all thread blocks together.
        thread_blocks: resident at most.
        registers: of 32 bits each.
        shared_bytes: shared memory for all thread blocks together.
        threads_per_block, shared_per_block: the most that one thread block may have.
        registers_per_thread: the most that one thread may have.
        reserved_shared: bytes of shared memory that CUDA takes for itself in each thread block.
        partitions: parts of equal size into which the registers are divided. A warp is in one.
        register_unit: registers are given to a warp in multiples of it.
        shared_unit: shared memory is given to a thread block in multiples of it, in bytes.
    """

    threads: int
    thread_blocks: int
    shared_bytes: int
    shared_per_block: int
    registers: int = 65536
    threads_per_block: int = 1024
    registers_per_thread: int = 255
    reserved_shared: int = 1024
    partitions: int = 4
    register_unit: int = 256
    shared_unit: int = 128


KIB = 1024
MULTIPROCESSORS = {  # by compute capability
    "7.5": Multiprocessor(1024, 16, 64 * KIB, 64 * KIB, reserved_shared=0, shared_unit=256),
    "8.0": Multiprocessor(2048, 32, 164 * KIB, 163 * KIB),
    "8.6": Multiprocessor(1536, 16, 100 * KIB, 99 * KIB),
    "8.9": Multiprocessor(1536, 24, 100 * KIB, 99 * KIB),
    "9.0": Multiprocessor(2048, 32, 228 * KIB, 227 * KIB),
}
HOPPER = MULTIPROCESSORS["9.0"]


def thread_blocks_per_sm(
    threads: int, registers: int, shared_bytes: int, sm: Multiprocessor = HOPPER
) -> int:
    """How many thread blocks of a kernel are resident on an SM together.

    A thread block is resident as a whole or not at all. Four things may run out:

    - threads, of which a thread block takes whole warps of 32;
    - places for thread blocks;
    - registers: a warp takes 32 times those of a thread, rounded up to a multiple of
      `sm.register_unit`, from one of the `sm.partitions` equal parts of `sm.registers`; the warps
      of a thread block may lie in any parts;
    - shared memory: a thread block takes `shared_bytes` and `sm.reserved_shared`, together rounded
      up to a multiple of `sm.shared_unit`.

    Args:
        threads: of a thread block.
        registers: of a thread.
        shared_bytes: of a thread block, as the kernel declares or is launched with.
        sm: what the multiprocessor has; by default that of an H100 or H200.

    Returns:
        The number; 0 if a thread block asks for more than `sm` allows one, and cannot be launched.

    Raises:
        ValueError: threads or registers below 1, or shared_bytes below 0.
    """
    if threads < 1 or registers < 1 or shared_bytes < 0:
        raise ValueError(
            "threads and registers must be at least 1 and shared_bytes at least 0, "
            f"got {threads}, {registers} and {shared_bytes}"
        )
    if (
        threads > sm.threads_per_block
        or registers > sm.registers_per_thread
        or shared_bytes > sm.shared_per_block
    ):
        return 0
    warps = -(-threads // WARP)
    registers_per_warp = round_up(WARP * registers, sm.register_unit)
    warps_with_registers = sm.partitions * (sm.registers // sm.partitions // registers_per_warp)
    shared_per_block = round_up(shared_bytes + sm.reserved_shared, sm.shared_unit)
    return min(
        sm.threads // (WARP * warps),
        sm.thread_blocks,
        warps_with_registers // warps,
        sm.shared_bytes // max(shared_per_block, 1),
    )


def occupancy(
    threads: int, registers: int, shared_bytes: int, sm: Multiprocessor = HOPPER
) -> float:
    """The fraction of a multiprocessor's warps that are resident; arguments as above."""
    warps = thread_blocks_per_sm(threads, registers, shared_bytes, sm) * -(-threads // WARP)
    return warps * WARP / sm.threads


def round_up(number: int, unit: int) -> int:
    """The least multiple of `unit` that is at least `number`."""
    return -(-number // unit) * unit
