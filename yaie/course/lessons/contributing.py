"""What the rules of this repository still ask of a change."""

from __future__ import annotations

from yaie.course.lessons.rules import RULES, SEVERAL_GPUS, TOOLS, Change


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
