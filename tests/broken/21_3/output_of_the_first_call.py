"""Keeps what the step returned before the capture."""

import torch

from yaie.course.lessons import capture as reference

EXPECT = "not the tensor that capture returned"


class GraphedSteps(reference.GraphedSteps):
    def add(self, size):
        inputs = {name: torch.stack([row] * size) for name, row in self.padding.items()}
        self.outputs[size] = self.step(inputs)
        self.inputs[size] = inputs
        _, self.replays[size] = self.capture(lambda: self.step(inputs))

    def run(self, batch):
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
