"""The kernels on int32, prefix sums, metadata and tree lookup, for compute-sanitizer to watch.

    compute-sanitizer --error-exitcode 1 python tests/gpu/sanitize_integers.py
    compute-sanitizer --tool racecheck --error-exitcode 1 python tests/gpu/sanitize_integers.py

Each tensor has memory of its own from cudaMalloc, so that an access outside it is noticed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"  # before torch is imported
ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import test_draft_metadata  # noqa: E402
import test_flat_tree  # noqa: E402
import test_scan  # noqa: E402
import torch  # noqa: E402


def main() -> None:
    test_scan.test_blelloch(64, "cuda")
    test_scan.test_prefix_sum_of_any_length("cuda")
    for name in ("", "_linear", "_binary"):
        test_draft_metadata.test_one_launch(name, "cuda")
    test_draft_metadata.test_from_ends("cuda")
    for name in ("match", "match_simple"):
        test_flat_tree.test_launchers(name, "cuda")
    torch.cuda.synchronize()
    print("all as it should be")


if __name__ == "__main__":
    main()
