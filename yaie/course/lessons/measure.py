"""Time the learner's kernels on a GPU: those in Triton in the place of the engine's, others beside.

    python -m yaie.course.lessons.measure 11.2 11.3

For Triton it is a process of its own, because a notebook that interprets Triton cannot compile it.
"""

import importlib
import os
import sys
from collections.abc import Mapping
from typing import Any

import torch

from yaie.bench.protocol import Call, clock_for, compare, relative_error, tensors, why_wrong
from yaie.course.core.manifest import find
from yaie.ops.interpreter import VARIABLE, choose_interpreter

PREFILL, DECODE = "ragged_attention", "paged_attention"
OPERATORS = {  # of what is not called after its operator
    "grouped_tile": ["matmul"],
    "online_step": [PREFILL, DECODE],
    "finish": [PREFILL, DECODE],
    "seen_keys": [PREFILL],
    "attend": [PREFILL],
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


def side_by_side(calls: Mapping[str, Call], wanted: Any, num_bytes: int) -> dict[str, float]:
    """Check calls, time those that are right in turns beside a copy, and print a row for each.

    The protocol is that of `yaie bench kernels`: inputs are not in the cache.

    Args:
        calls: by name; each returns the tensor or tensors that it computed.
        wanted: what each must return, in float64 or in integers.
        num_bytes: what must be read and written at least. A copy that reads and writes as many
            bytes together is the ceiling.

    Returns:
        Milliseconds of each call that is right, and of "a copy".
    """
    device = tensors(wanted)[0].device
    source = torch.ones(max(num_bytes // 2, 1), dtype=torch.uint8, device=device)
    into, right = torch.empty_like(source), {}
    for name, call in calls.items():
        got = call()
        error = relative_error(got, wanted)
        number = tensors(got)[0]
        wrong = error > 0 if not number.is_floating_point() else why_wrong(error, 0.0, number.dtype)
        if wrong:
            print(f"{name:28} wrong: relative error {error:.1e}")
        else:
            right[name] = call
    times = compare({**right, "a copy": lambda: into.copy_(source)}, clock_for(device))
    copy = times["a copy"].median
    for name, timing in times.items():
        rate, share = num_bytes / timing.median / 1e6, copy / timing.median
        print(f"{name:28} {1e3 * timing.median:9.1f} µs {rate:7.0f} GB/s {share:6.2f} of a copy")
    return {name: timing.median for name, timing in times.items()}


def main(exercise_ids: list[str]) -> None:
    """Plug in, and run `yaie bench kernels` on what they compute. Without a GPU, say so and end."""
    if not torch.cuda.is_available():
        print("No GPU here: nothing to time.")
        return
    os.environ.pop(VARIABLE, None)  # the notebook's choice; Triton is not imported yet
    choose_interpreter()
    if exercise_ids == ["12.3"]:
        return show_tuning()
    operators = plug_in(*exercise_ids)
    from yaie.bench import kernels
    from yaie.course.lessons.ops.cases import bench_cases

    kernels.run(only=",".join(operators), quick=True, more=bench_cases)


def show_tuning() -> None:
    """Sum up columns with the learner's `tune`, and let Triton say what it tries and keeps."""
    os.environ["TRITON_PRINT_AUTOTUNING"] = "1"
    from yaie.course.core.notebook import use
    from yaie.course.lessons.ops.triton.tuned import column_sum_kernel

    mine = use("12.3")
    kernel = mine.tune(column_sum_kernel)
    for rows, columns in ((4096, 4096), (100, 4096), (4096, 1000)):
        x = torch.ones(rows, columns, device="cuda")
        right = bool((mine.column_sum(x, kernel) == rows).all())
        print(f"{rows} × {columns}: {'right' if right else 'WRONG'} with {kernel.best_config}")


if __name__ == "__main__":
    main(sys.argv[1:])
