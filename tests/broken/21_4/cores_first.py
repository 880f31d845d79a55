"""The cores always come before memory."""

from yaie.course.lessons.bottleneck import CORES, MEMORY, USED, WAITS

EXPECT = "L1 to a higher percentage"


def limited_by(metrics):
    memory = [part for part in MEMORY if metrics[part] >= USED][:1]
    cores = [part for part in CORES if metrics[part] >= USED]
    if memory or cores:
        return max(cores or memory, key=lambda part: metrics[part])
    if metrics["waves"] < 1:
        return "grid"
    return max(WAITS, key=lambda reason: metrics[reason])
