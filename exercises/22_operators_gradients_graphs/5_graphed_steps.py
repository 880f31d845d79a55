"""Exercise 22.5: One capture, many batches.

`add` captures the step for one batch size; `run` computes any batch by a replay. A replay does
not know its caller: it reads the tensors that it was captured with, whatever they contain, and
always writes into the same result.

You have
- `self.padding`: a dict from a name to a tensor, a row for places without a request
- `self.step(inputs)`: takes a dict from a name to a tensor `[size, ...]`, returns a tensor
  `[size, ...]`
- `self.capture(function)`: returns what the function returned, a tensor that each replay writes,
  and a function that replays it
- `self.inputs`, `self.outputs`, `self.replays`: dicts from a captured size to the tensors that
  its replay reads, the tensor that it writes, and the function that replays it
- `batch`: a dict from a name to a tensor `[rows, ...]`
- `torch.stack([row] * size)`: `[size, ...]`, the same row `size` times
- `tensor[:rows] = other`: writes into the tensor itself, where a replay reads it

In a terminal: yaie check 22.5, yaie hint 22.5, yaie reset 22.5.
What this file does not define is inherited from yaie/course/lessons/capture.py.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from yaie.course.lessons import capture as reference


class GraphedSteps(reference.GraphedSteps):
    def add(self, size: int) -> None:
        """Capture the step for batches of up to `size` rows.

        Makes input tensors of `size` rows, all of them padding; runs the step once on them, not
        captured, so that everything is compiled and loaded; captures the step on them; and keeps
        the three things that `inputs`, `outputs` and `replays` are for.
        """
        raise NotImplementedError("Exercise 22.5: One capture, many batches")

    def run(self, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """The step's result for a batch, `[rows, ...]`, by one replay.

        The smallest captured size that the rows fit in is replayed. Its input tensors get the rows,
        followed by padding. The result is the caller's own: a later replay does not change it.

        Args:
            batch: `{name: tensor [rows, ...]}`, with the names of `padding`.

        Raises:
            ValueError: the batch has more rows than any captured size.
        """
        raise NotImplementedError("Exercise 22.5: One capture, many batches")
