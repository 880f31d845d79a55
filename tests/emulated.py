"""Sources for the emulator's tests, and the launchers of their kernels."""

import re
from collections.abc import Iterable, Sequence
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


# Statements with a half `h` and other numbers that C++ refuses, and some that it accepts.
MIXED = (
    *("f = h * f", "f = f * h", "f = h - 2", "f = 2.0 / h", "p = h > f", "f = h == 1 ? f : 1"),
    *("f = p ? h : f", "f += h", "f -= h", "f *= h", "f /= h", "i += h", "d += h", "f += h * h"),
)
CONVERTED = (
    *("f = h", "d = h", "h = f", "h = i", "h += f", "h *= 2", "h += h", "f = h * h", "p = h > h"),
    *("f += (float)h", "f = -h", "f = f * (float)h"),
)


def with_halves(statements: Sequence[str]) -> str:
    """A source with a statement per line, the first in line 4, for each 16-bit type."""
    rows = "".join(f"    {statement};\n" for statement in statements)
    given = "T h, float f, double d, int i, bool p, float* out"
    return (
        "#include <cuda_bf16.h>\n#include <cuda_fp16.h>\n"
        f"template <class T> __global__ void mix({given}) {{\n"
        f"{rows}    out[0] = f + d + i + p;\n}}\n"
        + "".join(
            f'extern "C" cudaError_t run_{n}(float* out, cudaStream_t stream) {{\n'
            f"    mix<{n}><<<1, 1, 0, stream>>>({n}(1.0f), 1.0f, 1.0, 1, true, out);\n"
            "    return cudaGetLastError();\n}\n"
            for n in ("__half", "__nv_bfloat16")
        )
    )
