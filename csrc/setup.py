"""Build every kernel of this folder ahead of time, for one or several GPU architectures.

    python csrc/setup.py                        for all cards since Turing
    python csrc/setup.py --arch native          for the cards of this machine
    python csrc/setup.py --arch "8.0;9.0a"      for these; +PTX lets newer cards compile it too

What is built lies in build/kernels/. `yaie` uses it as long as the source is the same, and compiles
at the first use otherwise. Needs nvcc, but no GPU.
"""

from __future__ import annotations

import argparse
import sys

from yaie.build import ahead, nvcc
from yaie.build.jit import CompileError


def main() -> int:
    """Build; the exit status is 1 if anything was not compiled."""
    parser = argparse.ArgumentParser(description="Compile the kernels of csrc/ with nvcc.")
    parser.add_argument(
        "--arch",
        default=";".join(ahead.ARCHITECTURES),
        help='architectures such as "8.0;9.0a+PTX", or "native" (default: %(default)s)',
    )
    asked = parser.parse_args().arch
    try:
        wanted = native() if asked == "native" else nvcc.parse_architectures(asked)
        print(f"compiling for {', '.join(wanted)}: a few seconds a file and architecture")
        failed = ahead.build_all(wanted)
    except (CompileError, ValueError) as error:
        print(f"build-kernels: {error}", file=sys.stderr)
        return 1
    if failed:
        print(f"build-kernels: {failed} files were not compiled", file=sys.stderr)
    built = len(list(ahead.BUILD.rglob("*.so")))
    print(f"{built} files are in {ahead.BUILD}, for the GPUs that torch sees ({gpus()})")
    return 1 if failed else 0


def gpus() -> str:
    """What torch can use here."""
    import torch

    if torch.version.cuda is None:
        return "none: this torch is a CPU build, and cannot load them"
    names = [torch.cuda.get_device_name(card) for card in range(torch.cuda.device_count())]
    return ", ".join(names) or "none here"


def native() -> tuple[str, ...]:
    """The architectures of the visible cards."""
    import torch

    cards = range(torch.cuda.device_count())
    found = [nvcc.architectures_of(torch.cuda.get_device_capability(card)) for card in cards]
    if not found:
        raise ValueError('no CUDA GPU is visible: name architectures, such as --arch "8.0;9.0"')
    return tuple(dict.fromkeys(architecture for one in found for architecture in one))


if __name__ == "__main__":
    sys.exit(main())
