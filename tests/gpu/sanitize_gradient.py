"""The backward pass of attention at small awkward shapes, for compute-sanitizer to watch.

    compute-sanitizer --error-exitcode 1 python tests/gpu/sanitize_gradient.py
    compute-sanitizer --tool racecheck --error-exitcode 1 python tests/gpu/sanitize_gradient.py
    compute-sanitizer --tool initcheck --error-exitcode 1 python tests/gpu/sanitize_gradient.py

Each tensor has memory of its own from cudaMalloc, so that an access outside it is noticed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"  # before torch is imported
ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import test_attention_gradient as tests  # noqa: E402
import torch  # noqa: E402

from yaie.course.lessons.ops.attention_gradient import attention_backward  # noqa: E402
from yaie.course.lessons.ops.reference.attention_gradient import attention  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def main() -> None:
    for dtype in (torch.float32, torch.bfloat16):
        for shape in tests.SHAPES:
            tensors, grads, causal = tests.inputs(shape, dtype)
            q, k, v = (x.detach() for x in tensors)
            out, lse = attention(q, k, v, causal)
            delta = (grads[0].float() * out.float()).sum(-1) - grads[1]
            given = (x.to(DEVICE) for x in (grads[0], q, k, v, lse, delta))
            got = attention_backward(*given, causal, backend="cuda")
            got = [x.cpu() for x in got]
            tests.compare(got, tests.wanted(tensors, grads, causal), dtype)
    print(f"{2 * len(tests.SHAPES)} shapes as they should be, on {DEVICE}")


if __name__ == "__main__":
    main()
