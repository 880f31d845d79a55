"""The emulator against the real thing: compute-sanitizer's verdicts and Nsight Compute's counters.

    python -m yaie.course.author.gpu.agreement measure RAW.json   # where there is a CUDA GPU
    python -m yaie.course.author.gpu.agreement compare RAW.json   # anywhere

Each planted fault of faults.cu runs in a process of its own, alone and under each
tool of compute-sanitizer; all correct twins run under each tool too. The kernels of
counters.cu run under ncu. `compare` does the same on the emulator and writes
notebooks/data/15_agreement.json; a difference that `explanations` does not explain is an error.
"""

import argparse
import contextlib
import datetime
import json
import re
import shutil
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch

from yaie.bench import files
from yaie.bench.machine import versions
from yaie.build.cache import CSRC
from yaie.course.author.gpu import nvidia
from yaie.course.author.gpu.explanations import COUNTER_EXPLANATIONS, FAULT_EXPLANATIONS
from yaie.course.author.gpu.nvidia import run, version_of
from yaie.course.core import paths
from yaie.emulator.checks import Report
from yaie.emulator.launch import KernelError, Module

HERE = Path(__file__).resolve().parent
DATA = paths.DATA / "15_agreement.json"
ELEMENTS = 97  # of each array that a fault gets
AT_ONCE = 8  # processes that share the GPU
TIME_LIMIT = 40  # seconds for one process

TOOLS = {
    "memcheck": [],
    "racecheck": ["--racecheck-detect-level", "info", "--print-level", "info"],
    "synccheck": [],
    "initcheck": [],
}
TOOL_OF = {  # which should find a fault of a kind
    **dict.fromkeys(["out_of_bounds", "misaligned"], "memcheck"),
    **dict.fromkeys(["race", "pending_copy"], "racecheck"),
    "uninitialized": "initcheck",
    **dict.fromkeys(["divergent_barrier", "deadlock", "inactive_lane"], "synccheck"),
    **dict.fromkeys(["wrong_mask", "divergent_collective"], "synccheck"),
}

SOME_LANES = [0x0000FFFF, 0x00FF00FF, 0x7F0000FF, 0x0F0F0F0F, 0x33333333, 0x55555555]
WIDE = ("doubles", "float4")
COUNTED = [  # launchers of counters.cu, each with the numbers that it gets
    *[(f"transpose_{which}", [64]) for which in ("naive", "32", "33")],
    ("strided", [1, 2, 8, 32]),
    ("shifted", [0, 4, 8]),
    *[(name, [0]) for name in ("broadcast", "halves", "half_pairs")],
    ("shared_stride", [0, 1, 2, 3, 8, 16]),
    ("shared_vectors", [0]),
    *[(f"{kind}_apart", [0, 1, 2, 3]) for kind in WIDE],
    *[(f"{kind}_{which}", [0, 1, 2, 3, 4]) for kind in WIDE for which in ("meet", "alone")],
    *[(f"{kind}_lanes", SOME_LANES) for kind in WIDE],
    *[(f"{kind}_stored", [0, 1, 4, 5]) for kind in WIDE],
    ("branches", [0]),
]
LAUNCHES = [(name, number) for name, numbers in COUNTED for number in numbers]
OPERATIONS = {"load": "ld", "store": "st"}
METRICS = {  # of ncu: what the hardware counts, {} being ld or st
    ("global", "requests"): "l1tex__t_requests_pipe_lsu_mem_global_op_{}.sum",
    ("global", "units"): "l1tex__t_sectors_pipe_lsu_mem_global_op_{}.sum",
    ("shared", "requests"): "smsp__sass_inst_executed_op_shared_{}.sum",
    ("shared", "units"): "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{}.sum",
}


def planted() -> dict[str, tuple[str, int]]:
    """For each faulty kernel the kind and the line of its fault, as its comment says."""
    found, kernel = {}, ""
    for number, row in enumerate((HERE / "faults.cu").read_text().splitlines(), 1):
        if match := re.search(r"__global__ void (\w+)\(", row):
            kernel = match[1]
        if match := re.search(r"// FAULT: (\w+)$", row):
            found[kernel] = (match[1], number)
    return found


