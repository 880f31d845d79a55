"""Linear layers of which each rank holds a part, and what they send: tensor parallelism at work.

`yaie.model.shards` says which part. The processes are a group of torch.distributed: gloo on CPUs,
NCCL on GPUs. GPUs of one host add up small tensors in each other's memory instead.
"""

import os
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import distributed as dist

from yaie.model.linear import Linear
from yaie.model.shards import WHOLE, Shard
from yaie.ops.registry import announce

PEERS = "peers/all_reduce.cu"
MOST_SENT = 1 << 20  # bytes that a rank sends its peers; NCCL is faster for more
_handles: WeakKeyDictionary[dist.ProcessGroup, torch.Tensor | None] = WeakKeyDictionary()


class VocabularyParallel(Linear):
    """A layer of which each rank has some outputs, and all of which every rank wants: the logits.

    Each rank reads only its part of the matrix, and only the few rows that are sampled from are
    sent. Every rank ends up with the same bits, so all sample the same token without sending it.
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[tokens, in]` -> `[tokens, out * size]`."""
        out = super().forward(x)
        parts = [torch.empty_like(out) for _ in range(dist.get_world_size())]
        if len(out):
            dist.all_gather(parts, out)
        return torch.cat(parts, dim=1)


def all_reduce(x: torch.Tensor, *norm: Any) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Add up the x of all ranks, in place; the result has the same bits on every rank.

    A small tensor on a GPU is written into the memory of the other GPUs, if GPUs can access each
    other's memory, which the first call finds out. Anything else is sent by NCCL or gloo. `norm` is
    what `add_rms_norm` takes after x: the kernel for a small x then computes that too, returns its
    results, and leaves x as it was. In all other cases None is returned.
    """
    if x.is_cuda:
        from yaie.ops.cuda.launching import SUFFIXES, constants, launch  # one GPU starts without it

        sent = x.nbytes * (dist.get_world_size() - 1)
        whole = x.nbytes % 16 == x.data_ptr() % 16 == 0 and x.dtype in SUFFIXES
        if 0 < sent <= MOST_SENT and whole and _has_peers(x.device):
            chunks = x.nbytes / len(x) / 16  # of a row
            if not norm or chunks % 1 or chunks > constants(PEERS)["MOST_CHUNKS"]:
                return launch(PEERS, "all_reduce", x.dtype, x, x.numel())
            both, name = (torch.empty_like(x), torch.empty_like(x)), "all_reduce_add_rms_norm"
            launch(PEERS, name, x.dtype, x, *norm[:2], *both, *x.shape, *norm[2:])
            return both
    if len(x):
        dist.all_reduce(x)
    return None


def _has_peers(device: torch.device) -> bool:
    """Whether the ranks can write into each other's memory. They try it once per group."""
    from yaie.ops.cuda.launching import call

    group, shard = dist.group.WORLD, own_shard()
    if group not in _handles:
        if int(os.environ.get("LOCAL_WORLD_SIZE", shard.size)) < shard.size:
            announce("all_reduce", "cuda", "the ranks are on several hosts")
            _handles[group] = None
            return False
        handle, reason = torch.zeros(64, dtype=torch.uint8, device=device), ""
        handles = handle.new_empty(64 * shard.size)
        for name, given in (("share", [handle]), ("map", [handles, shard.rank, shard.size])):
            try:
                call(PEERS, f"{name}_memory", *given)
            except RuntimeError as error:  # a KernelError, or no compiler
                reason = reason or str(error)
            dist.all_gather_into_tensor(handles, handle)
        if not smallest(not reason, shard, device):  # then none of them does
            announce("all_reduce", "cuda", reason or "another rank has no access to its peers")
            handle = None
        _handles[group] = handle
    return _handles[group] is not None


def stop_waiting() -> None:
    """Release kernels on this GPU that wait for a rank that has ended."""
    from yaie.ops.cuda.launching import call

    for handle in _handles.values():
        if handle is not None:
            call(PEERS, "stop_waiting", handle)


def own_shard() -> Shard:
    """What this process holds: a part if it is one of a group, everything otherwise."""
    return Shard(dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else WHOLE


def smallest(number: int, shard: Shard, device: torch.device) -> int:
    """The smallest of all ranks' numbers, where each has its own."""
    if shard.size == 1:
        return number
    numbers = torch.tensor(number, device=device)
    dist.all_reduce(numbers, dist.ReduceOp.MIN)
    return int(numbers)
