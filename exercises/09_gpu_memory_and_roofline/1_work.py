"""Exercise 09.1: Count operations and bytes.

Count what a linear layer and the attention of a decode step must do at least: floating-point
operations, where a multiplication and an addition are two, and bytes between memory and the chip,
where each number is read once or written once. Return both as `Work(flops, num_bytes)`.

You have
- `Work(flops, num_bytes)`: what you return, two ints
- `tokens`, `in_features`, `out_features`: the sizes of a linear layer, which has no bias
- `batch`, `context`, `num_heads`, `num_kv_heads`, `head_dim`: sequences; tokens in the cache of
  each; query heads; KV heads; numbers per head
- `itemsize`: bytes per number

In a terminal: yaie check 09.1, yaie hint 09.1, yaie reset 09.1.
"""

from __future__ import annotations

from yaie.course.lessons.roofline import Work


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
    raise NotImplementedError("Exercise 09.1: Count operations and bytes")


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
    raise NotImplementedError("Exercise 09.1: Count operations and bytes")
