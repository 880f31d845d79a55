"""The rules of this repository for a change, and what a reviewer sees of one."""

from dataclasses import dataclass

TOOLS = ("memcheck", "racecheck", "initcheck")  # of compute-sanitizer's four; a change needs these
SEVERAL_GPUS = ("yaie/engine/ranks.py", "yaie/engine/parallel.py", "yaie/model/parallel.py")
RULES = {  # in the order in which a reviewer asks
    "test": "a changed kernel has a changed test: tests/kernel_cases.py or a tests/test_*.py",
    "sanitizers": "a kernel in CUDA C++ has passed memcheck, racecheck and initcheck",
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
