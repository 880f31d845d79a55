"""Takes the highest percentage, wherever it is."""

from yaie.course.lessons.bottleneck import CORES, MEMORY, USED, WAITS

EXPECT = "passes through L2 and L1"


def limited_by(metrics):
    memory = [part for part in MEMORY if metrics[part] >= USED]
    cores = [part for part in CORES if metrics[part] >= USED]
    if memory or cores:
        return max(memory + cores, key=lambda part: metrics[part])
    if metrics["waves"] < 1:
        return "grid"
    return max(WAITS, key=lambda reason: metrics[reason])
