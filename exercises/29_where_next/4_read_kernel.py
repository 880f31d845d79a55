"""Exercise 29.4: Read a kernel that you did not write.

`csrc/vllm_style/paged_attention.cu` computes paged attention as vLLM's first kernels do. Answer
four questions about it: which tokens a thread scores, where the block table leads to, what
version 2 launches and keeps, and which names stand for what. The constants in this module are
those that the launchers compile it with.

You have
- `HEAD_SIZE`, `BLOCK_SIZE`, `PARTITION_SIZE`: 64, 16 and 512: template arguments of the kernel in
  the launchers; the fourth, the threads of a thread block, is 128
- `WARP_SIZE`, `NUM_WARPS`, `THREAD_GROUP_SIZE`: 32, 4 and 2, which follow
- `X`: 4: `x` of the key cache, the floats in 16 bytes
- `block_table`: a list of ints: the sequence's row of `block_tables`
- `seq_lens`, `max_seq_len`: a list of ints; an int that is at least 1 and not less than any of
  them
- `tokens_of(thread, seq_len, partition)`: returns a list of tokens; `partition` is None for
  version 1
- `key_place(block_table, token, kv_head, element, num_kv_heads)`: returns an int, an index in the
  flat cache
- `version_two(seq_lens, num_heads, max_seq_len)`: returns a tuple of three ints
- `names()`: returns a dict of five names; its docstring has the questions

In a terminal: yaie check 29.4, yaie hint 29.4, yaie reset 29.4.
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
    raise NotImplementedError("Exercise 29.4: Read a kernel that you did not write")


def key_place(
    block_table: Sequence[int], token: int, kv_head: int, element: int, num_kv_heads: int
) -> int:
    """The index in the flat k_cache of one element of a token's key.

    Args:
        block_table: the sequence's row of block_tables.
        token, kv_head, element: which; the element is one of HEAD_SIZE.
    """
    raise NotImplementedError("Exercise 29.4: Read a kernel that you did not write")


def version_two(seq_lens: Sequence[int], num_heads: int, max_seq_len: int) -> tuple[int, int, int]:
    """What version 2 launches and needs for a batch.

    Args:
        max_seq_len: what the launcher is told; at least 1, and no sequence is longer.

    Returns:
        the thread blocks of paged_attention_v2_kernel that compute something; all thread blocks of
        that kernel, without those of the reduce kernel; the numbers in exp_sums, max_logits and
        tmp_out together.
    """
    raise NotImplementedError("Exercise 29.4: Read a kernel that you did not write")


def names() -> dict[str, str]:
    """The kernel's own names, by what is asked.

    - "maximum": the largest score that a thread has met so far;
    - "block": the entry of the block table that was followed;
    - "weights": the shared memory of the scores, and later of their softmax;
    - "warps": the shared memory by which the warps tell each other their maxima;
    - "partitions": the memory by which partitions tell their maxima to the second kernel.
    """
    raise NotImplementedError("Exercise 29.4: Read a kernel that you did not write")
