"""What tools say on a GPU: builds and a graph for notebook 22, profiles, faults and memory for 23.

    python -m yaie.course.author.gpu.tools 22 --output notebooks/data/22_tools_h200.json
    python -m yaie.course.author.gpu.tools 23 --output notebooks/data/23_tools_h200.json
    python -m yaie.course.author.gpu.tools 23 --only kernels --output FILE   keeps FILE's rest

Needs nvcc, ncu and compute-sanitizer, but for "binary", which needs nvcc and cuobjdump and no GPU.
What a tool printed is kept as it was, without what Python said when a fault ended it.
"""

import argparse
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from runpy import run_path

import torch

from yaie.bench.files import output_path, save
from yaie.bench.machine import head
from yaie.bench.protocol import InARow
from yaie.build import ahead, jit, nvcc
from yaie.course.author.gpu import graphs, nvidia
from yaie.course.author.gpu.nvidia import run, version_of
from yaie.course.author.gpu.profiled import METRICS, PROFILED, ROOFS
from yaie.course.author.gpu.ways_to_build import HEAD, PROGRAMS, SLOW, TAIL
from yaie.course.lessons.data_nb23 import FAULTS, PLANTED

CHILD = [sys.executable, "-m", "yaie.course.author.gpu.tools"]
FILE = "elementwise/vector_add_float4.cu"
ADD = nvcc.CSRC / FILE
ARCHITECTURES = ("7.5", "8.0", "9.0+PTX")


# ------------------------------------------------------------------------------------- builds


def measure_builds() -> dict:
    """Seconds from source to function, and bytes of what was built, each from an empty cache."""

    def build(way: str, folder: Path) -> dict:
        folder.mkdir(exist_ok=True)
        said = run(
            [sys.executable, "-c", HEAD + PROGRAMS[way] + TAIL, folder, ADD],
            TORCH_EXTENSIONS_DIR=str(folder), YAIE_CACHE=str(folder), TORCH_CUDA_ARCH_LIST="9.0",
        )  # fmt: skip
        seconds, size = json.loads(said.partition("RESULT ")[2])
        return {"way": way, "seconds": round(seconds, 3), "bytes": size}

    with tempfile.TemporaryDirectory() as home, ThreadPoolExecutor(len(PROGRAMS)) as pool:
        folders = {way: Path(home, str(number)) for number, way in enumerate(PROGRAMS)}
        folders["yaie.jit.load, kept from before"] = folders["yaie.jit.load"]
        slow = [pool.submit(build, way, folders[way]) for way in SLOW]
        rows = [build(way, folders[way]) for way in PROGRAMS if way not in SLOW]
        rows = [future.result() for future in slow] + rows
        for architectures in (("9.0",), ARCHITECTURES):
            target = Path(home, "ahead.so")
            begun = time.perf_counter()
            nvcc.build(ADD.read_text(), ADD, architectures, target)
            seconds = time.perf_counter() - begun
            way = f"ahead of time, {'; '.join(architectures)}"
            size = target.stat().st_size
            rows.append({"way": way, "seconds": round(seconds, 3), "bytes": size})
    return {"file": f"csrc/{FILE}", "rows": rows, "all of csrc": measure_whole()}


def measure_whole() -> dict:
    """What `python csrc/setup.py` takes for every kernel of the course."""
    with tempfile.TemporaryDirectory() as home:
        ahead.BUILD = Path(home)
        begun = time.perf_counter()
        failed = run_path(str(jit.CSRC / "setup.py"))["build_all"](ARCHITECTURES, lambda line: None)
        seconds = time.perf_counter() - begun
        built = list(Path(home).rglob("*.so"))
    assert not failed
    return {
        "architectures": ARCHITECTURES, "seconds": round(seconds, 1), "cores": os.cpu_count(),
        "files": len(built),
    }  # fmt: skip


# ----------------------------------------------------------------------------- a fat binary