FAULTS = planted()


def with_launchers(text: str) -> str:
    """The source with its LAUNCH macros written out, each in the lines that it had: the emulator
    finds only launchers that can be read."""
    define = re.search(r"#define LAUNCH\(name, \.\.\.\)((?:.*\\\n)*.*)\n", text)
    body = " ".join(define[1].replace("\\\n", " ").split())

    def launchers(found: re.Match[str]) -> str:
        name, call = found.groups()
        written = re.sub(r"\bname\b", name, body).replace("##", "")
        lines = "\n" * found[0].count("\n")
        return written.replace("__VA_ARGS__", " ".join(call.split())) + lines

    return re.sub(r"^LAUNCH\((\w+),\s((?:.*;\n)*.*)\)$", launchers, text, flags=re.MULTILINE)


# ------------------------------------------------------------------ on the GPU machine


def build(source: Path, folder: Path) -> Path:
    """A source with launch.cu as its main program."""
    program = folder / source.stem
    options = ["-std=c++17", "-arch=native", "-lineinfo", "-Xcompiler", "-rdynamic", "-I", CSRC]
    run(["nvcc", *options, "-o", program, HERE / "launch.cu", source])
    return program


def tool_commands(sanitizers: list[str], program: Path, right: str) -> dict[str, list[str]]:
    """How the program is run, by tool; "alone" is without one. The first sanitizer that can look at
    shared memory, with the driver that there is, is taken for initcheck: `right` then finishes."""
    commands = {tool: [sanitizers[0], "--tool", tool, *TOOLS[tool]] for tool in TOOLS}
    for sanitizer in sanitizers:
        command = [sanitizer, "--tool", "initcheck", "--initcheck-address-space", "all"]
        if "finished" in launched(command, program, [right]):
            commands["initcheck"] = command
            break
    return {"alone": []} | commands


def launched(command: list[str], program: Path, launchers: list[str]) -> str:
    """What a tool and a program print of these launchers."""
    places = [f"run_{launcher}:{ELEMENTS}:{ELEMENTS}" for launcher in launchers]
    return run([*command, program, *places], TIME_LIMIT, may_fail=True)


def measure_faults(program: Path, names: list[str], sanitizers: list[str]) -> list[dict]:
    """What each tool of compute-sanitizer, and none, prints for these faults and for all twins."""
    commands = tool_commands(sanitizers, program, "unwritten_right")

    def job(work: tuple[str, str, list[str]]) -> dict:
        name, tool, launchers = work
        text = launched(commands[tool], program, launchers)
        return {"name": name, "tool": tool, "command": commands[tool], "text": text[:20000]}

    twins = [("twins", tool, [f"{name}_right" for name in FAULTS]) for tool in commands]
    # Those that may hang come last: a kernel that never ends slows its neighbors.
    names = sorted(names, key=lambda name: FAULTS[name][0] in ("deadlock", "divergent_barrier"))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(job, twins + [(n, tool, [n]) for n in names for tool in commands]))


def measure_counters(program: Path) -> str:
    """ncu's metrics, a row for each launch, in order."""
    launches = [f"run_{name}:{number}:4096" for name, number in LAUNCHES]
    metrics = [name.format(op) for name in METRICS.values() for op in OPERATIONS.values()]
    return nvidia.profile(metrics, [program, *launches])


def describe_machine(sanitizers: list[str]) -> dict:
    """The names and versions of what was used."""
    tools = {
        "CUDA": version_of("nvcc"),
        "compute-sanitizer": " and ".join(map(version_of, sanitizers)),
        "ncu": version_of("ncu"),
    }
    return {
        "machine": torch.cuda.get_device_name(),
        "versions": {"driver": versions()["driver"]} | tools,
        "date": datetime.date.today().isoformat(),
    }


