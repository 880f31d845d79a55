"""Sources for the emulator's tests, and the launchers of their kernels."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).parent / "emulator"
KERNEL = re.compile(
    r"^// (<<<.*)>>>\n__global__ void (?:__launch_bounds__\(\d+\) )?(\w+)\(([^)]*)\)", re.M
)


def launcher(name: str, parameters: str, body: str) -> str:
    """A launcher that runs `body`."""
    parameters = f"{parameters}, cudaStream_t stream" if parameters else "cudaStream_t stream"
    return (
        f'extern "C" cudaError_t {name}({parameters}) {{\n'
        f"{body}\n    return cudaGetLastError();\n}}\n"
    )


def with_launchers(name: str) -> str:
    """A file of tests/emulator/, and run_… for each kernel with a configuration above it."""
    text = (FOLDER / name).read_text()
    written = [text]
    for configuration, kernel, parameters in KERNEL.findall(text):
        given = ", ".join(re.findall(r"(\w+)(?:,|$)", parameters))
        call = f"    {kernel}{configuration}, stream>>>({given});"
        written.append(launcher(f"run_{kernel}", parameters, call))
    return "".join(written)