def measure_binary() -> dict:
    """What lies in one shared object: its parts with their sizes, registers, a look inside."""
    with tempfile.TemporaryDirectory() as home:
        target = Path(home, "vector_add_float4.so")
        nvcc.build(ADD.read_text(), ADD, ARCHITECTURES, target)
        listed = run(["cuobjdump", "-lelf", "-lptx", target])
        for kind in ("-xelf", "-xptx"):
            run(["env", "-C", home, "cuobjdump", kind, "all", target])
        files = sorted(Path(home).glob("*sm_*"))
        sections = run(["readelf", "-SW", target])
        size = re.search(r"\.nv_fatbin\s+PROGBITS\s+\S+ \S+ (\S+)", sections)[1]
        registers = run(["cuobjdump", "--dump-resource-usage", target])
        code = {
            f"sm_{arch}": read_code(run(["cuobjdump", "-sass", "-arch", f"sm_{arch}", target]))
            for arch in (75, 90)
        }
        (ptx,) = Path(home).glob("*.ptx")
        return {
            "file": f"csrc/{FILE}", "nvcc": nvcc.version(nvcc.nvcc()),
            "architectures": ARCHITECTURES, "bytes": target.stat().st_size,
            "fatbin_bytes": int(size, 16), "listed": listed,
            "parts": {file.name.partition(".")[2]: file.stat().st_size for file in files},
            "resources": read_resources(registers),
            "code": code | {"PTX": read_ptx(ptx.read_text())},
        }  # fmt: skip


def read_code(text: str) -> list[str]:
    """The instructions of the float4 kernel from its first wide load to its wide store."""
    body = text.partition("Function : _Z17vector_add_float4")[2].partition("Function :")[0]
    lines = re.findall(r"/\*[0-9a-f]{4}\*/\s+(.*?) ;", body)
    return between(lines, "LDG.E.128", "STG.E.128")


def read_ptx(text: str) -> list[str]:
    """The same of the PTX."""
    body = text.partition(".entry _Z17vector_add_float4")[2].partition("\n}")[0]
    lines = [line.strip() for line in body.splitlines() if re.match(r"\s*@?[%a-z]\S*.*;$", line)]
    return between(lines, "ld.global.v4", "st.global.v4")


def between(lines: list[str], first: str, last: str) -> list[str]:
    begin = next(i for i, line in enumerate(lines) if first in line)
    end = next(i for i, line in enumerate(lines) if i > begin and last in line)
    return lines[begin : end + 1]


def read_resources(text: str) -> list[dict]:
    """Registers and shared memory of each kernel on each architecture."""
    rows, architecture = [], ""
    for line in text.splitlines():
        if found := re.search(r"arch = (sm_\d+)", line):
            architecture = found[1]
        if found := re.search(r"Function (\S+):", line):
            name = re.match(r"_Z\d+([a-z_0-9]+?)PK", found[1])[1]
        if found := re.search(r"REG:(\d+) STACK:(\d+) SHARED:(\d+)", line):
            registers, stack, shared = map(int, found.groups())
            rows.append({"architecture": architecture, "kernel": name, "registers": registers,
                         "stack": stack, "shared": shared})  # fmt: skip
    return rows


# ----------------------------------------------------------------------------------- profiles


def measure_kernels() -> dict:
    """ncu's metrics of some kernels, one launch each, and its report of two of them in words."""
    child = [*CHILD, "--run-profiled"]
    with ThreadPoolExecutor(len(PROFILED)) as pool:  # compiled before it is profiled
        list(pool.map(lambda kernel: run([*child, kernel.name]), PROFILED))
    names = "|".join(dict.fromkeys(kernel.function for kernel in PROFILED))
    chosen = ["-k", f"regex:^({names})"]
    rows = nvidia.table(nvidia.profile([*METRICS.values()], child, chosen))
    assert len(rows) == len(PROFILED), [row["Kernel Name"] for row in rows]
    kernels = []
    for kernel, row in zip(PROFILED, rows, strict=True):
        assert kernel.function in row["Kernel Name"], row["Kernel Name"]
        metrics = {name: nvidia.number(row.get(metric, "")) for name, metric in METRICS.items()}
        kernels.append({"name": kernel.name, "flops": kernel.flops, "metrics": metrics})
    sections = ["SpeedOfLight", "LaunchStats", "Occupancy", "MemoryWorkloadAnalysis",
                "MemoryWorkloadAnalysis_Tables", "WarpStateStats", "SourceCounters"]  # fmt: skip
    asked = [word for section in sections for word in ("--section", section)]
    details = run([*nvidia.NCU, "-k", "regex:^transpose_naive", *asked, *child])
    details = "\n".join(line for line in details.splitlines() if not line.startswith("=="))
    return {"roofs": ROOFS, "rows": kernels, "details": details}


def run_profiled(name: str) -> None:
    """Launch the kernels, or the one of this name."""
    for kernel in PROFILED:
        if name in ("all", kernel.name):
            kernel.launch()
    torch.cuda.synchronize()


