"""Memory always comes before the cores."""

from yaie.course.lessons.bottleneck import CORES, MEMORY, USED, WAITS

EXPECT = "instruction issue to a higher percentage"


def limited_by(metrics):
    memory = [part for part in MEMORY if metrics[part] >= USED][:1]
    cores = [part for part in CORES if metrics[part] >= USED]
    if memory:
        return memory[0]
    if cores:
        return max(cores, key=lambda part: metrics[part])
    if metrics["waves"] < 1:
        return "grid"
    return max(WAITS, key=lambda reason: metrics[reason])
