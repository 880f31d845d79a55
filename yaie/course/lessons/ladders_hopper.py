"""Ladders for Hopper: matrix products, those of a single token, and flash attention."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import torch
from torch import nn
from torch.nn import functional

from yaie.bench.cases import Call, Case, Draw
from yaie.bench.cases_attention import prefill
from yaie.course.lessons.ops import cases
from yaie.course.lessons.ops.cuda import attention_hopper, matrix
from yaie.course.lessons.steps import BF16, Step, ragged, wrapped
from yaie.course.lessons.variants import prepares
from yaie.model.linear import Linear
from yaie.ops.cuda import flash

# Columns and depth of a layer's products in Llama-8B and in SmolLM2-135M: q, k and v; output; gate
# and up; down.
LAYER_8B = ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336))
LAYER_135M = ((960, 576), (576, 576), (3072, 576), (576, 1536))
LOGITS = ((128256, 4096), (49152, 576))  # of both models

FA3 = ("FlashInfer, FA3", "FlashAttention-3")  # the same kernels, compiled by two packages


def hopper(on_gpu: bool) -> Iterator[Step]:
    """The rungs for Hopper, mma.sync, Triton and cuBLAS: squares, and the shapes of an 8B layer."""
    sizes = [(size, size, size) for size in (4096, 8192, 2048)]
    sizes += [(rows, *layer) for rows in (2048, 512, 64) for layer in LAYER_8B]
    rungs = {"mma": matrix.mma, **matrix.HOPPER}
    rungs = {name: wrapped(function) for name, function in rungs.items()}
    ways = {name: wrapped(function) for name, function in matrix.WAYS.items()}
    library, against = {"cuBLAS": wrapped(torch.mm)}, {"of_library": ("cuBLAS",)}
    for shape in sizes if on_gpu else [(5, 16, 24)]:
        varied = prepares("hopper") if shape[0] >= 4096 or not on_gpu else {}
        case = cases.product(*shape, BF16)
        triton = {"Triton": case.ours("triton")} if on_gpu else {}
        case = replace(case, rungs=rungs | triton | ways, variants=varied, peers=library)
        yield Step(case, ("products", case.shape), against=against, rounds=8)
    rungs = {"shares": wrapped(matrix.shares)} | ways
    for shape in sizes[3:] if on_gpu else [(5, 16, 24)]:  # as a layer's weights lie
        case = replace(cases.product(*shape, BF16, turned=True), rungs=rungs, peers=library)
        yield Step(case, ("layers", case.shape), against=against, rounds=8)


def gemv(on_gpu: bool) -> Iterator[Step]:
    """The kernel for a single token beside torch's: in a layer of Llama-8B and of SmolLM2, and for
    their logits."""
    for rows, size in (*LAYER_8B, *LAYER_135M, *LOGITS) if on_gpu else [(33, 264)]:
        case = Case(
            "linear", f"{rows} × {size}", partial(_one_token, rows, size), 2 * rows * size, 0,
            oracle=lambda x, weight: x.double() @ weight.double().T, writes=False, compiled=False,
            rungs={"gemv": _by_gemv}, peers={"torch": wrapped(functional.linear)},
        )  # fmt: skip
        yield Step(case, ("products", case.shape), against={"of_library": ("torch",)}, rounds=8)


def _one_token(rows: int, size: int, draw: Draw) -> tuple[torch.Tensor, torch.Tensor]:
    return draw.normal(1, size), draw.normal(rows, size)


def _by_gemv(x: torch.Tensor, weight: torch.Tensor) -> Call:
    linear = Linear(nn.Parameter(weight, requires_grad=False))
    linear.by_gemv = True
    return partial(linear, x)


def flash_hopper(on_gpu: bool) -> Iterator[Step]:
    """The rungs for Hopper, mma.sync and Triton, beside cuDNN and FlashAttention-3."""
    rungs = ragged({"mma": flash.mma, **attention_hopper.RUNGS})
    sizes = [(4, 4096, 128), (4, 4096, 64), (1, 16384, 128), (4, 4096, 256)]
    for batch, tokens, head_dim in sizes if on_gpu else [(2, 33, 64)]:
        heads = (16 if head_dim > 128 else 32) if on_gpu else 2
        for causal in (False, True):
            case = prefill(batch, heads, tokens, head_dim, causal, BF16)
            most = 128 if head_dim > 128 else head_dim  # of mma
            ours = {who: call for who, call in rungs.items() if head_dim <= most or who != "mma"}
            name = {128: "flash_hopper", 64: "flash_hopper_64"}.get(head_dim)
            varied = prepares(name if on_gpu else "flash_hopper") if name else {}
            triton = {"Triton": case.ours("triton")} if on_gpu else {}
            case = replace(case, rungs=ours | triton, variants=varied)
            against = {"of_cudnn": ("SDPA, cuDNN",), "of_fa3": FA3}
            about = {"head_dim": head_dim, "causal": causal}
            yield Step(case, ("problems", case.shape), BF16, about, against)
