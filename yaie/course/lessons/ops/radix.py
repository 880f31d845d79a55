"""The lookup of a batch of prompts in a flat radix tree."""

import torch

from yaie.course.lessons.ops.reference.radix import FlatTree
from yaie.ops.attention import check_starts
from yaie.ops.checks import check_tensor, known
from yaie.ops.library import define
from yaie.ops.registry import AUTO

_INT32 = (torch.int32,)


def match_prefixes(
    tree: FlatTree,
    prompts: torch.Tensor,
    cu_seqlens: torch.Tensor,
    max_blocks: int,
    *,
    backend: str = AUTO,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Find the longest prefix of each prompt that a flat tree holds; see `reference.radix`.

    The prefix cache leaves at least one token to compute: cut prompts by one token before they come
    here.

    Args:
        tree: from `yaie.course.lessons.flat_tree.flatten`, on the device of the prompts.
        prompts, cu_seqlens, max_blocks: as for the reference, which also says what is returned.
    """
    check_tensor("prompts", prompts, ("tokens",), _INT32, contiguous=True)
    check_tensor("cu_seqlens", cu_seqlens, ("batch + 1",), _INT32, like=prompts, contiguous=True)
    check_tensor("tree.tokens", tree.tokens, ("tokens",), _INT32, like=prompts, contiguous=True)
    if known(cu_seqlens):
        check_starts("cu_seqlens", cu_seqlens.tolist(), len(prompts), "prompts")
    if max_blocks < 0:
        raise ValueError(f"max_blocks must not be negative, got {max_blocks}")
    return _match_prefixes(
        prompts, cu_seqlens, *tree.arrays, tree.block_size, max_blocks, backend=backend
    )


def _empty(prompts: torch.Tensor, cu_seqlens: torch.Tensor, *tree: torch.Tensor | int) -> tuple:
    batch = cu_seqlens.shape[0] - 1
    return (
        cu_seqlens.new_empty(batch),
        cu_seqlens.new_empty(batch),
        cu_seqlens.new_empty(batch, tree[-1]),
    )


_match_prefixes = define(
    "match_prefixes(Tensor prompts, Tensor cu_seqlens, Tensor tokens, Tensor starts, "
    "Tensor children, Tensor values, int block_size, int max_blocks, *, "
    'str backend="auto") -> (Tensor, Tensor, Tensor)',
    _empty,
)
