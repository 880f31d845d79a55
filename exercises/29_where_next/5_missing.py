"""Exercise 29.5: What a change still lacks.

Review a change before you send it: from its files, its claims and what was run, say which rules
of this repository it does not meet yet. The rules are those of CONTRIBUTING.md; `RULES` has their
names in order, and the docstring says what counts.

You have
- `change.files`: a frozenset of paths such as `"csrc/norm/rms_norm.cu"`, changed or added
- `change.new_operators`, `change.faster_on`: tuples of str: public operators that it adds; GPUs
  on which it is said to be faster
- `change.records`: a tuple of `Record(gpu, gpus, checked)`: the GPU's name, how many were used,
  whether results were compared in the same run
- `change.passed`: a frozenset of names of tools that found nothing
- `TOOLS`, `SEVERAL_GPUS`: the three tools of compute-sanitizer that this repository demands; the
  files of tensor parallelism
- `RULES`: a dict: name → rule, in the order of the answer; the names are "test", "sanitizers",
  "registry", "record", "two GPUs", "generated", "changelog"

In a terminal: yaie check 29.5, yaie hint 29.5, yaie reset 29.5.
"""

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
    raise NotImplementedError("Exercise 29.5: What a change still lacks")
