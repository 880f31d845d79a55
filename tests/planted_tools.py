"""The planted faults of `planted.py` under compute-sanitizer, where there is a CUDA GPU.

    python tests/planted_tools.py OUTPUT.json [--only FILE ...] [--sanitizer PATH ...]

Each fault runs in a process of its own, alone and under the tool that should see its kind, all
twins of a file together under each tool. The output has a row per fault, written as soon as it is
known: its kinds and lines, what the tool says and how the kernel ends.
"""

import argparse
import json
import re
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import planted

from yaie.course.author.gpu.agreement import (
    AT_ONCE,
    TOOL_OF,
    TOOLS,
    build,
    describe_machine,
    launched,
    read_verdict,
    tool_commands,
)


def tool_for(version: planted.Version) -> str:
    """The tool that should see a fault; memcheck for kinds that none looks for."""
    return next((TOOL_OF[kind] for kind in sorted(version.kinds) if kind in TOOL_OF), "memcheck")


def row_of(file: str, program: Path, version: planted.Version, commands: dict) -> dict:
    """What one fault comes to."""
    tool = tool_for(version)
    alone, text = (launched(commands[key], program, [version.name]) for key in ("alone", tool))
    verdict = read_verdict(text, file)
    return {
        "name": f"{file}-{version.name}", "kinds": sorted(version.kinds),
        "lines": sorted(version.lines), "tool": tool, "sanitizer": str(verdict or "nothing"),
        "gpu": alone.partition(": ")[2].strip() or "no word",
        "agree": verdict is not None and not version.lines.isdisjoint(verdict.lines),
    }  # fmt: skip


def accused(file: str, program: Path, commands: dict) -> dict[str, list[str]]:
    """What each tool says of the correct versions of a file."""
    right = [version.name for version in planted.versions(file) if not version.kinds]
    found = {}
    for tool in TOOLS:
        text = launched(commands[tool], program, right)
        lines = {int(line) for line in re.findall(rf"in {file}\.cu:(\d+)", text)}
        ended = len(re.findall(r"^run_\w+: finished$", text, re.MULTILINE))
        found[tool] = [f"{ended} of {len(right)} finished", *(f"line {n}" for n in sorted(lines))]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path)
    parser.add_argument("--sanitizer", action="append", help="a compute-sanitizer; the first that "
                        "can look at shared memory is used for initcheck")  # fmt: skip
    parser.add_argument("--only", nargs="+", default=planted.FILES, choices=planted.FILES)
    given = parser.parse_args()
    sanitizers = given.sanitizer or ["compute-sanitizer"]
    data = describe_machine(sanitizers) | {"faults": [], "twins": {}}
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(AT_ONCE) as pool:
        folder = Path(temporary)
        sources = [folder / f"{file}.cu" for file in given.only]
        for source in sources:
            source.write_text(planted.source(source.stem))
        programs = dict(zip(given.only, pool.map(lambda s: build(s, folder), sources), strict=True))
        first = planted.versions(given.only[0])[0].name
        commands = tool_commands(sanitizers, programs[given.only[0]], first)
        twins = pool.map(lambda file: accused(file, programs[file], commands), given.only)
        # Those that may hang come last: a kernel that never ends slows its neighbors.
        slow = {"deadlock", "divergent_barrier", "time_limit"}
        work = [(file, v) for file in given.only for v in planted.versions(file) if v.kinds]
        work.sort(key=lambda both: bool(both[1].kinds & slow))
        rows = pool.map(lambda both: row_of(both[0], programs[both[0]], both[1], commands), work)
        data["twins"] = dict(zip(given.only, twins, strict=True))
        for row in rows:
            data["faults"].append(row)
            given.output.write_text(json.dumps(data, indent=1) + "\n")
    agree = sum(row["agree"] for row in data["faults"])
    print(f"{agree} of {len(data['faults'])} faults are told by compute-sanitizer too")


if __name__ == "__main__":
    main()
