"""The lookup of a batch of prompts in a flat radix tree, by a CUDA C++ kernel."""

import torch

from yaie.ops.cuda.launching import launch


def match_prefixes(
    prompts: torch.Tensor, cu_seqlens: torch.Tensor, *tree: torch.Tensor | int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Lengths, nodes and values of the longest prefixes, one warp per prompt."""
    *arrays, block_size, max_blocks = tree
    batch = len(cu_seqlens) - 1
    lengths, nodes = cu_seqlens.new_empty(batch), cu_seqlens.new_empty(batch)
    table = cu_seqlens.new_empty(batch, max_blocks)
    launch(
        *("radix/match.cu", "match", torch.int32, prompts, cu_seqlens, *arrays),
        *(lengths, nodes, table, batch, block_size, max_blocks),
    )
    return lengths, nodes, table
