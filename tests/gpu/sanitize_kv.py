"""The kernels on the paged cache, for compute-sanitizer to watch.

    compute-sanitizer --error-exitcode 1 python tests/gpu/sanitize_kv.py
    compute-sanitizer --tool racecheck --error-exitcode 1 python tests/gpu/sanitize_kv.py
    compute-sanitizer --tool initcheck --error-exitcode 1 python tests/gpu/sanitize_kv.py

Each tensor has memory of its own from cudaMalloc, so that an access outside it is noticed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"  # before torch is imported
ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import test_kv_kernels as tests  # noqa: E402
import torch  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def main() -> None:
    for shape in tests.SHAPES:
        tests.test_reshape_and_cache(shape, torch.float16, DEVICE)
    tests.test_tokens_may_lie_apart(DEVICE)
    for pairs in tests.MAPPINGS.values():
        tests.test_copies_read_before_they_write(pairs, DEVICE)
    tests.test_blocks_of_any_size((17, 2, 33), torch.bfloat16, "cuda", DEVICE)
    for lengths in tests.LENGTHS:
        tests.test_gather(lengths, torch.bfloat16, "cuda", DEVICE)
    tests.test_fp8_is_the_nearest_and_saturates((7, 2, 33, 3), torch.float16, "cuda", DEVICE)
    tests.test_fp8_comes_back_times_its_scale(torch.float16, "cuda", DEVICE)
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    print(f"all as it should be, on {DEVICE}")


if __name__ == "__main__":
    main()
