"""Paged attention and shared prefixes on tensor cores, for compute-sanitizer to watch.

    compute-sanitizer --error-exitcode 1 python tests/gpu/sanitize_paged.py
    compute-sanitizer --tool racecheck --error-exitcode 1 python tests/gpu/sanitize_paged.py
    compute-sanitizer --tool initcheck --error-exitcode 1 python tests/gpu/sanitize_paged.py

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
import test_paged as tests  # noqa: E402
import torch  # noqa: E402

from yaie.engine.inputs import Shape  # noqa: E402
from yaie.ops.cuda import paged  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def main() -> None:
    for shape in tests.SHAPES:
        tests.test_tensor_cores(shape, torch.float16, DEVICE)
    for workers in (1, 5, 50):
        tests.test_wherever_the_shares_end(workers, DEVICE)
    for shape, shared in tests.PREFIXES:
        tests.test_cascade(shape, shared, torch.bfloat16, DEVICE)
    operands = tests.batch(tests.SHAPES[0], torch.bfloat16, DEVICE)
    for rung in paged.RUNGS.values():
        tests.check(rung(*operands, None), operands)
    for dtype, sizes in ((torch.bfloat16, (9, 3, 64)), (torch.float32, (4, 2, 64))):
        decode = engine_step.LaidOut(Shape(6, 6, 6, 5), *sizes, dtype, DEVICE)
        steps = [((70, 1), (1, 1), (33, 1)), ((64, 1), (17, 1), (80, 1), (2, 1), (49, 1))]
        engine_step.run(decode, steps, tests.check)
        few = engine_step.LaidOut(Shape(20, 5, 4, 6), *sizes, dtype, DEVICE)
        steps = [((70, 7), (33, 1), (9, 9)), ((64, 1), (90, 17), (17, 1), (1, 1))]
        engine_step.run(few, steps, tests.check)
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    print(f"all as it should be, on {DEVICE}")


if __name__ == "__main__":
    main()
