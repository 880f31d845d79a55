"""Names the busiest part, even if it is half idle."""

from yaie.course.lessons.bottleneck import CORES, MEMORY, USED, WAITS

EXPECT = "No part reached 60 percent"


def limited_by(metrics):
    memory = [part for part in MEMORY if metrics[part] >= USED][:1]
    cores = [part for part in CORES if metrics[part] >= USED]
    if not memory and not cores and metrics["waves"] >= 1:
        return max([*MEMORY, *CORES], key=lambda part: metrics[part])
    if memory or cores:
        return max(memory + cores, key=lambda part: metrics[part])
    if metrics["waves"] < 1:
        return "grid"
    return max(WAITS, key=lambda reason: metrics[reason])
