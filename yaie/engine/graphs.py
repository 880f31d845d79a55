"""Decode steps as CUDA graphs.

A decode step is hundreds of small kernels, and launching each from Python takes longer than running
it. A CUDA graph is recorded once and then launched as a whole. What it holds is fixed: kernels,
sizes, addresses. So there is a graph for each of a few batch sizes, a step takes the smallest with
room for it, the rows that are too many belong to nobody, and all graphs read their inputs from the
same memory, which is overwritten for every step.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from yaie.engine.inputs import Shape
from yaie.model.llama import Llama

if TYPE_CHECKING:
    from yaie.engine.runner import Runner

CAPTURABLE = ("auto", "cuda", "triton")  # back ends whose functions only launch kernels


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


def batch_sizes(largest: int) -> list[int]:
    """1, 2, 4, then every 8, and the largest: at most 7 rows too many, and few at small sizes."""
    return sorted({size for size in (1, 2, 4, *range(8, largest, 8)) if size < largest} | {largest})


def can_capture(model: Llama) -> bool:
    """Whether all of a model's operators are computed by kernels alone.

    A graph repeats kernels, not the Python around them: a function that reads a tensor's values
    cannot be captured, and one that does anything else in Python does it only once. Of a back end
    of one's own nobody knows.
    """
    return all(backend in CAPTURABLE for backend in model.backends.values())


def capture(runner: Runner, sizes: Sequence[int]) -> list[Graph]:
    """A graph for each batch size, in the order given."""
    started, graphs = time.perf_counter(), {}
    pool = torch.cuda.graph_pool_handle()
    for size in sorted(sizes, reverse=True):  # the largest first: the others fit into its memory
        graphs[size] = _capture_one(runner, size, pool)
        if sys.stderr.isatty():
            print(f"\rCUDA graphs: {len(graphs)} of {len(sizes)} ", end="", file=sys.stderr)
    seconds = time.perf_counter() - started
    print(f"\rCUDA graphs of {len(sizes)} batch sizes in {seconds:.1f} s", file=sys.stderr)
    return [graphs[size] for size in sizes]


@torch.inference_mode()
def _capture_one(runner: Runner, size: int, pool: tuple[int, int]) -> Graph:
    shape = Shape(size, size, size, runner.max_blocks)
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
                f"a decode step of {size} requests could not be captured as a CUDA graph "
                f"({error}): pass enforce_eager=True to do without"
            ) from error
    return Graph(shape, graph, tokens)
