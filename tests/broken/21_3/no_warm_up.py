"""Captures a step that never ran."""

import torch

from yaie.course.lessons import capture as reference

EXPECT = "call the step once before"


class GraphedSteps(reference.GraphedSteps):
    def add(self, size):
        inputs = {name: torch.stack([row] * size) for name, row in self.padding.items()}
        self.inputs[size] = inputs
        self.outputs[size], self.replays[size] = self.capture(lambda: self.step(inputs))

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
