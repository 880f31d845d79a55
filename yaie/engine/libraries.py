"""Which of torch's two libraries computes each product of a step, cuBLAS or cuBLASLt.

Each chooses a kernel by its own rules from the sizes of a product. Where they differ, either may be
faster: on an H200, cuBLASLt takes 0.76 of cuBLAS's time for Llama-3.2-3B's `down` with 224 tokens,
and 1.41 of it with 184 (notebooks/data/27_libraries_h200.json). So both are timed, as soon as the
sizes of the CUDA graphs are known.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from yaie.model.linear import Linear

# Bytes of weights read before a weight is read again, if the layers of a shape have so many: more
# than an L2 cache holds.
COLD = 2**28
ROUNDS = 4
# cuBLASLt must save this fraction of the time, so that noise rarely decides: another kernel rounds
# differently, and two starts on one card should make the same choice.
GAIN = 0.04


@torch.inference_mode()
def choose_libraries(linears: Iterable[Linear], sizes: Iterable[int]) -> None:
    """Time products of these numbers of tokens by both libraries, and note in each layer those
    for which cuBLASLt is faster. Layers of one shape share the choice; a layer with a bias has
    none, and always uses cuBLASLt."""
    groups: dict[torch.Size, list[Linear]] = {}
    for linear in linears:
        if linear.bias is None:
            groups.setdefault(linear.weight.shape, []).append(linear)
    for group in groups.values():
        weight = group[0].weight
        zeros = weight.new_zeros(len(weight))
        draw = torch.Generator(weight.device).manual_seed(0)
        timed = group[: -(-COLD // weight.nbytes)]
        for tokens in sizes:
            x = weight.new_empty(tokens, weight.shape[1]).normal_(generator=draw)
            if group[0].takes(x) or group[0].takes_gated(x):
                continue  # a kernel of the back end `cuda` computes it
            cublas, cublaslt = times(timed, x, zeros)
            for linear in group:
                linear.zeros.pop(tokens, None)  # of an earlier engine
                if cublaslt < (1 - GAIN) * cublas:
                    linear.zeros[tokens] = zeros


def times(linears: Sequence[Linear], x: torch.Tensor, zeros: torch.Tensor) -> tuple[float, float]:
    """Milliseconds that cuBLAS and cuBLASLt take for the products of x with all these layers, each
    the least of several. They take turns, because the card's clock changes."""
    pool = torch.cuda.graph_pool_handle()
    graphs = [_captured(linears, x, bias, pool) for bias in (None, zeros)]
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    least = [float("inf")] * 2
    for _ in range(ROUNDS):
        for i, graph in enumerate(graphs):
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            least[i] = min(least[i], begin.elapsed_time(end))
    return least[0], least[1]


def _captured(
    linears: Sequence[Linear], x: torch.Tensor, bias: torch.Tensor | None, pool: tuple[int, int]
) -> torch.cuda.CUDAGraph:
    torch.nn.functional.linear(x, linears[0].weight, bias)  # loads kernels, which no capture can
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        for linear in linears:
            torch.nn.functional.linear(x, linear.weight, bias)
    return graph