# ------------------------------------------------------------------------------------- faults


def measure_faults() -> list[dict]:
    """What compute-sanitizer prints of each planted fault, and what is seen without it."""
    for name in FAULTS:
        run([*CHILD, "--fault", name])  # compiled before the tools run it

    def look(name: str, tool: str, caching: str) -> dict:
        said = nvidia.sanitized(tool, [*CHILD, "--fault", name], name, caching)
        return {"fault": name, "tool": tool, "caching": caching == "0", "text": said}

    jobs = [("out_of_bounds", "memcheck", "0")]
    jobs += [(name, tool, "1") for name, tool in FAULTS.items()]
    with ThreadPoolExecutor(len(jobs)) as pool:
        found = list(pool.map(lambda job: look(*job), jobs))
    alone = {name: run([*CHILD, "--fault", name]) for name in FAULTS}
    return [*found, *({"fault": name, "tool": None, "text": text} for name, text in alone.items())]


def run_fault(name: str) -> None:
    n = 1000
    x, out = torch.ones(n, device="cuda"), torch.empty(n, device="cuda")
    try:
        getattr(jit.load(PLANTED, name="planted.cu"), name)(x, out, n)
        torch.cuda.synchronize()
        print(f"{name}: finished, out[0] is {out[0].item():g}")
    except RuntimeError as error:
        print(f"{name}: {type(error).__name__}: {str(error).splitlines()[0]}")


# ------------------------------------------------------------------------------------- memory


def measure_memory() -> dict:
    """Managed memory and pools (memory.cu), and what torch's allocator makes of 2 MiB."""
    with tempfile.TemporaryDirectory() as home:
        program = Path(home, "memory")
        source = Path(__file__).with_name("memory.cu")
        run(["nvcc", "-O3", "-std=c++17", "-arch=native", "-o", program, source])
        found = json.loads(run([program]))
    times = 10_000
    clock = InARow(torch.device("cuda"), each=times)
    for _ in range(100):
        torch.empty(1 << 19, device="cuda")
    before = torch.cuda.memory_stats()
    (ms,) = clock.times(lambda: torch.empty(1 << 19, device="cuda"), 1)
    after = torch.cuda.memory_stats()
    found["pair_us"]["torch.empty, and freed"] = round(1e3 * ms, 2)
    counted = {"tensors": "allocation.all.allocated", "cudaMalloc": "num_device_alloc"}
    found["torch"] = {name: after[key] - before[key] for name, key in counted.items()}
    return found


# --------------------------------------------------------------------------------------- all


SECTIONS: dict[str, dict[str, Callable[[], object]]] = {
    "22": {
        "builds": measure_builds,
        "binary": measure_binary,
        "graph": graphs.measure,
        "capture": graphs.measure_lines,
    },
    "23": {"kernels": measure_kernels, "faults": measure_faults, "memory": measure_memory},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("notebook", nargs="?", choices=SECTIONS, help="whose figures")
    parser.add_argument("--output", type=output_path, help="a JSON file")
    parser.add_argument("--only", help="some of its sections, such as kernels,memory; default: all")
    parser.add_argument("--run-profiled", nargs="?", const="all", help=argparse.SUPPRESS)
    parser.add_argument("--fault", choices=FAULTS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.run_profiled:
        return run_profiled(given.run_profiled)
    if given.fault:
        return run_fault(given.fault)
    if not (given.notebook and given.output):
        parser.error("a notebook and --output are wanted")
    sections = SECTIONS[given.notebook]
    record = json.loads(given.output.read_text()) if given.output.exists() else {}
    chosen = given.only.split(",") if given.only else list(sections)
    if unknown := [name for name in chosen if name not in sections]:
        parser.error(f"notebook {given.notebook} has the sections {', '.join(sections)}, "
                     f"not {', '.join(unknown)}")  # fmt: skip
    if chosen != ["binary"]:
        record |= head(torch.device("cuda"))
        record["versions"] |= {name: version_of(name) for name in ("ncu", "compute-sanitizer")}
    failed = []
    for name in chosen:
        begun = time.perf_counter()
        try:
            record[name] = sections[name]()
        except Exception as error:  # the others are still worth their time; told at the end
            failed.append(f"{name}: {type(error).__name__}: {error}")
        save(record, given.output)
        print(f"{name}: {time.perf_counter() - begun:.1f} s", flush=True)
    if failed:
        sys.exit("\n".join(failed))


if __name__ == "__main__":
    main()