def measure(target: Path, sanitizers: list[str], only: list[str]) -> None:
    """Everything that needs the GPU; writes what the tools printed, unread.

    `only` names faults, or "counters", and keeps what the file says of the others.
    """
    for tool in ("nvcc", "ncu", *sanitizers):
        if not shutil.which(tool):
            sys.exit(f"this needs {tool}, which comes with the CUDA toolkit")
    raw = json.loads(target.read_text()) if only else {"faults": []}
    names = [name for name in FAULTS if not only or name in only]
    raw |= describe_machine(sanitizers)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        with ThreadPoolExecutor(2) as pool:
            faults, counters = pool.map(
                lambda name: build(HERE / f"{name}.cu", folder), ["faults", "counters"]
            )
        if not only or "counters" in only:
            raw["counters"] = measure_counters(counters)
            target.write_text(json.dumps(raw))
        fresh = measure_faults(faults, names, sanitizers)
    again = {record["name"] for record in fresh}
    raw["faults"] = [r for r in raw["faults"] if r["name"] not in again] + fresh
    target.write_text(json.dumps(raw))
    print(f"{len(fresh)} runs")


# ------------------------------------------------------------------------- anywhere


def load(name: str) -> Module:
    """NAME.cu on the emulator, checked."""
    path = HERE / f"{name}.cu"
    return Module(with_launchers(path.read_text()), path, checked=True)


def emulate(module: Module, launcher: str, number: int, elements: int) -> Report:
    """The report of one launch, with the arrays that launch.cu makes."""
    x = torch.arange(1, elements + 1, dtype=torch.float32)
    with contextlib.suppress(KernelError):  # a deadlock: the report has it
        getattr(module, f"run_{launcher}")(x, torch.zeros(elements), number)
    return module.report


@dataclass
class Verdict:
    """What a tool said first, and the lines of the source that it named."""

    words: str
    lines: list[int]

    def __str__(self) -> str:
        where = " and ".join(map(str, self.lines))
        return f"{self.words}, line{'s' * (len(self.lines) > 1)} {where}"


def read_verdict(text: str) -> Verdict | None:
    """The first thing that compute-sanitizer found in a kernel of faults.cu; None if nothing."""
    for block in re.split(r"^=+ (?! )", text, flags=re.MULTILINE)[1:]:
        lines = sorted({int(number) for number in re.findall(r"in faults\.cu:(\d+)", block)})
        if lines:
            race = re.search(r"(\w+): Race .*? (\w+) access .*? and (\w+) access", block, re.DOTALL)
            words = re.split(r" at |\n", block)[0].strip(" .")
            if race:
                words = "{}: race of a {} and a {}".format(*race.groups()).lower()
            return Verdict(words, lines)
    return None


def compare_faults(records: list[dict]) -> list[dict]:
    """One row per fault: what the emulator says, what the tool for its kind says, and the GPU."""
    module = load("faults")
    texts = {(record["name"], record["tool"]): record["text"] for record in records}
    rows = []
    for name, (kind, line) in FAULTS.items():
        finding = emulate(module, name, ELEMENTS, ELEMENTS).of_kind(kind)[0]
        ours = Verdict(kind, sorted({finding.line, finding.other_line} - {0}))
        assert line in ours.lines, (name, line, ours)
        found = {tool: read_verdict(texts[name, tool]) for tool in TOOLS}
        alone = texts[name, "alone"].partition(": ")[2].strip()
        tool = TOOL_OF[kind]
        theirs = found[tool]
        agree = theirs is not None and not set(theirs.lines).isdisjoint(ours.lines)
        agree |= kind == "deadlock" and alone == "hangs"
        rows.append({
            "name": name, "kind": kind, "tool": tool, "emulator": str(ours),
            "sanitizer": str(theirs or "nothing"), "gpu": alone, "agree": agree,
            "explanation": FAULT_EXPLANATIONS.get(name, ""),
        })  # fmt: skip
        others = [t for t in TOOLS if found[t] and t != tool]
        assert not others, f"{name}: {others} found something too"
    return rows


