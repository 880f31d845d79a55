"""Time the learner's Triton kernels on a GPU, in the place of the engine's own.

    python -m yaie.course.lessons.measure 10.2 10.3

It is a process of its own because a notebook that interprets Triton cannot compile it.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import torch

from yaie.course.core.manifest import find
from yaie.ops.interpreter import VARIABLE, choose_interpreter

PREFILL, DECODE = "ragged_attention", "paged_attention"
OPERATORS = {  # of what is not called after its operator
    "grouped_tile": ["matmul"],
    "online_step": [PREFILL, DECODE],
    "finish": [PREFILL, DECODE],
    "seen_keys": [PREFILL],
    "find_queries": [DECODE],
    "find_slots": [DECODE],
    "merge_kernel": [DECODE],
    "find_request": ["fill_draft_extend_metadata"],
    "fill_tokens_kernel": ["fill_draft_extend_metadata"],
}


def plug_in(*exercise_ids: str) -> list[str]:
    """Put what passes in the place of the engine's kernels; return the operators of all."""
    from yaie.course.core.notebook import use

    operators = []
    for exercise_id in exercise_ids:
        exercise = find(exercise_id)
        if not exercise.is_triton:
            raise ValueError(f"{exercise_id} is not a kernel in Triton")
        importlib.import_module(exercise.module)
        found = use(exercise_id)
        for name in exercise.names:
            mine = found if len(exercise.names) == 1 else getattr(found, name)
            _replace(exercise.module, name, mine)
            operators += OPERATORS.get(name, [name.removesuffix("_kernel")])
    return list(dict.fromkeys(operators))


def _replace(home: str, name: str, mine: Any) -> None:
    """Put `mine` where the reference is, in its own module and in those that imported it."""
    reference = getattr(sys.modules[home], name)
    package = home.rpartition(".")[0]
    for module_name, module in list(sys.modules.items()):
        if module_name.startswith(package) and vars(module).get(name) is reference:
            setattr(module, name, mine)


def main(exercise_ids: list[str]) -> None:
    """Plug in, and run `yaie bench kernels` on what they compute. Without a GPU, say so and end."""
    if not torch.cuda.is_available():
        print("No GPU here: nothing to time.")
        return
    os.environ.pop(VARIABLE, None)  # the notebook's choice; Triton is not imported yet
    choose_interpreter()
    operators = plug_in(*exercise_ids)
    from yaie.bench import kernels
    from yaie.course.lessons.ops.cases import bench_cases

    kernels.run(only=",".join(operators), quick=True, more=bench_cases)


if __name__ == "__main__":
    main(sys.argv[1:])
