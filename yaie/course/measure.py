"""Time the learner's Triton kernels on a GPU, in the place of the engine's own.

    python -m yaie.course.measure 10.2 10.3

It is a process of its own because a notebook that interprets Triton cannot compile it.
"""

from __future__ import annotations

import importlib
import os
import sys

from yaie.backends.interpreter import VARIABLE, choose_interpreter
from yaie.course.manifest import find

OPERATOR = {"grouped_tile": "matmul"}  # of what is not called after its operator


def plug_in(*exercise_ids: str) -> list[str]:
    """Put what passes in the place of the engine's kernels; return the operators of all."""
    from yaie.course.notebook import use

    operators = []
    for exercise_id in exercise_ids:
        exercise = find(exercise_id)
        if not exercise.is_triton:
            raise ValueError(f"{exercise_id} is not a kernel in Triton")
        (name,) = exercise.names
        setattr(importlib.import_module(exercise.module), name, use(exercise_id))
        operators.append(OPERATOR.get(name, name.removesuffix("_kernel")))
    return list(dict.fromkeys(operators))


def main(exercise_ids: list[str]) -> None:
    """Plug in, and run `yaie bench kernels` on what they compute."""
    os.environ.pop(VARIABLE, None)  # the notebook's choice; Triton is not imported yet
    choose_interpreter()
    operators = plug_in(*exercise_ids)
    from yaie.bench import kernels

    kernels.run(only=",".join(operators), quick=True)


if __name__ == "__main__":
    main(sys.argv[1:])
