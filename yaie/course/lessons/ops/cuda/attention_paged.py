"""The rungs of decode over the paged cache; all take the operands of `paged_attention`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from yaie.ops.cuda.flash import Rung, State
from yaie.ops.cuda.paged import MOST_DIM, decode, mma, require_dim, split


def one_block(*operands: Any, file: str | Path = "paged/one_block.cu") -> State:
    """A thread block for each query and query head; as in csrc/, or in a file like it."""
    require_dim("one_block", operands[0], 4096)
    return decode(file, "one_block", *operands)


def grouped(*operands: Any, file: str | Path = "paged/grouped.cu") -> State:
    """A thread block for each query and KV head; as in csrc/, or in a file like it."""
    require_dim("grouped", operands[0], MOST_DIM)
    return decode(file, "grouped", *operands)


# From the simplest on.
RUNGS: dict[str, Rung] = {rung.__name__: rung for rung in (one_block, grouped, split, mma)}
