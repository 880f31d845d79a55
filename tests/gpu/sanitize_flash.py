"""The rungs of flash attention, for compute-sanitizer to watch.

    compute-sanitizer --error-exitcode 1 python tests/gpu/sanitize_flash.py
    compute-sanitizer --tool racecheck --error-exitcode 1 python tests/gpu/sanitize_flash.py
    compute-sanitizer --tool initcheck --error-exitcode 1 python tests/gpu/sanitize_flash.py

Each tensor has memory of its own from cudaMalloc, so that an access outside it is noticed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"  # before torch is imported
ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import engine_step  # noqa: E402
import test_flash_kernels as tests  # noqa: E402
import torch  # noqa: E402
from test_paged_rungs import oracle  # noqa: E402

from yaie.engine.inputs import Shape  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def main() -> None:
    for rung in tests.RUNGS:
        for mix in ("chunks", "no keys"):
            tests.test_any_lengths(rung, mix, True, DEVICE)
        tests.test_any_head_dim(rung, torch.bfloat16, 80, DEVICE)
        tests.test_keys_in_the_cache(rung, 5, DEVICE)
        tests.check_paged(rung, [(5, 3), (70, 200)], 16, 3, 1, 128, torch.float16, DEVICE)
    for dtype, sizes in ((torch.bfloat16, (9, 3, 64)), (torch.float16, (8, 2, 128))):
        mixed = engine_step.LaidOut(Shape(64, 9, 8, 6), *sizes, dtype, DEVICE)
        steps = [((70, 20), (33, 1), (9, 9)), ((64, 1), (90, 50), (17, 1), (1, 1))]
        engine_step.run(mixed, steps, lambda got, operands, d=dtype: near(got, operands, d))
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    print(f"all as it should be, on {DEVICE}")


def near(got: tuple, operands: list, dtype: torch.dtype) -> None:
    """Compare with float64."""
    tests.close(got, tuple(oracle(*(x.cpu() for x in operands))), dtype)


if __name__ == "__main__":
    main()
