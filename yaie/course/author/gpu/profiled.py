"""The kernels that notebook 23 profiles, and what it asks ncu about each."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from yaie.build import jit
from yaie.course.lessons.ops.cuda.attention_paged import RUNGS as paged_rungs
from yaie.ops.cuda.flash import RUNGS as flash_rungs
from yaie.ops.cuda.flash import Sequences

# Of one H200, measured (notebook 09): bytes and operations per second.
ROOFS = {"bytes": 4281e9, "float32": 51e12, "bfloat16": 736e12}

METRICS = {
    "nanoseconds": "gpu__time_duration.sum",
    "dram_bytes": "dram__bytes.sum",
    "dram": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "l2": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "l1": "l1tex__throughput.avg.pct_of_peak_sustained_elapsed",
    "compute": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "tensor": "sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "fma": "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "issue": "smsp__issue_active.avg.pct_of_peak_sustained_elapsed",
    "occupancy": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "occupancy_most": "sm__maximum_warps_per_active_cycle_pct",
    "registers": "launch__registers_per_thread",
    "shared_bytes": "launch__shared_mem_per_block",
    "thread_blocks": "launch__grid_size",
    "threads": "launch__block_size",
    "waves": "launch__waves_per_multiprocessor",
    "load_sectors": "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio",
    "store_sectors": "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_st.ratio",
    "bank_conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "wait_memory": "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio",
    "wait_shared": "smsp__average_warps_issue_stalled_short_scoreboard_per_issue_active.ratio",
    "wait_barrier": "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio",
    "wait_queue": "smsp__average_warps_issue_stalled_lg_throttle_per_issue_active.ratio",
    "wait_mio": "smsp__average_warps_issue_stalled_mio_throttle_per_issue_active.ratio",
    "wait_math": "smsp__average_warps_issue_stalled_math_pipe_throttle_per_issue_active.ratio",
}


@dataclass(frozen=True)
class Profiled:
    """One launch.

    Attributes:
        name: what the notebook calls it.
        function: the kernel's, as ncu names it; it may go on after that.
        flops: that the result needs.
        launch: does it.
    """

    name: str
    function: str
    flops: float
    launch: Callable[[], None]


def random(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, device="cuda").to(dtype)


def call(file: str, launcher: str, *arguments: Any) -> None:
    getattr(jit.load(file), launcher)(*arguments)


def add(n: int) -> None:
    x, y = random(n), random(n)
    call("elementwise/vector_add_float4.cu", "vector_add_float4_f32", x, y, torch.empty_like(x), n)


def transpose(which: str, rows: int, columns: int) -> None:
    x, out = random(rows, columns), torch.empty(columns, rows, device="cuda")
    call(f"transpose/{which}.cu", f"transpose_{which}_f32", x, out, rows, columns)


def norm(rows: int, size: int) -> None:
    x, weight = random(rows, size, dtype=torch.bfloat16), random(size, dtype=torch.bfloat16)
    call("norm/rms_norm.cu", "rms_norm_bf16", x, weight, torch.empty_like(x), rows, size, 1e-6)


def product(which: str, size: int, dtype: torch.dtype, suffix: str) -> None:
    a, b = random(size, size, dtype=dtype), random(size, size, dtype=dtype)
    launcher = f"matmul_{which}_{suffix}"
    call(f"matmul/{which}.cu", launcher, a, b, torch.empty_like(a), size, size, size)


def scan(n: int) -> None:
    x = torch.ones(n, dtype=torch.int32, device="cuda")
    out = torch.empty(n + 1, dtype=torch.int32, device="cuda")
    call("scan/blelloch.cu", "blelloch_i32", x, out, n, 1024)


def flash(rung: str, tokens: int, heads: int) -> None:
    q, k, v = (random(tokens, heads, 128, dtype=torch.bfloat16) for _ in range(3))
    flash_rungs[rung](q, k, v, False, None, Sequences())


def decode(batch: int, context: int) -> None:
    blocks = context // 16
    pools = [random(batch * blocks, 16, 8, 128, dtype=torch.bfloat16) for _ in range(2)]
    tables = torch.randperm(batch * blocks, device="cuda").int().view(batch, blocks)
    lengths = torch.full((batch,), context, device="cuda").int()
    starts = torch.arange(batch + 1, device="cuda").int()
    q = random(batch, 32, 128, dtype=torch.bfloat16)
    paged_rungs["mma"](q, *pools, tables, lengths, starts, None)


FLOAT, BFLOAT = (torch.float32, "f32"), (torch.bfloat16, "bf16")
PROFILED = [
    Profiled("vector_add, float4", "vector_add_float4", 2**26, lambda: add(2**26)),
    Profiled("rms_norm", "rms_norm", 4 * 16384 * 4096, lambda: norm(16384, 4096)),
    Profiled("rms_norm, 4 rows", "rms_norm", 4 * 4 * 576, lambda: norm(4, 576)),
    Profiled("transpose, naive", "transpose_naive", 0, lambda: transpose("naive", 8192, 8192)),
    Profiled("transpose, tile", "transpose_tile", 0, lambda: transpose("tile", 8192, 8192)),
    Profiled("scan, one thread block", "blelloch", 2**11, lambda: scan(1024)),
    Profiled("matmul, naive", "matmul_naive", 2 * 2048**3, lambda: product("naive", 2048, *FLOAT)),
    Profiled("matmul, shared tile", "matmul_shared_tile", 2 * 2048**3,
             lambda: product("shared_tile", 2048, *FLOAT)),
    Profiled("matmul, register tile", "matmul_register_tile", 2 * 4096**3,
             lambda: product("register_tile", 4096, *FLOAT)),
    Profiled("matmul, mma", "matmul_mma", 2 * 4096**3, lambda: product("mma", 4096, *BFLOAT)),
    Profiled("flash, shared tile", "flash_shared_tile", 4 * 4096**2 * 128 * 16,
             lambda: flash("shared_tile", 4096, 16)),
    Profiled("flash, mma", "flash_mma", 4 * 4096**2 * 128 * 16, lambda: flash("mma", 4096, 16)),
    Profiled("paged decode, mma", "paged_mma", 4 * 16 * 8192 * 32 * 128, lambda: decode(16, 8192)),
]  # fmt: skip
