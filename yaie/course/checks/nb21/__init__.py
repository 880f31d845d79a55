"""Exercises of notebook 21: an operator, its gradient, a profile, a captured step."""

from __future__ import annotations

from yaie.course.checks.nb21.norm import check_norm
from yaie.course.checks.nb21.operator import check_operator
from yaie.course.checks.nb21.profile import check_limit, draw_limits
from yaie.course.checks.nb21.steps import check_steps
from yaie.course.core.manifest import Exercise

NOTEBOOK = "21_building_profiling_differentiating"

EXERCISES = [
    Exercise(
        id="21.1",
        notebook=NOTEBOOK,
        slug="custom_operator",
        title="A kernel becomes an operator",
        target="yaie.course.lessons.custom:define_silu_and_mul",
        task=(
            "Register the kernel as an operator of torch, in the namespace that you are given: "
            "what computes, and a fake, which says what the result will look like. "
            "`torch.library.custom_op` does both; a `torch.library.Library` is the long way."
        ),
        difficulty=2,
        minutes=15,
        hints=(
            "An operator is a name, a schema and some functions, each for a purpose: one computes "
            "from numbers, one answers for tensors that have none. The second has to promise what "
            "the first will return: shape, dtype, device.",
            "The result has as many rows as x and half as many columns, and x.new_empty gives it "
            "the dtype and the device of x. The sizes in the fake may be symbols, so they are "
            "passed on as they are; int() would make a number of one. Nothing is launched there.",
            '    @torch.library.custom_op(f"{namespace}::silu_and_mul", mutates_args=())\n'
            "    def silu_and_mul(x: torch.Tensor) -> torch.Tensor:   # the types are the schema\n"
            "        out = x.new_empty(...)\n"
            "        launch_silu_and_mul(...)\n"
            "        return out\n"
            "    @silu_and_mul.register_fake\n"
            "    def _(x):\n"
            "        return ...",
        ),
        proves=(
            "The operator computes what the kernel does and leaves x alone, its fake promises "
            "what it returns, and torch.compile makes one graph for all sizes."
        ),
        check=check_operator,
    ),
    Exercise(
        id="21.2",
        notebook=NOTEBOOK,
        slug="rms_norm_backward",
        title="The gradients of RMSNorm",
        target="yaie.course.lessons.custom:RMSNorm.backward",
        task=(
            "The forward pass is there and has kept x, weight and the scale of each row. Write "
            "the backward pass, which gets the gradient of the result. The formulas are in the "
            "docstring; the last exercise of notebook 08 was of the same kind."
        ),
        difficulty=2,
        minutes=15,
        hints=(
            "x acts in two ways: each element is multiplied by the scale of its row, and it has a "
            "part in that scale. The first gives scale × g × w, the second the term with the mean.",
            "Rows are independent but for weight, which all of them use: its gradient is a sum "
            "over all rows, however many leading dimensions there are. What is small is left when "
            "two large terms cancel, so compute in the dtype of scale and round at the end.",
            "    x, weight, scale = ctx.saved_tensors\n"
            "    wide = x.to(scale.dtype)\n"
            "    weighted = ...                                  # g w\n"
            "    mean = (...).mean(dim=-1, keepdim=True)\n"
            "    of_x = scale * (... - wide * scale.square() * ...)\n"
            "    of_weight = (...).flatten(0, -2).sum(dim=0)\n"
            "    return of_x.to(x.dtype), of_weight.to(...), None",
        ),
        proves=(
            "The gradients are autograd's in float64, hold under bfloat16 where the terms cancel, "
            "and pass gradcheck."
        ),
        check=check_norm,
    ),
    Exercise(
        id="21.3",
        notebook=NOTEBOOK,
        slug="graphed_steps",
        title="One capture, many batches",
        target="yaie.course.lessons.capture:GraphedSteps.add, GraphedSteps.run",
        task=(
            "`add` captures the step for one batch size; `run` computes any batch by a replay. A "
            "replay knows nothing of its caller: it reads the tensors that it was captured with, "
            "whatever stands in them, and writes into one and the same result."
        ),
        difficulty=2,
        minutes=20,
        hints=(
            "The captured step is a machine with an input tray and an output tray. `add` builds "
            "the machine and its trays. `run` fills the tray, presses the button, and takes a "
            "copy of what lies in the other.",
            "Behind the rows of the batch lie those of an earlier, longer one. The replay computes "
            "them too, and writes to their places in the cache. So the rest of the tray is filled "
            "with padding, every time.",
            "In add:\n"
            "    inputs = {name: torch.stack([...] * size) for name, row in self.padding.items()}\n"
            "    self.step(inputs)\n"
            "    self.outputs[size], self.replays[size] = self.capture(lambda: ...)\n"
            "In run:\n"
            "    size = min(... for size in self.replays if ...)   # ValueError if there is none\n"
            "    for name, tensor in self.inputs[size].items():\n"
            "        tensor[:rows] = ...\n"
            "        tensor[rows:] = ...\n"
            "    self.replays[size]()\n"
            "    return ...",
        ),
        proves=(
            "Batches of every length up to the largest get their own results by one replay of the "
            "smallest size that holds them, and nothing is written for a request that has gone."
        ),
        check=check_steps,
    ),
    Exercise(
        id="21.4",
        notebook=NOTEBOOK,
        slug="limited_by",
        title="What limits a kernel",
        target="yaie.course.lessons.bottleneck:limited_by",
        task=(
            "Read a profile: from the percentages that each part of the GPU reached, the size of "
            "the grid, and the cycles that warps waited, say what holds the kernel back. The "
            "rules, in their order, are in the docstring."
        ),
        difficulty=1,
        minutes=12,
        hints=(
            "First the parts that are used up, then the grid, then the waits. A kernel that has "
            "reached the limit of a part cannot be faster without using less of it, whatever else "
            "is wrong with it.",
            "Of DRAM, L2 and L1 at most one is a candidate: the first in this order that reached "
            "60. All of the cores that did are candidates. The highest percentage among the "
            "candidates wins. `MEMORY`, `CORES` and `WAITS` hold the keys in the right order.",
            "    memory = [part for part in MEMORY if ...][:1]\n"
            "    cores = [part for part in CORES if ...]\n"
            "    if memory or cores:\n"
            "        return max(..., key=lambda part: metrics[part])\n"
            "    if ...:\n"
            '        return "grid"\n'
            "    return max(WAITS, key=...)",
        ),
        proves=(
            "It names the limit of the kernels that were measured, and of 300 random profiles, as "
            "the rules say."
        ),
        check=check_limit,
        picture=draw_limits,
    ),
]
