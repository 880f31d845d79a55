"""Bytes that x + residual and its RMSNorm move: operator by operator, and in one kernel."""

from typing import Any

import torch

from yaie.course.core.memory import Memory


def unfused_bytes(rows: int, size: int) -> dict[str, int]:
    """Bytes read and written in float32 if every operator of PyTorch is a kernel of its own."""
    memory = Memory()
    x, residual = (memory.place(torch.randn(rows, size), name) for name in ("x", "residual"))
    weight = memory.place(torch.randn(size), "weight")
    total = x + residual
    mean = total.square().mean(dim=-1, keepdim=True)
    _ = total * (mean + 1e-5).rsqrt() * weight
    return {"read": memory.read, "written": memory.written}


def fused_bytes(kernel: Any, rows: int, size: int) -> dict[str, int]:
    """Bytes that the programs of the fused kernel load and store, one program per row."""
    from yaie.course.core.triton import launch, triton  # only where there is Triton

    x, residual, weight = torch.randn(rows, size), torch.randn(rows, size), torch.randn(size)
    out, total = torch.empty_like(x), torch.empty_like(x)
    arguments = {
        "x": x, "residual": residual, "weight": weight, "out": out, "total": total,
        "rows": rows, "size": size, "eps": 1e-5,
    }  # fmt: skip
    trace = launch(kernel, (rows,), arguments, BLOCK=triton.next_power_of_2(size), STAGES=1)
    weights = trace.num_bytes("load", "weight") - weight.nbytes  # from a cache after the first time
    return {"read": trace.num_bytes("load") - weights, "written": trace.num_bytes("store")}