def count_accusations(records: list[dict]) -> dict[str, int]:
    """How many correct twins the emulator and each tool accuse of a fault."""
    module = load("faults")
    reports = [emulate(module, f"{name}_right", ELEMENTS, ELEMENTS) for name in FAULTS]
    accused = {"emulator": sum(not report.clean for report in reports)}
    for record in records:
        if record["name"] == "twins" and record["tool"] in TOOLS:
            ended = len(re.findall(r"_right: finished$", record["text"], re.MULTILINE))
            assert ended == len(FAULTS), f"{record['tool']}: {ended} twins finished"
            accused[record["tool"]] = len(re.findall(r"in faults\.cu:", record["text"]))
    return accused


def read_metrics(text: str) -> list[dict[tuple[str, str, str], float]]:
    """For each launch, in order: what ncu counted, by (memory, operation, what)."""
    return [
        {
            (memory, operation, what): nvidia.number(row[name.format(short)])
            for (memory, what), name in METRICS.items()
            for operation, short in OPERATIONS.items()
        }
        for row in nvidia.table(text)
    ]


def emulated(report: Report, memory: str, operation: str) -> tuple[list[int], int, int]:
    """The lines of an operation, its requests, and their sectors or wavefronts."""
    accesses = [a for a in report.accesses if (a.memory, a.kind) == (memory, operation)]
    lines = sorted({a.line for a in accesses})
    return lines, sum(a.requests for a in accesses), sum(a.units for a in accesses)


def compare_counters(text: str) -> list[dict]:
    """One row per launch, memory and operation."""
    module = load("counters")
    rows = []
    for (name, number), counted in zip(LAUNCHES, read_metrics(text), strict=True):
        report = emulate(module, name, number, 4096)
        for memory in ("global", "shared"):
            for operation in OPERATIONS:
                lines, *ours = emulated(report, memory, operation)
                theirs = [counted[memory, operation, what] for what in ("requests", "units")]
                if not any(ours + theirs):
                    continue
                unit = "sectors" if memory == "global" else "wavefronts"
                rows.append({
                    "kernel": f"{name}({number})", "line": lines,
                    "what": f"{unit} per request, {memory} {operation}",
                    "emulator": round(ours[1] / ours[0], 3), "ncu": round(theirs[1] / theirs[0], 3),
                    "requests": {"emulator": ours[0], "ncu": int(theirs[0])},
                    "agree": ours == theirs,
                    "explanation": COUNTER_EXPLANATIONS.get((name, memory, operation), ""),
                })  # fmt: skip
    return rows


def compare(source: Path) -> None:
    """Run the same launches on the emulator; write the table if every difference is explained."""
    raw = json.loads(source.read_text())
    data = {key: raw[key] for key in ("machine", "versions", "date")}
    data["faults"] = compare_faults(raw["faults"])
    data["twins"] = {"number": len(FAULTS), "accused_by": count_accusations(raw["faults"])}
    data["counters"] = compare_counters(raw["counters"])
    rows = data["faults"] + data["counters"]
    bare = [row for row in rows if not row["agree"] and not row["explanation"]]
    if bare:
        sys.exit("not explained:\n" + "\n".join(map(str, bare)))
    files.save(data, DATA)
    for what in ("faults", "counters"):
        agree = sum(row["agree"] for row in data[what])
        print(f"{what}: {agree} of {len(data[what])} agree, the others are explained")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=["measure", "compare"])
    parser.add_argument("raw", type=Path, help="what the tools printed")
    parser.add_argument("--sanitizer", action="append", help="a compute-sanitizer; the first "
                        "that can look at shared memory is used for initcheck")  # fmt: skip
    parser.add_argument("--only", default="", help='faults, or "counters", to measure again')
    given = parser.parse_args()
    if given.action == "compare":
        compare(given.raw)
    else:
        only = given.only.split(",") if given.only else []
        measure(given.raw, given.sanitizer or ["compute-sanitizer"], only)


if __name__ == "__main__":
    main()
