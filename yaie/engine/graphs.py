"""Steps as CUDA graphs.

A step is hundreds of kernels, and where they are small, launching each from Python takes longer
than running it. A CUDA graph is recorded once and then launched as a whole. What it holds is fixed:
kernels, sizes, addresses. So there is a graph for each of a few sizes, a step takes the smallest
with room for it, the rows that are too many belong to nobody, and all graphs read their inputs from
the same memory, which is overwritten for every step.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from yaie.backends.registry import AUTO, location, order
from yaie.engine.inputs import Shape
from yaie.model.llama import Llama

if TYPE_CHECKING:
    from yaie.engine.runner import Runner

# Sizes of steps with parts of prompts, and of a step that is full. At most every third token of
# larger ones is nobody's, and in longer steps a GPU takes longer than Python does to launch.
PROMPT_TOKENS = (16, 32, 64, 128, 256, 384, 512, 768, 1024, 1536, 2048)


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


def shapes(max_num_seqs: int, max_blocks: int, most_tokens: int) -> list[Shape]:
    """The sizes that are captured, the smallest first.

    Decode steps of 1, 2, 4, every 8, and the most sequences: at most 7 rows are too many, and few
    where there are few. Then steps that have up to PROMPT_TOKENS tokens, of any sequences: prompts
    or parts of them, and whoever decodes meanwhile.

    Args:
        most_tokens: of a step, and of a sequence.
    """
    sizes = {size for size in (1, 2, 4, *range(8, max_num_seqs, 8)) if size < max_num_seqs}
    decode = [Shape(n, n, n, max_blocks) for n in sorted(sizes | {max_num_seqs})]
    tokens = {n for n in PROMPT_TOKENS if n < most_tokens} | {min(most_tokens, PROMPT_TOKENS[-1])}
    return decode + [Shape(n, max_num_seqs + 1, max_num_seqs, max_blocks) for n in sorted(tokens)]


def in_the_way(model: Llama) -> str | None:
    """Which of a model's operators may be more than kernels, and whose it is; None if none is.

    A graph repeats kernels, not the Python around them: a function that reads a tensor's values
    cannot be captured, and one that does anything else in Python does it only once. The functions
    of `yaie.backends` only launch kernels; of one's own, whatever its name, nobody knows.
    """
    for operator, backend in model.backends.items():
        name = order(operator, "cuda")[0] if backend == AUTO else backend
        where = location(operator, name)
        if not where.startswith("yaie.backends."):
            return f"{operator} is computed by {name!r} ({where})"
    return None


def capture(runner: Runner, shapes: Sequence[Shape]) -> list[Graph]:
    """A graph for each shape, in the order given; none, and a word why, where none can be."""
    if reason := in_the_way(runner.model):
        print(f"no CUDA graphs: {reason}", file=sys.stderr)
        return []
    started, graphs = time.perf_counter(), {}
    pool = torch.cuda.graph_pool_handle()
    # The largest first: the others fit into its memory.
    for shape in sorted(shapes, key=lambda shape: shape.tokens, reverse=True):
        graphs[shape] = _capture_one(runner, shape, pool)
        if sys.stderr.isatty():
            print(f"\rCUDA graphs: {len(graphs)} of {len(shapes)} ", end="", file=sys.stderr)
    seconds = time.perf_counter() - started
    print(f"\rCUDA graphs of {len(shapes)} sizes in {seconds:.1f} s", file=sys.stderr)
    return [graphs[shape] for shape in shapes]


@torch.inference_mode()
def _capture_one(runner: Runner, shape: Shape, pool: tuple[int, int]) -> Graph:
    runner.pretend(shape)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):  # compiles, loads and tunes what a capture could not
            runner.sample(runner.forward())
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, pool=pool, stream=stream):
                tokens = runner.sample(runner.forward())
        except RuntimeError as error:
            raise RuntimeError(
                f"a step of {shape.tokens} tokens could not be captured as a CUDA graph ({error}): "
                "pass enforce_eager=True to do without"
            ) from error
    return Graph(shape, graph, tokens)
