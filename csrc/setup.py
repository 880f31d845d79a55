"""Compile every kernel in this folder ahead of time, for one or several GPU architectures.

    python csrc/setup.py                        for all GPU architectures since Turing
    python csrc/setup.py --arch native          for the GPUs in this machine
    python csrc/setup.py --arch "8.0;9.0a"      for these; with +PTX newer GPUs can compile it too
    python csrc/setup.py build_ext --inplace --arch 75
                                                the same, as extensions of torch spell it

The compiled kernels go to build/kernels/. `yaie` loads them while their sources are unchanged;
otherwise it compiles a kernel at its first use. Needs nvcc, but no GPU.
"""

from __future__ import annotations

import argparse
import re
import sys

from yaie.build import ahead, nvcc
from yaie.build.jit import CompileError


def main() -> int:
    """Compile all kernels; the exit status is 1 if any file failed."""
    parser = argparse.ArgumentParser(description="Compile the kernels of csrc/ with nvcc.")
    words = "what setuptools calls this, accepted and not needed"
    parser.add_argument("command", nargs="?", choices=["build_ext"], help=words)
    parser.add_argument("--inplace", action="store_true", help=words)
    parser.add_argument(
        "--arch",
        default=";".join(ahead.ARCHITECTURES),
        help='such as "8.0;9.0a+PTX", or 80, sm_80, or "native" (default: %(default)s)',
    )
    # 75, sm_75 and 7.5 are one architecture.
    arch = re.sub(r"\b(?:sm_)?(\d+)(\d)([af]?)(?=[;,\s+]|$)", r"\1.\2\3", parser.parse_args().arch)
    try:
        architectures = native() if arch == "native" else nvcc.parse_architectures(arch)
        print(f"compiling for {', '.join(architectures)}: a few seconds per file and architecture")
        failed = ahead.build_all(architectures)
    except (CompileError, ValueError) as error:
        print(f"build-kernels: {error}", file=sys.stderr)
        return 1
    if failed:
        print(f"build-kernels: {failed} files failed to compile", file=sys.stderr)
    built = len(list(ahead.BUILD.rglob("*.so")))
    print(f"{built} compiled files in {ahead.BUILD}; GPUs visible to torch: {gpus()}")
    return 1 if failed else 0


def gpus() -> str:
    """The names of the GPUs that torch can use, or why there are none."""
    import torch

    if torch.version.cuda is None:
        return "none, since this torch is a CPU build and cannot load the kernels"
    names = [torch.cuda.get_device_name(card) for card in range(torch.cuda.device_count())]
    return ", ".join(names) or "none"


def native() -> tuple[str, ...]:
    """The architectures of the visible GPUs."""
    import torch

    cards = range(torch.cuda.device_count())
    found = [nvcc.architectures_of(torch.cuda.get_device_capability(card)) for card in cards]
    if not found:
        raise ValueError('no CUDA GPU is visible: name architectures, such as --arch "8.0;9.0"')
    return tuple(dict.fromkeys(architecture for one in found for architecture in one))


if __name__ == "__main__":
    sys.exit(main())
