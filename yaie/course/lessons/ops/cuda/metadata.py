"""Prefix sums and metadata of draft-extend by CUDA C++ kernels."""

import torch

from yaie.ops.cuda.launching import constants, launch
from yaie.ops.registry import Unsupported

FILE = "metadata/fill_draft_extend.cu"
SCAN_TILE = 4096  # numbers of a thread block, in scan/prefix_sum.cu
THREADS, LINEAR_UP_TO, MOST_REQUESTS = (
    constants(FILE)[name] for name in ("THREADS", "LINEAR_UP_TO", "MOST_REQUESTS")
)


def prefix_sum(x: torch.Tensor) -> torch.Tensor:
    """The sums of all prefixes of `[n]`, `[n + 1]`."""
    out = x.new_empty(len(x) + 1)
    starts = x.new_empty(-(-len(x) // SCAN_TILE) + 1)
    launch("scan/prefix_sum.cu", "prefix_sum", x.dtype, x, out, starts, len(x))
    return out


def fill_draft_extend_metadata(
    extend_seq_lens: torch.Tensor,
    seq_lens: torch.Tensor,
    nsa_index_topk: int,
    out_seqlens_expanded: torch.Tensor,
    out_nsa_cache_seqlens: torch.Tensor,
    num_tokens: int,
) -> None:
    """One launch, that searches as suits the batch; a batch of many thousands takes several."""
    outputs = (out_seqlens_expanded, out_nsa_cache_seqlens)
    batch = len(extend_seq_lens)
    if batch <= MOST_REQUESTS:
        _fill("fill_draft_extend", extend_seq_lens, seq_lens, nsa_index_topk, *outputs, num_tokens)
        return
    ends = prefix_sum(extend_seq_lens)[1:]
    arguments = (ends, seq_lens, nsa_index_topk, *outputs, batch, num_tokens)
    launch("metadata/fill_from_ends.cu", "fill_from_ends", torch.int32, *arguments)


def fill_linear(extend_seq_lens: torch.Tensor, *rest: torch.Tensor | int) -> None:
    """The same, always counting the requests that end before a token."""
    _fill("fill_draft_extend_linear", extend_seq_lens, *rest)


def fill_binary(extend_seq_lens: torch.Tensor, *rest: torch.Tensor | int) -> None:
    """The same, always by bisection."""
    _fill("fill_draft_extend_binary", extend_seq_lens, *rest)


def _fill(name: str, lengths: torch.Tensor, *rest: torch.Tensor | int) -> None:
    *others, num_tokens = rest
    batch = len(lengths)
    if batch > MOST_REQUESTS:
        raise Unsupported(f"one launch takes up to {MOST_REQUESTS} requests, got {batch}")
    launch(FILE, name, torch.int32, lengths, *others, batch, num_tokens)
