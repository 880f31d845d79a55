"""Time every configuration of the large Triton kernels on a GPU.

    PYTHONPATH=. python tests/gpu/triton_configurations.py

For each problem a line a candidate, in the order of the list, and a last line with the rate of the
fastest: GB/s where memory is the limit, else TFLOP/s.
"""

from __future__ import annotations

import torch
import triton

from yaie.course.lessons.ops.matrix import matmul
from yaie.course.lessons.ops.rows import softmax
from yaie.ops.attention import attention_forward, paged_attention_forward
from yaie.ops.norm import add_rms_norm, rms_norm
from yaie.ops.triton import runtime

time_one = runtime._time


def told(launch, config):
    ms = time_one(launch, config)
    print(f"    {ms:9.4f} ms  {config}", flush=True)
    return ms


def report(name: str, amount: float, unit: str, function) -> None:
    print(name, flush=True)
    function()
    ms = triton.testing.do_bench(function, warmup=50, rep=300, return_mode="median")
    print(f"  {name}: {ms:.4f} ms, {amount / ms * 1e-9:.1f} {unit}\n", flush=True)


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(shape, device="cuda", dtype=torch.bfloat16)


def rows() -> None:
    x, y, weight = draw(16384, 4096), draw(16384, 4096), draw(4096)
    moved = 2 * x.numel() * 2 * 1e3
    report("copy", moved, "GB/s", lambda: y.copy_(x))
    report("softmax", moved, "GB/s", lambda: softmax(x, backend="triton"))
    report("rms_norm", moved, "GB/s", lambda: rms_norm(x, weight, backend="triton"))
    report("add_rms_norm", 2 * moved, "GB/s", lambda: add_rms_norm(x, y, weight, backend="triton"))


def products() -> None:
    a, b = draw(4096, 4096), draw(4096, 4096)
    report("cuBLAS", 2 * 4096**3, "TFLOP/s", lambda: a @ b)
    report("matmul", 2 * 4096**3, "TFLOP/s", lambda: matmul(a, b, backend="triton"))


def attention(batch: int = 4, heads: int = 32, length: int = 4096) -> None:
    for dim in (128, 64):
        q, k, v = (draw(batch * length, heads, dim) for _ in range(3))
        starts = torch.arange(batch + 1, dtype=torch.int32, device="cuda") * length
        for causal in (False, True):
            work = 4 * batch * heads * length**2 * dim / (2 if causal else 1)

            def run(causal=causal, q=q, k=k, v=v, starts=starts):
                return attention_forward(q, k, v, causal, None, starts, starts, backend="triton")

            report(f"flash, head_dim {dim}, causal {causal}", work, "TFLOP/s", run)


def paged(heads: int = 32, kv_heads: int = 8, dim: int = 128, block_size: int = 16) -> None:
    for batch, context in ((64, 4096), (32, 4096), (16, 8192), (128, 1024), (1, 32768)):
        blocks = batch * context // block_size
        pools = [draw(blocks, block_size, kv_heads, dim) for _ in range(2)]
        tables = torch.randperm(blocks, device="cuda").to(torch.int32).view(batch, -1)
        lengths = torch.full((batch,), context, dtype=torch.int32, device="cuda")
        starts = torch.arange(batch + 1, dtype=torch.int32, device="cuda")
        q = draw(batch, heads, dim)

        def run(q=q, pools=pools, tables=tables, lengths=lengths, starts=starts):
            return paged_attention_forward(q, *pools, tables, lengths, starts, backend="triton")

        moved = 2 * batch * context * kv_heads * dim * 2 * 1e3
        report(f"paged decode, batch {batch}, context {context}", moved, "GB/s", run)


if __name__ == "__main__":
    runtime._time = told
    print(torch.cuda.get_device_name(), "torch", torch.__version__, "triton", triton.__version__)
    for part in (rows, products, paged, attention):
        part()
    print(runtime.tuned())
