"""What attention costs, counted from its shape: naive and in tiles.

Bytes are those that pass between main memory and the processor. Naive attention is three kernels,
each of which reads its inputs from memory and writes its result there: the scores, their softmax,
the product with the values. In tiles it is one: for every tile of queries it reads that tile once
and every tile of keys and values that it may see, and writes nothing but its results. The query
heads that share a KV head are computed together. Operations are those of the two products.
"""

from dataclasses import dataclass

from yaie.course.lessons.ops.reference.flash import key_tiles


@dataclass(frozen=True)
class Cost:
    """Floating-point operations, and bytes read from and written to main memory."""

    flops: int
    read: int
    written: int

    @property
    def bytes(self) -> int:
        """Read and written."""
        return self.read + self.written

    @property
    def intensity(self) -> float:
        """Operations for each byte."""
        return self.flops / self.bytes


@dataclass(frozen=True)
class AttentionShape:
    """Attention of `num_q` queries, the last tokens of a sequence, to its `num_k` keys.

    `itemsize` is the number of bytes of an element of queries, keys, values and output.
    """

    num_q: int
    num_k: int
    num_heads: int = 1
    num_kv_heads: int = 1
    head_dim: int = 64
    causal: bool = True
    itemsize: int = 2

    @property
    def q_row(self) -> int:
        """Bytes of one token's queries, or of its output."""
        return self.num_heads * self.head_dim * self.itemsize

    @property
    def kv_row(self) -> int:
        """Bytes of one token's keys and values."""
        return 2 * self.num_kv_heads * self.head_dim * self.itemsize


def naive_cost(shape: AttentionShape) -> Cost:
    """Scores, softmax, product: three kernels, and every score computed, hidden or not.

    Scores and weights are of `itemsize` bytes each.
    """
    scores = shape.num_heads * shape.num_q * shape.num_k
    matrix = scores * shape.itemsize
    q, kv = shape.num_q * shape.q_row, shape.num_k * shape.kv_row
    read = (q + kv // 2) + matrix + (matrix + kv // 2)
    return Cost(flops=4 * shape.head_dim * scores, read=read, written=2 * matrix + q)


def tiled_cost(shape: AttentionShape, tile_q: int, tile_k: int) -> Cost:
    """One kernel that goes through tiles, as the lessons' `flash_forward` does.

    Of a tile that is only partly seen, all scores are computed. The log-sum-exp that is written
    has 4 bytes for each query and head.
    """
    past = shape.num_k - shape.num_q
    keys_read = scores = 0
    for start in range(0, shape.num_q, tile_q):
        end = min(start + tile_q, shape.num_q)
        _, seen = key_tiles(past + start, past + end - 1, shape.num_k, tile_k, shape.causal)
        keys = min(seen * tile_k, shape.num_k)
        keys_read += keys
        scores += (end - start) * keys
    q = shape.num_q * shape.q_row
    return Cost(
        flops=4 * shape.head_dim * shape.num_heads * scores,
        read=q + keys_read * shape.kv_row,
        written=q + 4 * shape.num_q * shape.num_heads,
    )


def tile_bytes(tile_q: int, tile_k: int, head_dim: int) -> int:
    """Bytes that one head's tiles occupy beside the processor while they are computed.

    Tiles of queries, keys and values as they are stored, in 16 bits; scores, accumulator, maximum
    and sum in float32.
    """
    stored = (tile_q + 2 * tile_k) * head_dim * 2
    computed = (tile_q * tile_k + tile_q * head_dim + 2 * tile_q) * 4
    return stored + computed
