"""What `--use_fast_math` changes: softmax, RMSNorm and single operations, in ulps and in time.

    python -m yaie.course.author.gpu.fast_math --output notebooks/data/15_fast_math_h200.json

Each way is a build of the same sources by nvcc. Errors are counted against float64 in units in the
last place (ulps) of the result's dtype. `--quick` runs the emulator at small sizes, where all ways
are one; with nvcc it compiles them too.
"""

import argparse
import ctypes
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from yaie.bench import files
from yaie.bench.machine import head
from yaie.bench.protocol import CpuClock, CudaClock, compare, why_wrong
from yaie.bench.protocol import relative_error as relative
from yaie.bench.protocol import row_error as by_row
from yaie.build import jit, nvcc
from yaie.course.author.gpu.nvidia import run
from yaie.emulator.signature import find_launchers

WAYS = {
    "as the course builds": [],
    "-ftz=true": ["-ftz=true"],
    "-prec-div=false": ["-prec-div=false"],
    "-prec-sqrt=false": ["-prec-sqrt=false"],
    "--use_fast_math": ["--use_fast_math"],
}
EXACT = next(iter(WAYS))
OPERATIONS = {
    "exponential": "expf(x[i])", "quotient": "x[i] / y[i]", "root": "sqrtf(x[i])",
    "inverse_root": "rsqrtf(x[i])", "sum": "x[i] + y[i]",
}  # fmt: skip
SINGLE = "#include <cuda_runtime.h>\n" + "".join(
    f"""
__global__ void {name}(const float* x, const float* y, float* out, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = {code};
}}
extern "C" cudaError_t {name}_f32(const float* x, const float* y, float* out, int n,
                                  cudaStream_t stream) {{
    {name}<<<(n + 255) / 256, 256, 0, stream>>>(x, y, out, n);
    return cudaGetLastError();
}}
"""
    for name, code in OPERATIONS.items()
)
WANTED: dict[str, Callable[..., torch.Tensor]] = {
    "exponential": lambda x, y: x.exp(),
    "quotient": lambda x, y: x / y,
    "root": lambda x, y: x.sqrt(),
    "inverse_root": lambda x, y: x.rsqrt(),
    "sum": lambda x, y: x + y,
}
FILES = {"softmax": "sampling/softmax.cu", "rms_norm": "norm/rms_norm.cu"}
DTYPES = {"f32": (torch.float32, 23), "bf16": (torch.bfloat16, 7)}  # and bits of the fraction
EPS = 1e-6
KINDS = {"softmax": ("ordinary", "wide"), "rms_norm": ("ordinary", "denormal")}  # of rows
# Of the intervals in which the exponential is measured; below -87.3 its result is denormal.
ENDS = [-103, -88, -64, -32, -16, -8, -4, -1, 0]


def ulps(got: torch.Tensor, wanted: torch.Tensor, fraction: int = 23) -> dict[str, float | None]:
    """How far results are from float64: the largest and the mean error in ulps of their dtype.

    Args:
        fraction: bits of the dtype's fraction; float32 and bfloat16 share the exponents.

    Returns:
        flushed: share of results that should not be 0 and are. infinite: share that should be
        finite and is not. worst, mean: of all others; None if there are none.
    """
    _, exponent = torch.frexp(wanted)
    unit = torch.ldexp(torch.ones_like(wanted), (exponent - 1).clamp(min=-126) - fraction)
    infinite, flushed = ~got.double().isfinite(), (got == 0) & (wanted.abs() >= unit)
    error = ((got.double() - wanted).abs() / unit)[~infinite & ~flushed]
    return {
        "worst": round(error.max().item(), 2) if len(error) else None,
        "mean": round(error.mean().item(), 3) if len(error) else None,
        "flushed": round(flushed.double().mean().item(), 4),
        "infinite": round(infinite.double().mean().item(), 4),
    }  # fmt: skip


