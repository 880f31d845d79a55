"""Solution of exercise 22.5: One capture, many batches.

`add` captures the step for one batch size; `run` computes any batch by a replay. A replay does
not know its caller: it reads the tensors that it was captured with, whatever they contain, and
always writes into the same result.

Generated from GraphedSteps.add, GraphedSteps.run in yaie/course/lessons/capture.py.
Edit it there, and run `python -m yaie.course build`.
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
        inputs = {name: torch.stack([row] * size) for name, row in self.padding.items()}
        self.step(inputs)
        self.inputs[size] = inputs
        self.outputs[size], self.replays[size] = self.capture(lambda: self.step(inputs))

    def run(self, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """The step's result for a batch, `[rows, ...]`, by one replay.

        The smallest captured size that the rows fit in is replayed. Its input tensors get the rows,
        followed by padding. The result is the caller's own: a later replay does not change it.

        Args:
            batch: `{name: tensor [rows, ...]}`, with the names of `padding`.

        Raises:
            ValueError: the batch has more rows than any captured size.
        """
        rows = len(next(iter(batch.values())))
        fits = [size for size in self.replays if size >= rows]
        if not fits:
            raise ValueError(f"captured for at most {max(self.replays)} rows, got {rows}")
        size = min(fits)
        for name, tensor in self.inputs[size].items():
            tensor[:rows] = batch[name]
            tensor[rows:] = self.padding[name]
        self.replays[size]()
        return self.outputs[size][:rows].clone()
