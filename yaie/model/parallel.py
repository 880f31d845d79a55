"""Linear layers of which each rank holds a part, and what they send: tensor parallelism at work.

`yaie.model.shards` says which part. The processes are a group of torch.distributed: gloo on CPUs,
NCCL on GPUs.
"""

from __future__ import annotations

import torch
from torch import distributed as dist

from yaie.model.linear import Linear
from yaie.model.shards import WHOLE, Shard


class RowParallel(Linear):
    """A layer of which each rank has some inputs, and the rows of x that belong to them.

    The results are summands. Their sum, which every rank gets, is the layer's result.
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[tokens, in / size]` -> `[tokens, out]`."""
        out = super().forward(x)
        dist.all_reduce(out)
        return out


class VocabularyParallel(Linear):
    """A layer of which each rank has some outputs, and all of which every rank wants.

    That is how logits are computed. Each rank reads only its part of the matrix, and
    only the few rows that are sampled from are sent. Every rank ends up with the same bits, so all
    of them sample the same token without sending it.
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[tokens, in]` -> `[tokens, out * size]`."""
        out = super().forward(x)
        if not len(out):
            return out.new_empty(0, out.shape[1] * dist.get_world_size())
        parts = [torch.empty_like(out) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, out)
        return torch.cat(parts, dim=1)


def own_shard() -> Shard:
    """What this process holds: a part if it is one of a group, everything otherwise."""
    if not dist.is_initialized():
        return WHOLE
    return Shard(dist.get_rank(), dist.get_world_size())


def smallest(number: int, shard: Shard, device: torch.device) -> int:
    """The smallest of all ranks' numbers, where each has its own."""
    if shard.size == 1:
        return number
    numbers = torch.tensor(number, device=device)
    dist.all_reduce(numbers, dist.ReduceOp.MIN)
    return int(numbers)
