"""Steps as CUDA graphs.

A step is hundreds of kernels, and where they are small, launching each from Python takes longer
than running it. A CUDA graph is recorded once and then launched as a whole. What it holds is fixed:
kernels, sizes, addresses. So there is a graph for each of a few sizes, a step takes the smallest
with room for it, the rows that it does not need are padding, and all graphs read their inputs from
the same memory, which is overwritten for every step.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from yaie.engine.inputs import Shape
from yaie.engine.libraries import choose_libraries
from yaie.model.llama import Llama
from yaie.ops.registry import AUTO, location, order

if TYPE_CHECKING:
    from yaie.engine.runner import Runner

# Sizes of steps with parts of prompts. From 32 tokens on less than half of a graph's tokens are
# padding, from 384 on less than a third. A step of more than 2,048 tokens takes a GPU longer than
# Python takes to launch its kernels.
PROMPT_TOKENS = (16, 32, 64, 128, 256, 384, 512, 768, 1024, 1536, 2048)
# Such a step also has graphs for at most these numbers of requests: they compute fewer rows of
# logits and of the last layer's products, and copy a smaller block table.
FEW_REQUESTS = 128, 192


@contextmanager
def workspace_in_the_pool() -> Iterator[None]:
    """Make cuBLAS take its workspace from the memory pool of the graph that is captured meanwhile.

    PyTorch keeps a workspace for cuBLAS on each stream, and a graph that was captured with it
    writes to it at every replay, even after `torch.compile` has freed it. Freed before, the capture
    takes a new one from the graph's pool; freed after, no other product works in that one.
    """
    torch._C._cuda_clearCublasWorkspaces()
    try:
        yield
    finally:
        torch._C._cuda_clearCublasWorkspaces()


@dataclass
class Graph:
    """A step of `shape`, recorded; `tokens` is where it leaves the tokens."""

    shape: Shape
    graph: torch.cuda.CUDAGraph
    tokens: torch.Tensor

    def replay(self) -> torch.Tensor:
        """Launch it; returns the tokens, valid until the next replay."""
        self.graph.replay()
        return self.tokens


def shapes(max_num_seqs: int, max_blocks: int, block_size: int, most_tokens: int) -> list[Shape]:
    """The sizes that are captured, the smallest first.

    Decode steps of 1, 2, 4, every 8, and the most sequences: at most 7 rows are padding, and fewer
    in small steps. Then steps of up to PROMPT_TOKENS tokens, or as many as there can be, of any
    sequences: prompts, chunks of them, and the requests that decode meanwhile; of up to
    FEW_REQUESTS of each, and of as many as there may be.

    Args:
        max_blocks, block_size: the most blocks of a sequence, and the tokens of a block.
        most_tokens: of a step.
    """
    sizes = {size for size in (1, 2, 4, *range(8, max_num_seqs, 8)) if size < max_num_seqs}
    decode = [Shape(n, n, n, max_blocks, n) for n in sorted(sizes | {max_num_seqs})]
    most_tokens = min(most_tokens, max_num_seqs * max_blocks * block_size, PROMPT_TOKENS[-1])
    tokens = sorted({n for n in PROMPT_TOKENS if n < most_tokens} | {most_tokens})
    requests = sorted({min(n, max_num_seqs) for n in (*FEW_REQUESTS, max_num_seqs)})
    mixed = [_mixed(n, most, max_blocks) for n in tokens for most in requests]
    return decode + list(dict.fromkeys(mixed))


def _mixed(tokens: int, most: int, max_blocks: int) -> Shape:
    """A shape with room for as many requests that decode, and as many others, as a step of these
    tokens can have together, at most `most` of each, and a last sequence for padding. At most
    `most` of all get a token."""
    decodes, others = min(tokens - 1, most), min(tokens, most)
    return Shape(tokens, decodes + others + 1, others, max_blocks, decodes)


def why_not_captured(model: Llama) -> str | None:
    """An operator of a model that cannot be captured, and its back end; None if all can.

    A graph repeats kernels, not the Python around them: a function that reads a tensor's values
    cannot be captured, and one that does anything else in Python does it only once. The functions
    of `yaie.ops.triton` and `yaie.ops.cuda` only launch kernels; other functions may do more.
    """
    for operator, backend in model.backends.items():
        name = order(operator, "cuda")[0] if backend == AUTO else backend
        where = location(operator, name)
        if not where.startswith(("yaie.ops.triton.", "yaie.ops.cuda.")):
            return f"{operator} is computed by {name!r} ({where})"
    return None


def capture(runner: Runner, shapes: Sequence[Shape]) -> list[Graph]:
    """A graph for each shape, in the order given; or none, and the reason on standard error, where
    no graph can be captured."""
    if reason := why_not_captured(runner.model):
        print(f"no CUDA graphs: {reason}", file=sys.stderr)
        return []
    started, graphs = time.perf_counter(), {}
    if runner.model.dtype.itemsize == 2:
        linears = (linear for layer in runner.model.layers for linear in layer.children())
        choose_libraries(linears, sorted({size for s in shapes for size in (s.tokens, s.rows)}))
    # The largest first: the others fit into its memory, which is shared on one stream only.
    pool, stream = torch.cuda.graph_pool_handle(), torch.cuda.Stream()
    for shape in sorted(shapes, key=lambda shape: (shape.tokens, shape.rows), reverse=True):
        graphs[shape] = _capture_one(runner, shape, pool, stream)
        if sys.stderr.isatty():
            print(f"\rCUDA graphs: {len(graphs)} of {len(shapes)} ", end="", file=sys.stderr)
    seconds = time.perf_counter() - started
    print(f"\rCUDA graphs of {len(shapes)} sizes in {seconds:.1f} s", file=sys.stderr)
    return [graphs[shape] for shape in shapes]


@torch.inference_mode()
def _capture_one(
    runner: Runner, shape: Shape, pool: tuple[int, int], stream: torch.cuda.Stream
) -> Graph:
    runner.lay_out_padding(shape)
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):  # compiles, loads and tunes what cannot be done during a capture
            runner.sample(runner.forward())
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        try:
            with workspace_in_the_pool(), torch.cuda.graph(graph, pool=pool, stream=stream):
                tokens = runner.sample(runner.forward())
        except RuntimeError as error:
            raise RuntimeError(
                f"a step of {shape.tokens} tokens could not be captured as a CUDA graph ({error}): "
                "pass enforce_eager=True to do without"
            ) from error
    return Graph(shape, graph, tokens)