class Build:
    """The launchers of one source, built one way; emulated on a CPU."""

    def __init__(self, source: str, path: Path, flags: list[str], device: str) -> None:
        self.launchers = find_launchers(source)
        self.emulated = jit.load(source, name=path.name) if device == "cpu" else None
        if nvcc.find() is None and self.emulated:
            return
        capability = (9, 0) if self.emulated else torch.cuda.get_device_capability()
        self.folder = tempfile.TemporaryDirectory()
        target = Path(self.folder.name, "built.so")
        nvcc.build(source, path, nvcc.architectures_of(capability), target, flags)
        if not self.emulated:
            self.library = ctypes.CDLL(str(target))

    def __call__(self, name: str, *arguments: Any) -> None:
        if self.emulated:
            return getattr(self.emulated, name)(*arguments)
        launcher = self.launchers[name]
        stream = torch.cuda.current_stream().cuda_stream
        if error := launcher.bind(self.library)(*launcher.values(arguments, stream)):
            raise RuntimeError(f"{name} returned {error}")


def operations(builds: dict[str, Build], device: str, n: int) -> Iterator[dict]:
    """Errors of single operations, by way and by what they get."""
    between = partial(uniform, n, device)
    ordinary = between(0.5, 2.0)
    inputs = {f"exponential, {a} to {b}": (between(a, b), ordinary) for a, b in pairwise(ENDS)} | {
        "quotient": (between(0.5, 2.0), ordinary),
        "quotient, denormal ÷ ordinary": (between(0.1, 1.0) * 2.0**-127, ordinary),
        "quotient, ordinary ÷ denormal": (between(0.1, 1.0) * 2**-20, ordinary * 2.0**-130),
        "quotient, ÷ more than 2¹²⁶": (between(1, 2) * 2.0**100, between(1.01, 1.9) * 2.0**126),
        "root": (ordinary, ordinary),
        "inverse_root": (ordinary, ordinary),
        "inverse_root, of a denormal": (between(0.1, 1.0) * 2.0**-127, ordinary),
        "sum, of denormals": (between(0.1, 1.0) * 2.0**-128, between(0.1, 1.0) * 2.0**-128),
    }
    for name, (x, y) in inputs.items():
        operation = name.partition(",")[0]
        wanted = WANTED[operation](x.double(), y.double())
        errors = {}
        for way, build in builds.items():
            out = torch.full_like(x, torch.nan)
            build(f"{operation}_f32", x, y, out, n)
            errors[way] = ulps(out, wanted)
        right = not errors[EXACT]["infinite"] and errors[EXACT]["worst"] <= 3
        yield {"operation": name, "right": right, "ulps": errors}


def uniform(n: int, device: str, low: float, high: float) -> torch.Tensor:
    return torch.empty(n, device=device).uniform_(low, high)


def rows_of(kind: str, rows: int, columns: int, device: str) -> torch.Tensor:
    x = torch.randn(rows, columns, device=device)
    return {"ordinary": x, "wide": 12 * x, "denormal": x * 1e-39}[kind]


def kernels(builds: dict[str, dict[str, Build]], device: str, quick: bool) -> Iterator[dict]:
    """Errors and times of softmax and RMSNorm by way.

    softmax of "wide" rows has results that are denormal, RMSNorm of "denormal" rows inputs.
    """
    shapes = {"softmax": [(512, 128256), (64, 4096)], "rms_norm": [(16384, 4096), (64, 4096)]}
    if quick:
        shapes = {"softmax": [(3, 64)], "rms_norm": [(3, 64)]}
    for kernel, kinds in KINDS.items():
        for shape in shapes[kernel]:
            for suffix in DTYPES:
                yield measured(kernel, builds[kernel], shape, suffix, kinds, device)


