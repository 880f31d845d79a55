"""Every kernel of csrc/ at small awkward shapes, for compute-sanitizer to watch.

    compute-sanitizer --error-exitcode 1 python tests/gpu/sanitize.py
    compute-sanitizer --tool racecheck --error-exitcode 1 python tests/gpu/sanitize.py

Each tensor has memory of its own from cudaMalloc, so that an access outside it is noticed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"  # before torch is imported
ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import torch  # noqa: E402
from kernel_cases import CASES, Case  # noqa: E402

from yaie.build import jit  # noqa: E402

SUFFIXES = {torch.float32: "f32", torch.bfloat16: "bf16"}


def launch(case: Case, dtype: torch.dtype) -> int:
    """Launch one kernel at each of its small shapes; returns how often."""
    generator = torch.Generator().manual_seed(0)

    def draw(*sizes: int) -> torch.Tensor:
        return torch.randn(*sizes, generator=generator).to(dtype).cuda()

    module = jit.load(case.file)
    name = f"{case.name}_{SUFFIXES[dtype]}"
    if name not in module.launchers:
        return 0
    for shape in case.small_shapes:
        inputs = case.inputs(shape, draw)
        outputs = tuple(
            torch.empty(*sizes, dtype=case.output_dtype or dtype, device="cuda")
            for sizes in case.outputs(*inputs)
        )
        getattr(module, name)(*case.arguments(inputs, outputs))
        torch.cuda.synchronize()
        case.check(outputs, inputs)
    return len(case.small_shapes)


def main() -> None:
    count = sum(launch(case, dtype) for case in CASES for dtype in SUFFIXES)
    print(f"{count} launches of {len(CASES)} launchers")


if __name__ == "__main__":
    main()
