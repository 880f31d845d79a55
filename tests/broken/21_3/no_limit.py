"""Cuts a batch that is too long."""

import torch

from yaie.course.lessons import capture as reference

EXPECT = "should raise ValueError"


class GraphedSteps(reference.GraphedSteps):
    def add(self, size):
        inputs = {name: torch.stack([row] * size) for name, row in self.padding.items()}
        self.step(inputs)
        self.inputs[size] = inputs
        self.outputs[size], self.replays[size] = self.capture(lambda: self.step(inputs))

    def run(self, batch):
        rows = len(next(iter(batch.values())))
        fits = [size for size in self.replays if size >= rows]
        if not fits:
            rows, fits = max(self.replays), [max(self.replays)]
        size = min(fits)
        for name, tensor in self.inputs[size].items():
            tensor[:rows] = batch[name][:rows]
            tensor[rows:] = self.padding[name]
        self.replays[size]()
        return self.outputs[size][:rows].clone()
