"""Takes sizes in the order in which they were captured."""

import torch

from yaie.course.lessons import capture as reference

EXPECT = "the least padding"


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
        size = fits[0]
        for name, tensor in self.inputs[size].items():
            tensor[:rows] = batch[name]
            tensor[rows:] = self.padding[name]
        self.replays[size]()
        return self.outputs[size][:rows].clone()
