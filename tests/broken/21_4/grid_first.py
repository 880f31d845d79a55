"""Looks at the grid before it looks at the parts."""

from yaie.course.lessons.bottleneck import CORES, MEMORY, USED, WAITS

EXPECT = "can keep the GPU busy"


def limited_by(metrics):
    if metrics["waves"] < 1:
        return "grid"
    memory = [part for part in MEMORY if metrics[part] >= USED][:1]
    cores = [part for part in CORES if metrics[part] >= USED]
    if memory or cores:
        return max(memory + cores, key=lambda part: metrics[part])
    return max(WAITS, key=lambda reason: metrics[reason])
