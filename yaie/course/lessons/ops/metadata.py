"""Prefix sums, and the metadata of draft-extend."""

import torch

from yaie.build import jit
from yaie.course.lessons.ops.cuda.metadata import FILE, LINEAR_UP_TO, THREADS
from yaie.ops import registry
from yaie.ops.checks import check_tensor, known
from yaie.ops.library import define, operator
from yaie.ops.registry import AUTO

_OPERATOR = "fill_draft_extend_metadata"
_INT32 = (torch.int32,)


@operator(lambda x: x.new_empty(len(x) + 1))
def prefix_sum(x: torch.Tensor, *, backend: str = AUTO) -> torch.Tensor:
    """The sums of all prefixes of int32 `[n]`: `[n + 1]`; see `reference.metadata.prefix_sum`.

    The sum of all must fit in 32 bits.
    """
    check_tensor("x", x, ("n",), _INT32, contiguous=True)


def fill_draft_extend_metadata(
    extend_seq_lens: torch.Tensor,
    seq_lens: torch.Tensor,
    nsa_index_topk: int,
    out_seqlens_expanded: torch.Tensor,
    out_nsa_cache_seqlens: torch.Tensor,
    num_tokens: int | None = None,
    *,
    backend: str = AUTO,
) -> int:
    """Write how many keys each new token sees; arguments and result as in `reference.metadata`.

    Without `num_tokens` the sum is read back from the device, which waits for all that is queued
    there. On a GPU `num_tokens` is trusted: no token beyond it is written, nor one beyond the sum.
    """
    check_tensor("extend_seq_lens", extend_seq_lens, ("batch",), _INT32, contiguous=True)
    shape = tuple(extend_seq_lens.shape)
    check_tensor("seq_lens", seq_lens, shape, _INT32, like=extend_seq_lens, contiguous=True)
    if nsa_index_topk < 0:
        raise ValueError(f"nsa_index_topk must not be negative, got {nsa_index_topk}")
    num_tokens = _count(extend_seq_lens, num_tokens)
    outputs = (out_seqlens_expanded, out_nsa_cache_seqlens)
    for name, out in zip(("out_seqlens_expanded", "out_nsa_cache_seqlens"), outputs, strict=True):
        check_tensor(name, out, ("tokens",), _INT32, like=extend_seq_lens, contiguous=True)
        if len(out) < num_tokens:
            raise ValueError(f"{name} must have room for {num_tokens} tokens, got {len(out)}")
    _fill(extend_seq_lens, seq_lens, nsa_index_topk, *outputs, num_tokens, backend=backend)
    return num_tokens


def _count(lengths: torch.Tensor, num_tokens: int | None) -> int:
    """The sum of the lengths: `num_tokens` if the caller gives it, else read from the lengths."""
    if known(lengths) and len(lengths):
        if (lowest := int(lengths.min())) < 0:
            raise ValueError(f"extend_seq_lens must not be negative, got {lowest}")
        if num_tokens is not None and num_tokens != int(lengths.sum()):
            raise ValueError(
                f"num_tokens must be the sum of extend_seq_lens, {int(lengths.sum())}, "
                f"got {num_tokens}"
            )
    if num_tokens is None:
        return int(lengths.sum())
    if num_tokens < 0 or (num_tokens and not len(lengths)):
        raise ValueError(f"num_tokens must be the sum of extend_seq_lens, got {num_tokens}")
    return num_tokens


def fill_draft_extend_metadata_cuda(
    extend_seq_lens: torch.Tensor,
    seq_lens: torch.Tensor,
    nsa_index_topk: int,
    out_seqlens_expanded: torch.Tensor,
    out_nsa_cache_seqlens: torch.Tensor,
    use_adaptive: bool = True,
    num_tokens: int | None = None,
) -> int:
    """`fill_draft_extend_metadata` by the CUDA kernel; tensors on a CPU have it emulated, so this
    works where `is_cuda_kernel_available` says no.

    Args:
        use_adaptive: search a small batch linearly and a large one by bisection; else always by
            bisection.
    """
    return fill_draft_extend_metadata(
        *(extend_seq_lens, seq_lens, nsa_index_topk),
        *(out_seqlens_expanded, out_nsa_cache_seqlens, num_tokens),
        backend="cuda" if use_adaptive else "cuda_binary",
    )


def is_cuda_kernel_available() -> bool:
    """Whether the CUDA kernel runs on a GPU here: there is one, and the kernel is built or can be.

    Without a GPU this is False although `backend="cuda"` works: the same source is emulated on the
    CPU, which proves its results and says nothing about its speed. Ask this before you time it.
    """
    return torch.cuda.is_available() and _how().available


def get_kernel_info() -> dict[str, str | bool | int | list[str]]:
    """What would compute `fill_draft_extend_metadata` on this machine, and how.

    Returns:
        "available": as `is_cuda_kernel_available`. "backend": the one that `backend="auto"` asks
        first. "backends": all that can be asked for. "how": of the CUDA kernel, "emulated" without
        a GPU, "compiled", "compiled at first use", or what is missing. "file": its source in csrc/.
        "adaptive": whether it chooses its search by the batch. "binary_search_threshold": the
        largest batch that is searched linearly. "block_size": threads of a thread block.
    """
    return {
        "available": is_cuda_kernel_available(),
        "backend": registry.order(_OPERATOR, _device())[0],
        "backends": registry.backends(_OPERATOR),
        "how": _how().words,
        "file": FILE,
        "adaptive": True,
        "binary_search_threshold": LINEAR_UP_TO,
        "block_size": THREADS,
    }


def _how() -> jit.Availability:
    return jit.load(jit.CSRC / FILE).how(_device())


def _device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


_fill = define(
    "fill_draft_extend_metadata(Tensor extend_seq_lens, Tensor seq_lens, SymInt nsa_index_topk, "
    "Tensor(a!) out_seqlens_expanded, Tensor(b!) out_nsa_cache_seqlens, SymInt num_tokens, *, "
    'str backend="auto") -> ()',
    lambda *_: None,
)
