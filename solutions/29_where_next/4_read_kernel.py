"""Solution of exercise 29.4: Read a kernel that you did not write.

`csrc/vllm_style/paged_attention.cu` computes paged attention as vLLM's first kernels do. Answer
four questions about it: which tokens a thread scores, where the block table leads to, what
version 2 launches and keeps, and which names stand for what. The constants in this module are
those that the launchers compile it with.

Generated from tokens_of, key_place, version_two, names in yaie/course/lessons/reading.py.
Edit it there, and run `python -m yaie.course build`.
"""

from __future__ import annotations

from collections.abc import Sequence

from yaie.course.lessons.reading import (
    BLOCK_SIZE,
    HEAD_SIZE,
    NUM_WARPS,
    PARTITION_SIZE,
    THREAD_GROUP_SIZE,
    WARP_SIZE,
    X,
)


def tokens_of(thread: int, seq_len: int, partition: int | None = None) -> list[int]:
    """The tokens of a sequence whose scores a thread helps to compute, in its order.

    Tokens at `seq_len` and after it do not count: their scores are dropped.

    Args:
        thread: threadIdx.x, from 0 to 127.
        seq_len: tokens of the sequence.
        partition: blockIdx.z of version 2; None for version 1.
    """
    start, end = 0, -(-seq_len // BLOCK_SIZE)  # blocks
    if partition is not None:
        start = partition * PARTITION_SIZE // BLOCK_SIZE
        end = min(start + PARTITION_SIZE // BLOCK_SIZE, end)
    offset = thread // THREAD_GROUP_SIZE % BLOCK_SIZE
    blocks = range(start + thread // WARP_SIZE, end, NUM_WARPS)
    tokens = [block * BLOCK_SIZE + offset for block in blocks]
    return [token for token in tokens if token < seq_len]


def key_place(
    block_table: Sequence[int], token: int, kv_head: int, element: int, num_kv_heads: int
) -> int:
    """The index in the flat k_cache of one element of a token's key.

    Args:
        block_table: the sequence's row of block_tables.
        token, kv_head, element: which; the element is one of HEAD_SIZE.
    """
    block, offset = block_table[token // BLOCK_SIZE], token % BLOCK_SIZE
    group = (block * num_kv_heads + kv_head) * (HEAD_SIZE // X) + element // X
    return (group * BLOCK_SIZE + offset) * X + element % X


def version_two(seq_lens: Sequence[int], num_heads: int, max_seq_len: int) -> tuple[int, int, int]:
    """What version 2 launches and needs for a batch.

    Args:
        max_seq_len: what the launcher is told; at least 1, and no sequence is longer.

    Returns:
        the thread blocks of paged_attention_v2_kernel that compute something; all thread blocks of
        that kernel, without those of the reduce kernel; the numbers in exp_sums, max_logits and
        tmp_out together.
    """
    busy = num_heads * sum(-(-length // PARTITION_SIZE) for length in seq_lens)
    launched = num_heads * len(seq_lens) * -(-max_seq_len // PARTITION_SIZE)
    return busy, launched, launched * (HEAD_SIZE + 2)


def names() -> dict[str, str]:
    """The kernel's own names, by what is asked.

    - "maximum": the largest score that a thread has met so far;
    - "block": the entry of the block table that was followed;
    - "weights": the shared memory of the scores, and later of their softmax;
    - "warps": the shared memory by which the warps tell each other their maxima;
    - "partitions": the memory by which partitions tell their maxima to the second kernel.
    """
    return {
        "maximum": "qk_max",
        "block": "physical_block_number",
        "weights": "logits",
        "warps": "red_smem",
        "partitions": "max_logits",
    }
