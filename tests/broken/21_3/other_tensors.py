"""Hands the batch over by name: the replay never hears of it."""

import torch

from yaie.course.lessons import capture as reference

EXPECT = "the batch has to be copied into them"


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
            raise ValueError(f"captured for at most {max(self.replays)} rows, got {rows}")
        size = min(fits)
        for name in self.inputs[size]:
            self.inputs[size][name] = batch[name]
        self.replays[size]()
        return self.outputs[size][:rows].clone()
