"""Sources for the emulator's tests, and the launchers of their kernels."""

import re
from collections.abc import Iterable
from pathlib import Path

FEATURES, ARITHMETIC = (
    Path(__file__).parent / "emulator" / f"{name}.cu" for name in ("features", "arithmetic")
)
INCLUDE = re.compile(r"^#include .*", re.M)
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


def namespace(path: Path) -> str:
    """The namespace of a file that is compiled with others: several folders have a `naive.cu`."""
    return f"{path.parent.name}_{path.stem}_"


def together(paths: Iterable[Path]) -> str:
    """Files as one source: the headers of all of them, then each file in its own namespace."""
    texts = {path: path.read_text() for path in paths}
    headers = dict.fromkeys(line for text in texts.values() for line in INCLUDE.findall(text))
    spaces = [
        f'namespace {namespace(path)} {{\n#line 1 "{path}"\n{text}\n}}'
        for path, text in texts.items()
    ]
    return "\n".join([*headers, *spaces])


def with_launchers(text: str) -> str:
    """A source, and run_NAME for each kernel with the configuration of its launch above it."""
    written = [text]
    for configuration, kernel, parameters in KERNEL.findall(text):
        given = ", ".join(re.findall(r"(\w+)(?:,|$)", parameters))
        call = f"    {kernel}{configuration}, stream>>>({given});"
        written.append(launcher(f"run_{kernel}", parameters, call))
    return "".join(written)