def measured(
    kernel: str, builds: dict[str, Build], shape: tuple[int, int], suffix: str,
    kinds: tuple[str, str], device: str,
) -> dict:  # fmt: skip
    dtype, fraction = DTYPES[suffix]
    row = {"kernel": kernel, "rows": shape[0], "columns": shape[1], "dtype": suffix, "ulps": {}}
    weight = torch.rand(shape[1], device=device).add(0.5).to(dtype)
    for kind in kinds:
        x = rows_of(kind, *shape, device).to(dtype)
        wide, calls, errors = x.double(), {}, {}
        if kernel == "softmax":
            wanted = wide.softmax(-1)
        else:
            wanted = wide / (wide.square().mean(-1, keepdim=True) + EPS).sqrt() * weight.double()
        for way, build in builds.items():
            out = torch.full_like(x, torch.nan)
            given = (x, out) if kernel == "softmax" else (x, weight, out)
            eps = () if kernel == "softmax" else (EPS,)
            calls[way] = partial(build, f"{kernel}_{suffix}", *given, *shape, *eps)
            calls[way]()
            errors[way] = ulps(out, wanted, fraction)
            if kind == "ordinary":
                wrong = why_wrong(relative(out, wanted), by_row(out, wanted), dtype)
                row["right"] = row.get("right", True) and not wrong
        row["ulps"][kind] = errors
        if kind == "ordinary":
            warm = shape[0] * shape[1] < 2**20  # it stays in the L2 cache
            clock = CudaClock(torch.device(device), warm) if device == "cuda" else CpuClock()
            times = compare(calls, clock)
            row["warm"], row["ms"] = warm, {way: t.median for way, t in times.items()}
            row["spread"] = {way: [t.fastest, t.slowest] for way, t in times.items()}
            row["ratio"] = {way: t.median / times[EXACT].median for way, t in times.items()}
    return row


def instructions() -> dict[str, dict[str, list[str]]]:
    """The PTX of each single operation between its loads and its store, both ways."""
    found: dict[str, dict[str, list[str]]] = {}
    for way in (EXACT, "--use_fast_math"):
        with tempfile.TemporaryDirectory() as home:
            source, target = Path(home, "single.cu"), Path(home, "single.ptx")
            source.write_text(SINGLE)
            run([nvcc.nvcc(), "-ptx", "-arch=sm_90", *WAYS[way], source, "-o", target])
            text = target.read_text()
        for name in OPERATIONS:
            body = re.search(rf"\.entry _Z\d+{name}PK.*?\n}}", text, re.DOTALL)[0]
            lines = [line.strip() for line in body.splitlines() if line.strip().endswith(";")]
            last = max(i for i, line in enumerate(lines) if line.startswith("ld.global"))
            end = next(i for i, line in enumerate(lines) if line.startswith("st.global"))
            kept = [x for x in lines[last + 1 : end] if not x.startswith(("add.s64", "cvta"))]
            found.setdefault(name, {})[way] = kept
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=files.output_path, required=True, help="a JSON file")
    parser.add_argument("--quick", action="store_true", help="small and emulated, without a GPU")
    given = parser.parse_args()
    device = "cpu" if given.quick else "cuda"
    torch.manual_seed(0)
    record = head(torch.device(device)) | {"ways": list(WAYS), "operations": [], "kernels": []}

    def save(section: str, rows: Iterator[dict]) -> None:
        for row in rows:
            record[section].append(row)
            files.save(record, given.output)
            shown = {key: value for key, value in row.items() if key not in ("ulps", "spread")}
            print(shown, file=sys.stderr, flush=True)

    if nvcc.find():
        record["instructions"] = instructions()
    single = {w: Build(SINGLE, Path("single.cu"), flags, device) for w, flags in WAYS.items()}
    save("operations", operations(single, device, 1000 if given.quick else 2**22))
    sources = {name: jit.CSRC / file for name, file in FILES.items()}
    builds = {
        name: {w: Build(file.read_text(), file, flags, device) for w, flags in WAYS.items()}
        for name, file in sources.items()
    }
    save("kernels", kernels(builds, device, given.quick))
    if not all(row["right"] for row in [*record["operations"], *record["kernels"]]):
        sys.exit("a result is wrong: see the rows with right: false")


if __name__ == "__main__":
    main()
