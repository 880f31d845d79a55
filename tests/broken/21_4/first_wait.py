"""Takes loads for the reason, as they mostly are."""

from yaie.course.lessons.bottleneck import CORES, MEMORY, USED, WAITS

EXPECT = "most cycles"


def limited_by(metrics):
    memory = [part for part in MEMORY if metrics[part] >= USED][:1]
    cores = [part for part in CORES if metrics[part] >= USED]
    if memory or cores:
        return max(memory + cores, key=lambda part: metrics[part])
    if metrics["waves"] < 1:
        return "grid"
    return next(reason for reason in WAITS if metrics[reason] > 0)
