"""A change to this repository, and what CONTRIBUTING.md still asks of it."""

from __future__ import annotations

from dataclasses import dataclass

TOOLS = ("memcheck", "racecheck", "initcheck")  # of compute-sanitizer
SEVERAL_GPUS = ("yaie/engine/ranks.py", "yaie/engine/parallel.py", "yaie/model/parallel.py")
RULES = {  # in the order in which a reviewer asks
    "test": "a changed kernel has a changed test: tests/kernel_cases.py or a tests/test_*.py",
    "sanitizers": "a kernel in CUDA C++ has passed all three tools of compute-sanitizer",
    "registry": "a new operator has its row in yaie/ops/registry.py",
    "record": "a claim of speed has a record of that GPU, with results checked in the same run",
    "two GPUs": "a change of tensor parallelism has a record of two GPUs",
    "generated": "a changed exercise has its generated files, in exercises/ and in solutions/",
    "changelog": "a changed dependency has its reason in CHANGELOG.md",
}


@dataclass(frozen=True)
class Record:
    """A benchmark's record, as it is kept in notebooks/data.

    Attributes:
        gpus: how many were used.
        checked: whether the results were compared with an oracle in the same run.
    """

    gpu: str
    gpus: int = 1
    checked: bool = True


@dataclass(frozen=True)
class Change:
    """A change as a reviewer sees it.

    Attributes:
        files: the paths that it changes or adds, from the root of the repository.
        new_operators: the public operators that it adds.
        faster_on: the GPUs on which it is said to be faster.
        records: what was measured.
        passed: the tools of compute-sanitizer that found nothing.
    """

    files: frozenset[str] = frozenset()
    new_operators: tuple[str, ...] = ()
    faster_on: tuple[str, ...] = ()
    records: tuple[Record, ...] = ()
    passed: frozenset[str] = frozenset()


def missing(change: Change) -> list[str]:
    """What a change lacks: keys of `RULES`, in their order.

    - A kernel is a `.cu` or `.cuh` file below csrc/, or a `.py` file below yaie/ops/triton/. A test
      is tests/kernel_cases.py, or a `.py` file whose path begins with tests/test_.
    - The tools watch CUDA C++ only.
    - Every GPU of `faster_on` needs a record of its own, made with checked results.
    - A record of two GPUs or more, with checked results, serves for a file of `SEVERAL_GPUS`.
    - A file below yaie/course/exercises/ needs one below exercises/ and one below solutions/, if
      it is a page: its name ends in `.md`.
    - Dependencies are in pyproject.toml and constraints.txt.
    """

    def touches(folder: str, *ends: str) -> bool:
        return any(file.startswith(folder) and file.endswith(ends) for file in files)

    files, records = change.files, [record for record in change.records if record.checked]
    cuda = touches("csrc/", ".cu", ".cuh")
    kernel = cuda or touches("yaie/ops/triton/", ".py")
    test = touches("tests/test_", ".py") or "tests/kernel_cases.py" in files
    generated = touches("exercises/", "") and touches("solutions/", "")
    parallel = any(file in SEVERAL_GPUS for file in files)
    two = any(record.gpus >= 2 for record in records)
    depends = "pyproject.toml" in files or "constraints.txt" in files
    lacks = {
        "test": kernel and not test,
        "sanitizers": cuda and not change.passed.issuperset(TOOLS),
        "registry": change.new_operators and "yaie/ops/registry.py" not in files,
        "record": not {record.gpu for record in records}.issuperset(change.faster_on),
        "two GPUs": parallel and not two,
        "generated": touches("yaie/course/exercises/", ".md") and not generated,
        "changelog": depends and "CHANGELOG.md" not in files,
    }
    return [rule for rule in RULES if lacks[rule]]
