"""Extensions of torch, from source to result, and what compute-sanitizer says of exercise 23.3.

    python -m yaie.course.author.gpu.extension --output notebooks/data/14_load_inline_h200.json

Without a GPU it times the same ways with a loop on the CPU, and leaves the sanitizer out. Each way
runs in a process of its own, from an empty cache, and its result is compared with x + y.
"""

import argparse
import json
import re
import shutil
import sys
import tempfile

import torch

from yaie.bench.files import output_path, save
from yaie.bench.machine import head
from yaie.build import jit, nvcc
from yaie.course.author.gpu.nvidia import run, sanitized, version_of
from yaie.course.core import render
from yaie.course.core.manifest import find
from yaie.course.core.paths import ROOT

FOLDER = nvcc.CSRC / "elementwise"
FILE = find("23.3").file.name
DRAFT = render.stub(find("23.3"))
SOURCES = ("vector_add_host.cpp", "vector_add_binding.cpp", "vector_add_float4.cu")
HEAD = """
import resource, subprocess, sys, time, torch, torch.utils.cpp_extension as build
folder, csrc, classic = sys.argv[1:]
device = "cuda" if torch.cuda.is_available() else "cpu"
x, y = torch.randn(2, 1025, device=device)
def worked():
    used = [resource.getrusage(of) for of in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)
before, begun = worked(), time.perf_counter()
"""
TAIL = """
if device == "cuda": torch.cuda.synchronize()
seconds = time.perf_counter() - begun
print("RESULT", round(seconds, 3), round(worked() - before, 3))
assert torch.equal(result, x + y)
"""
JIT = """
from yaie.build import jit
result = torch.empty_like(x)
jit.load("elementwise/vector_add_float4.cu").vector_add_float4_f32(x, y, result, 1025)
"""
WAYS = {
    "load_inline, classic: torch/extension.h and pybind11": """
declared = "torch::Tensor vector_add(torch::Tensor x, torch::Tensor y);"
if device == "cuda":
    made = build.load_inline("classic", declared, classic, functions=["vector_add"])
else:
    made = build.load_inline("classic", classic)
result = made.vector_add(x, y)
""",
    "load, the headers of what is used, TORCH_LIBRARY": """
files = ["vector_add_host.cpp", "vector_add_binding.cpp", "vector_add_float4.cu"]
files = [f"{csrc}/{name}" for name in (files if device == "cuda" else files[:1])]
build.load("lean", files, is_python_module=False)
result = torch.ops.yaie_extension.vector_add(x, y)
""",
    "setup.py build_ext --inplace, the same files": """
command = [sys.executable, "setup.py", "build_ext", "--inplace"]
subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
torch.ops.load_library(f"{folder}/yaie_extension.so")
result = torch.ops.yaie_extension.vector_add(x, y)
""",
    "yaie.jit.load: no header of torch, ctypes": JIT,
    "the same again, from the cache": JIT,
}


def classic(name: str) -> str:
    """The source that notebook 14 gives to load_inline."""
    (notebook,) = (ROOT / "notebooks").glob("14_*.ipynb")
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    text = "\n".join("".join(cell["source"]) for cell in cells)
    return re.search(rf'^{name} = r"""\n(.*?)"""', text, re.MULTILINE | re.DOTALL)[1]


def measure_ways(device: str) -> list[dict]:
    """Seconds that passed and that processors worked, for each way."""
    source = classic("CLASSIC" if device == "cpu" else "CLASSIC_CUDA")
    hidden = {"CUDA_VISIBLE_DEVICES": ""} if device == "cpu" else {}
    rows = []
    with tempfile.TemporaryDirectory() as home:
        for name in (*SOURCES, "setup.py"):
            shutil.copy(FOLDER / name, home)
        for way, program in WAYS.items():
            said = run(
                [sys.executable, "-c", HEAD + program + TAIL, home, FOLDER, source],
                TORCH_EXTENSIONS_DIR=home, YAIE_CACHE=f"{home}/cache", **hidden,
            )  # fmt: skip
            seconds, working = map(float, said.partition("RESULT ")[2].split())
            rows.append({"device": device, "way": way, "seconds": seconds, "processor": working})
            print(rows[-1], flush=True)
    return rows


def launch(tool: str) -> None:
    """Run the draft of exercise 23.3, whose x does not begin where memory begins."""
    _, x = torch.zeros(1000, device="cuda"), torch.ones(1000, device="cuda")
    out = torch.empty(1000, device="cuda")
    try:
        jit.load(DRAFT, name=FILE).moving_sum_f32(x, out, 1000)
        torch.cuda.synchronize()
        print(f"{tool}: finished")
    except RuntimeError as error:
        print(f"{tool}: {type(error).__name__}: {str(error).splitlines()[0]}")


def measure_reports() -> list[dict]:
    """What each tool prints of the draft of exercise 23.3, and the lines that it speaks of."""
    child = [sys.executable, "-m", "yaie.course.author.gpu.extension", "--launch"]
    run([*child, "none"])  # compiled before a tool runs it
    rows = []
    # Only memcheck gets an allocation for each tensor: a read of x[-1] would end the others.
    for tool, caching in (("memcheck", "1"), ("racecheck", "0"), ("initcheck", "0")):
        said = sanitized(tool, [*child, tool], tool, caching)
        numbers = {int(n) for n in re.findall(rf"{re.escape(FILE)}:(\d+)", said)}
        assert numbers, said
        lines = {n: DRAFT.splitlines()[n - 1].strip() for n in sorted(numbers)}
        rows.append({"tool": tool, "text": said, "lines": lines})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=output_path, help="a JSON file")
    parser.add_argument("--launch", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.launch:
        return launch(given.launch)
    if not given.output:
        parser.error("--output is wanted")
    on_gpu = torch.cuda.is_available()
    record = head(torch.device("cuda" if on_gpu else "cpu"))
    record["versions"]["g++"] = run(["g++", "-dumpfullversion"]).strip()
    if on_gpu:
        record["versions"]["compute-sanitizer"] = version_of("compute-sanitizer")
        record["reports"] = measure_reports()
    record["ways"] = []
    for device in ("cuda", "cpu") if on_gpu else ("cpu",):
        record["ways"] += measure_ways(device)
        save(record, given.output)


if __name__ == "__main__":
    main()
